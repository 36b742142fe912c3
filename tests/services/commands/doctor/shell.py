"""A shell in which remedies are typed: with the operator's programs, those of this machine or, where it has none, what
stands for them here.

`psql` is the real one, and so is `rabbitmqctl`, told which of the machine's nodes is meant. `kafka-topics.sh` and
`kafka-configs.sh` call the classes that Kafka's own scripts call. `mongosh`, `aws` and `timedatectl` cannot be had
here: what stands for them knows the one thing that a remedy asks of each.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.stack import Endpoints, MissingPart
from tests.stack.install import need_program
from tests.stack.kafka import class_path
from tests.stack.rabbitmq import RabbitServer
from tests.stack.server import Missing

SECONDS = 50.0

MONGOSH = """
import re, sys, pymongo
url, script = sys.argv[1], sys.argv[sys.argv.index("--eval") + 1]
collection, index = re.fullmatch(r'db[.]getCollection[(]"(.+)"[)][.]dropIndex[(]"(.+)"[)]', script).groups()
with pymongo.MongoClient(url) as client:
    client.get_default_database()[collection].drop_index(index)
"""
AWS = """
import sys, boto3
_, flag, endpoint, service, verb, bucket = sys.argv
assert (flag, service, verb) == ("--endpoint-url", "s3", "mb"), sys.argv
keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=bucket.removeprefix("s3://"))
"""
TIMEDATECTL = """
import os, pathlib, sys
assert sys.argv[1:] == ["set-ntp", "true"]
pathlib.Path(os.environ["FAKETIME_TIMESTAMP_FILE"]).write_text("+0\\n")
"""
KAFKA = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-configs.sh": "kafka.admin.ConfigCommand"}


class Shell:
    """Types commands; the environment is what they leave, and begins as this one."""

    def __init__(self, folder: Path, stack: Endpoints) -> None:
        self._folder = folder
        self.path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        for name, script in {"mongosh": MONGOSH, "aws": AWS, "timedatectl": TIMEDATECTL}.items():
            self._add(name, f"#!{sys.executable}\n{script}")
        for name, java_class in KAFKA.items():
            java = "exec java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error"
            self._add(name, f'#!/bin/sh\n{java} -cp "{class_path()}" {java_class} "$@"\n')
        self._add("rabbitmqctl", _rabbitmqctl(stack))
        self._postgres = urlsplit(stack.postgres_url).username or "postgres"

    def type(self, line: str, environment: Mapping[str, str]) -> dict[str, str]:
        """Type the line; the environment of Carillon afterwards."""
        try:
            need_program("psql", "postgresql-client")
        except Missing as reason:
            raise MissingPart(str(reason)) from None
        done = subprocess.run(
            ["sh", "-c", f"{line} >&2 && env -0"],
            env={**os.environ, **environment, "PATH": self.path, "PGUSER": self._postgres},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        left = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)
        kept = ("CARILLON_", "FAKETIME", "LD_PRELOAD", "NO_FAKE_STAT")
        return {name: value for name, value in left.items() if name.startswith(kept)}

    def _add(self, name: str, script: str) -> None:
        program = self._folder / name
        program.write_text(script)
        program.chmod(0o755)


def _rabbitmqctl(stack: Endpoints) -> str:
    """The node's own, as the user that the node runs as."""
    assert stack.rabbit_url
    [program] = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmqctl"))
    server = RabbitServer()
    ours = server._environment(server.ports()).items() - os.environ.items()
    exports = "".join(f"export {name}='{value}'\n" for name, value in sorted(ours))
    return f'#!/bin/sh\n{exports}exec {program} "$@"\n'
