"""The servers that cannot speak plainly and encrypted at the same time: a MongoDB and a PostgreSQL of their own.

Kafka and RabbitMQ of the stack listen on further ports, with TLS and logins.
"""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pymongo
from pymongo.errors import PyMongoError

from services.embedded import processes
from tests.secure import rights
from tests.stack import certificates, places
from tests.stack.kafka import KafkaServer
from tests.stack.mongodb import MongoServer, mongo_answers
from tests.stack.postgresql import PostgresServer
from tests.stack.rabbitmq import RabbitServer
from tests.stack.server import Command, Ports, Server, bring_up, take_down

ADMIN = "root"
_HBA = """\
hostssl bycertificate carillon 127.0.0.1/32 cert
hostssl all carillon 127.0.0.1/32 scram-sha-256
host all postgres 127.0.0.1/32 trust
"""


class SecureMongo(MongoServer):
    """TLS alone, and nothing without a login. Its users are made before it asks for one."""

    @property
    def key(self) -> str:
        return "mongo-secure"

    def prepare(self, ports: Ports) -> None:
        mark = processes.spawn(super().command(ports).argv, mark_file=self.folder / "first.json", log=self.log)
        try:
            _make_users(ports["client"])
        finally:
            processes.end(mark, grace_seconds=5)

    def command(self, ports: Ports) -> Command:
        server = str(certificates.ensure().server)
        plain = super().command(ports).argv
        return Command([*plain, "--auth", "--tls-cert-file", server, "--tls-key-file", server])

    def healthy(self, ports: Ports) -> bool:
        url = f"mongodb://{ADMIN}:{rights.PASSWORD}@127.0.0.1:{ports['client']}"
        return mongo_answers(f"{url}/?authSource=admin&tls=true&tlsCAFile={certificates.ensure().ca}")

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {"mongo": f"127.0.0.1:{ports['client']}"}


class SecurePostgres(PostgresServer):
    """TLS alone for `carillon`, who has a password."""

    @property
    def key(self) -> str:
        return "postgres-secure"

    def prepare(self, ports: Ports) -> None:
        super().prepare(ports)
        (self.data / "pg_hba.conf").write_text(_HBA)

    def command(self, ports: Ports) -> Command:
        plain = super().command(ports)
        files = certificates.ensure()
        self._take(files.server, "server.pem")
        self._take(files.ca, "ca.pem")
        named = ("ssl_cert_file=server.pem", "ssl_key_file=server.pem", "ssl_ca_file=ca.pem")
        settings = ("ssl=on", *named, "shared_buffers=32MB")
        more = [word for setting in settings for word in ("-c", setting)]
        return Command([*plain.argv, *more], user=plain.user, cwd=plain.cwd)

    def _take(self, file: Path, name: str) -> None:
        """Give the server a copy that it may read and nobody else: it takes no other."""
        copy = self.data / name
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
        if user := self._user():
            shutil.chown(copy, user)

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {"postgres": f"127.0.0.1:{ports['client']}"}


def ensure() -> tuple[str, str]:
    """Where MongoDB and PostgreSQL are, started if they are not."""
    mongo, postgres = SecureMongo(), SecurePostgres()
    for server in (mongo, postgres):
        bring_up(server, may_wipe=True)
    return mongo.addresses(mongo.ports())["mongo"], postgres.addresses(postgres.ports())["postgres"]


def restart_all() -> None:
    """End every server that shows a certificate, and start it with that of now."""
    with places.sole_starter(), ThreadPoolExecutor() as pool:
        list(pool.map(_restart, (KafkaServer(), RabbitServer(), SecureMongo(), SecurePostgres())))


def _restart(server: Server) -> None:
    take_down(server)
    bring_up(server, may_wipe=False)


def _make_users(port: int) -> None:
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient("127.0.0.1", port, directConnection=True)
    with client:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(PyMongoError):
                client.admin.command("ping")
                break
        client.admin.command("createUser", ADMIN, pwd=rights.PASSWORD, roles=["root"])
        user, roles = rights.mongodb()
        client.admin.command("createUser", user, pwd=rights.PASSWORD, roles=roles)
