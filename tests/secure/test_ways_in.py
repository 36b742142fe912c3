"""Each way in at Kafka and RabbitMQ, and what is said to who may not come in."""

import base64
import gc
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carillon_imports.marathon.source import open_source
from shared.core.errors import Invalid, Unavailable
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.drivers.postgres import Audience
from shared.drivers.rabbitmq.broker import RabbitBroker
from shared.runtime.server_settings import NO_FILES, TlsSettings
from tests.conftest import _manage
from tests.secure import rights
from tests.secure.place import OLDER_LOGIN, Secure
from tests.stack import Endpoints, certificates
from tests.stack.kafka import PLAIN_PASSWORD, PLAIN_USER

# Drivers leave a socket to the collector now and then, when they are refused in the middle of a handshake.
pytestmark = [pytest.mark.secure, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture(autouse=True)
def collect_sockets() -> Iterator[None]:
    """What a test leaves, it collects itself: no other test is to be blamed for it."""
    yield
    gc.collect()


def trusting() -> TlsSettings:
    return TlsSettings(ca_file=str(certificates.ensure().ca))


def identified() -> TlsSettings:
    files = certificates.ensure()
    return TlsSettings(ca_file=str(files.ca), certificate_file=str(files.client))


@asynccontextmanager
async def kafka(url: str, tls: TlsSettings) -> AsyncIterator[KafkaStream]:
    stream = KafkaStream(KafkaServers.read(url, tls))
    try:
        yield stream
    finally:
        await stream.close()


def by_scram(stack: Endpoints, _: Path) -> str:
    return f"kafka+ssl://{rights_login()}@{stack.kafka_tls_servers}?mechanism=scram-sha-512"


def by_scram_without_tls(stack: Endpoints, _: Path) -> str:
    return f"kafka://{rights_login()}@{stack.kafka_login_servers}?mechanism=scram-sha-512"


def by_shorter_scram(stack: Endpoints, _: Path) -> str:
    return f"kafka+ssl://{OLDER_LOGIN}@{stack.kafka_tls_servers}?mechanism=scram-sha-256"


def by_plain(stack: Endpoints, _: Path) -> str:
    return f"kafka+ssl://{PLAIN_USER}:{PLAIN_PASSWORD}@{stack.kafka_tls_servers}?mechanism=plain"


def by_token(stack: Endpoints, folder: Path) -> str:
    """The broker of the tests believes a token without a signature."""
    claims = {"sub": "carillon", "iat": int(time.time()), "exp": int(time.time()) + 600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    (folder / "token").write_bytes(b".".join([*parts, b""]) + b"\n")
    return f"kafka+ssl://{stack.kafka_tls_servers}?mechanism=oauthbearer&token_file={folder / 'token'}"


def rights_login() -> str:
    return f"carillon:{rights.PASSWORD}"


Way = Callable[[Endpoints, Path], str]


@pytest.mark.parametrize("way", [by_scram, by_scram_without_tls, by_shorter_scram, by_plain, by_token])
async def test_kafka_lets_in(way: Way, secure: Secure, tmp_path: Path) -> None:
    async with kafka(way(secure.stack, tmp_path), trusting()) as stream:
        await stream.ping()


async def test_kafka_lets_in_who_shows_a_certificate_and_nobody_else(secure: Secure) -> None:
    async with kafka(f"kafka://{secure.stack.kafka_servers}", NO_FILES) as admin:
        await admin.setup({})
    url = f"kafka+ssl://{secure.stack.kafka_mutual_servers}"
    async with kafka(url, identified()) as stream:
        await stream.verify()  # as `carillon`, who has rights
    async with kafka(url, trusting()) as stream:
        with pytest.raises(Unavailable):
            await stream.ping()


async def test_a_wrong_password_is_told_as_that(secure: Secure) -> None:
    url = f"kafka+ssl://carillon:wrong@{secure.stack.kafka_tls_servers}"
    async with kafka(url, trusting()) as stream:
        with pytest.raises(Unavailable, match="Authentication failed") as refused:
            await stream.ping()
    assert "wrong" not in str(refused.value)


async def test_a_missing_token_is_told_as_that(secure: Secure, tmp_path: Path) -> None:
    url = f"kafka+ssl://{secure.stack.kafka_tls_servers}?mechanism=oauthbearer&token_file={tmp_path / 'none'}"
    async with kafka(url, trusting()) as stream:
        with pytest.raises(Unavailable, match="no token in"):
            await stream.ping()


async def test_rabbitmq_lets_in_who_shows_a_certificate(secure: Secure) -> None:
    url = f"amqps://{secure.stack.rabbit_tls_address}/carillon?auth=external"
    broker = RabbitBroker(
        url, management_url=None, connection_name="carillon", publish_timeout_seconds=5, tls=identified()
    )
    queue = f"users.{secrets.token_hex(4)}"
    with pytest.raises(Unavailable, match="no such queue"):  # so we are in
        await broker.publish(queue, b"{}")
    await broker.close()


async def test_postgresql_lets_in_who_shows_a_certificate(secure: Secure) -> None:
    url = f"postgresql://carillon@{secure.postgres}/bycertificate?sslmode=verify-full"
    for tls, answer in ((identified(), Invalid), (trusting(), Unavailable)):
        audience = Audience.open(url, pool_size=1, statement_timeout_seconds=5, tls=tls)
        with pytest.raises(answer):  # there is no such table, so we are in
            await audience.highest("push")
        await audience.close()


async def test_what_is_imported_comes_over_tls(secure: Secure) -> None:
    url = f"postgresql://carillon@{secure.postgres}/bycertificate?sslmode=verify-full"
    with pytest.raises(Invalid, match="no Marathon database"):  # so we are in
        async with open_source(url, identified()):
            pass
    with pytest.raises(Unavailable):
        async with open_source(url, NO_FILES):
            pass


async def test_no_rabbitmq_is_trusted_that_only_this_machine_does_not_know(secure: Secure) -> None:
    url = f"amqps://carillon:secret@{secure.stack.rabbit_tls_address}/carillon"
    broker = RabbitBroker(url, management_url=None, connection_name="carillon", publish_timeout_seconds=5, tls=NO_FILES)
    with pytest.raises(Unavailable, match="an authority that we do not know"):
        await broker.ping()
    await broker.close()
    assert b"carillon" in _manage(secure.stack, "GET", "users/carillon")
