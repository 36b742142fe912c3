"""The S3 server of moto: everything in memory, so a restart forgets what it held."""

import os
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec

from tests.stack.server import Command, Missing, Ports, Server


class S3Server(Server):
    """Any credentials are accepted."""

    name = "s3"

    def install(self) -> None:
        if find_spec("moto") is None:
            raise Missing("moto[server] is not installed (it is in the requirements of development)")

    def command(self, ports: Ports) -> Command:
        argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["client"])]
        return Command(argv, env=os.environ | {"MOTO_PORT": str(ports["client"])})

    def healthy(self, ports: Ports) -> bool:
        try:
            with urllib.request.urlopen(self.addresses(ports)["s3_url"], timeout=3) as answer:
                return b"ListAllMyBucketsResult" in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {"s3_url": f"http://127.0.0.1:{ports['client']}"}
