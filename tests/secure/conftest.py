"""Carillon over TLS with a login at each server, with the rights that `docs/security.md` lists and no more."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pymongo
import pytest

from tests.conftest import _manage
from tests.e2e.house import House, house_on
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


@pytest.fixture(scope="session")
def secure(stack: Endpoints) -> Iterator[Secure]:
    """The servers, with the users of the page."""
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


@pytest.fixture
async def house(secure: Secure, tmp_path: Path) -> AsyncIterator[House]:
    """What the test itself prepares and looks at, it does as an admin; processes that start with `secure.urls` have the
    page's rights alone."""
    common: dict[str, Any] = {
        "CARILLON_API_PORT": "0",
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_WORKER_BATCH_SIZE": "1000",
        "CARILLON_WORKER_MAX_BATCH_FAILURE": "1",
        "CARILLON_SCHEDULER_UPKEEP_SECONDS": "0.5",
        "CARILLON_SCHEDULER_STALE_SECONDS": "2",
        "CARILLON_SCHEDULER_MARGIN_SECONDS": "1",
        # Connections with TLS take long on a busy machine, and a commit that takes longer than this is recovered.
        "CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "30",
        "CARILLON_STREAM_REQUEST_TIMEOUT_SECONDS": "10",
        "CARILLON_FEEDBACK_GROUP": f"carillon-{secrets.token_hex(4)}",
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    async with house_on({**common, **secure.admin_urls()}, tmp_path, secure.push_database) as house:
        yield house
