"""A cluster of which a part is frozen or too old."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from msgspec.structs import replace

from shared.domain.errors import Unavailable
from shared.stream.kafka.cluster import Cluster, closed
from shared.stream.kafka.ledger import Ledger
from tests.stream.test_contract import a_batch


class Frozen:
    """A server that takes connections and never says anything."""

    def __init__(self) -> None:
        self.servers = ""
        self.opened = 0
        self.left = asyncio.Event()
        self.open: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open.add(writer)
        while await reader.read(65_536):
            pass
        self.open.discard(writer)
        writer.close()
        self.left.set()


@pytest.fixture
async def frozen() -> AsyncIterator[Frozen]:
    state = Frozen()
    server = await asyncio.start_server(state.accept, "127.0.0.1", 0)
    state.servers = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield state
    for writer in state.open:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


def a_cluster(servers: str, *, timeout_seconds: float = 0.3) -> Cluster:
    return Cluster(
        servers, client_id="test", ledger=("ledger", 64), replication_factor=1, timeout_seconds=timeout_seconds
    )


def _ping(servers: str) -> Any:
    return a_cluster(servers).ping()


def _setup(servers: str) -> Any:
    return a_cluster(servers).setup({"topic": 1})


def _receipt(servers: str) -> Any:
    ledger = Ledger(servers, client_id="test", topic="ledger", timeout_seconds=0.3)
    return ledger.part(replace(a_batch(), owner="somebody"))


@pytest.mark.alone
@pytest.mark.parametrize("call", [_ping, _setup, _receipt])
async def test_a_connection_that_nobody_answers_is_closed(frozen: Frozen, call: Callable[[str], Any]) -> None:
    with pytest.raises(Unavailable) as raised:
        await call(frozen.servers)
    # The error is still held, and with it the frames that hold the driver's connection.
    assert raised.value is not None
    async with asyncio.timeout(2):
        await frozen.left.wait()
    assert (frozen.opened, len(frozen.open)) == (1, 0)


@pytest.mark.alone
async def test_a_client_that_does_not_close_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.stream.kafka.cluster.STOP_SECONDS", 0.05)
    gone = asyncio.Event()

    class Hanging(AIOKafkaClient):  # type: ignore[misc]  # the driver is untyped
        async def close(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()

    async with asyncio.timeout(2):
        await closed(Hanging(bootstrap_servers="127.0.0.1:1"))
    assert gone.is_set()


class OneIsOld(AIOKafkaClient):  # type: ignore[misc]  # the driver is untyped
    """The driver's client, in a cluster of three brokers of which one is older than 4.0."""

    old = 2

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[int] = []
        brokers = [(node, "127.0.0.1", node, None) for node in range(3)]
        topics: list[Any] = [(0, "ledger", False, [(0, partition, 0, [], []) for partition in range(64)])]
        self.cluster.update_metadata(SimpleNamespace(API_VERSION=1, brokers=brokers, controller_id=0, topics=topics))

    async def bootstrap(self) -> None:
        pass

    async def fetch_all_metadata(self) -> Any:
        return self.cluster

    def force_metadata_update(self) -> Any:
        return asyncio.sleep(0, True)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        self.asked.append(node_id)
        return SimpleNamespace(api_versions=[(26, 0, 4 if node_id == self.old else 5)])


async def test_every_broker_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.stream.kafka.cluster.AIOKafkaClient", OneIsOld)
    for _ in range(8):
        cluster = a_cluster("127.0.0.1:1")
        with pytest.raises(Unavailable, match=r"broker 2 .* older than 4\.0"):
            await cluster.verify()
    monkeypatch.setattr(OneIsOld, "old", None)
    await a_cluster("127.0.0.1:1").verify()
