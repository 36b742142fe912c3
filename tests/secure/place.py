"""Servers that ask for TLS and a login, with the users and rights that `docs/security.md` lists."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import msgspec
import pymongo

from tests.conftest import _manage
from tests.secure import rights, servers
from tests.stack import Endpoints, certificates, places
from tests.stack.kafka import run_tools
from tests.stack.server import run_apart

CALLBACK_TOPIC = "users.topic"
OLDER_LOGIN = "older:password"
"""A user of Kafka whose password is kept as SCRAM-SHA-256 wants it, and who has no rights."""
_OLDER = [
    "--alter",
    "--entity-type",
    "users",
    "--entity-name",
    "older",
    "--add-config",
    "SCRAM-SHA-256=[password=password]",
]
_LOGIN = f"carillon:{rights.PASSWORD}"


class Secure(msgspec.Struct, frozen=True):
    """Where the servers are, host and port each."""

    stack: Endpoints
    mongo: str
    postgres: str

    def urls(self) -> dict[str, str]:
        """The settings of Carillon's processes: every server by TLS and a login."""
        kafka = f"{self.stack.kafka_tls_servers}?mechanism=scram-sha-512"
        return {
            "CARILLON_STORE_URL": f"mongodb://{_LOGIN}@{self.mongo}/carillon?authSource=admin&tls=true",
            "CARILLON_BROKER_URL": f"amqps://{_LOGIN}@{self.stack.rabbit_tls_address}/carillon",
            "CARILLON_BROKER_MANAGEMENT_URL": f"https://{_LOGIN}@{self.stack.rabbit_management_tls_address}",
            "CARILLON_STREAM_URL": f"kafka+ssl://{_LOGIN}@{kafka}",
            "CARILLON_AUDIENCE_URL": f"postgresql://{_LOGIN}@{self.postgres}/push?sslmode=verify-full",
            "CARILLON_TLS_CA_FILE": str(certificates.ensure().ca),
        }

    def admin_urls(self) -> dict[str, str]:
        """The settings of whoever prepares the servers and looks at them."""
        root = f"{servers.ADMIN}:{rights.PASSWORD}"
        return self.stack.environment(
            f"mongodb://{root}@{self.mongo}/carillon?authSource=admin&tls=true",
            f"{self.stack.rabbit_url}carillon",
            self.push_database,
        ) | {"CARILLON_TLS_CA_FILE": str(certificates.ensure().ca)}

    @property
    def push_database(self) -> str:
        return f"postgresql://postgres@{self.postgres}/push"


@contextmanager
def open_secure(stack: Endpoints) -> Iterator[Secure]:
    """The servers beside this stack, with the users of the page."""
    with places.sole_starter():
        mongo, postgres = servers.ensure()
    found = Secure(stack, mongo, postgres)
    _forget_documents(found)
    run_tools(stack.kafka_servers, *rights.kafka(CALLBACK_TOPIC), ["kafka.admin.ConfigCommand", *_OLDER])
    for path, content in rights.rabbitmq():
        _manage(stack, "PUT", path, json.dumps(content).encode())
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    _manage(stack, "PUT", "permissions/carillon/guest", json.dumps(everything).encode())
    run_apart(_make_push_database(found))
    yield found
    _manage(stack, "DELETE", "vhosts/carillon")


def _forget_documents(secure: Secure) -> None:
    """Those of earlier sessions, on a stack that somebody keeps."""
    admin = secure.admin_urls()
    url, trust = admin["CARILLON_STORE_URL"], admin["CARILLON_TLS_CA_FILE"]
    with pymongo.MongoClient[dict[str, Any]](url, tlsCAFile=trust) as client:
        client.drop_database("carillon")


async def _make_push_database(secure: Secure) -> None:
    """An empty one, and its reader."""
    connection = await asyncpg.connect(f"postgresql://postgres@{secure.postgres}/postgres")
    await connection.execute("DROP DATABASE IF EXISTS push WITH (FORCE)")
    await connection.execute("DROP DATABASE IF EXISTS bycertificate WITH (FORCE)")
    await connection.execute("CREATE DATABASE push")
    await connection.execute("CREATE DATABASE bycertificate")
    await connection.close()
    connection = await asyncpg.connect(secure.push_database)
    await connection.execute("DROP ROLE IF EXISTS carillon")
    for statement in rights.postgresql(owner="postgres"):
        await connection.execute(statement)
    await connection.close()
