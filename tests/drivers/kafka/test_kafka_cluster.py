"""A cluster of which a part is frozen or too old."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest
from msgspec.structs import replace
from structlog.testing import capture_logs

from shared.core.errors import Unavailable
from shared.drivers.kafka import TopicSpec
from shared.drivers.kafka.cluster import Cluster, close, topic_configs
from shared.drivers.kafka.ledger import Ledger
from shared.drivers.kafka.servers import KafkaServers
from shared.runtime.server_settings import StreamSettings
from tests.drivers.kafka.test_contract import a_batch


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


def a_cluster(servers: str, *, timeout_seconds: float = 30.0) -> Cluster:
    settings = StreamSettings(ledger_topic="ledger", request_timeout_seconds=timeout_seconds)
    return Cluster(KafkaServers(servers), settings, client_id="test", push_topics="push-.+")


def _ping(servers: str) -> Any:
    return a_cluster(servers, timeout_seconds=1.0).ping()


def _setup(servers: str) -> Any:
    return a_cluster(servers, timeout_seconds=1.0).setup({"topic": TopicSpec(1)})


def _receipt(servers: str) -> Any:
    ledger = Ledger(
        KafkaServers(servers), StreamSettings(ledger_topic="ledger", request_timeout_seconds=1.0), client_id="test"
    )
    return ledger.part(replace(a_batch(), owner="somebody"))


@pytest.mark.parametrize("call", [_ping, _setup, _receipt])
async def test_a_connection_that_nobody_answers_is_closed(frozen: Frozen, call: Callable[[str], Any]) -> None:
    with pytest.raises(Unavailable) as raised:
        await call(frozen.servers)
    # The error is still held, and with it the frames that hold the driver's connection.
    assert raised.value is not None
    async with asyncio.timeout(30):
        await frozen.left.wait()
    assert (frozen.opened, len(frozen.open)) == (1, 0)


async def test_a_client_that_does_not_close_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.drivers.kafka.cluster.STOP_SECONDS", 0.05)
    gone = asyncio.Event()

    class Hanging(AIOKafkaClient):  # type: ignore[misc]  # the driver is untyped
        async def close(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()

    async with asyncio.timeout(30):
        await close(Hanging(bootstrap_servers="127.0.0.1:1"))
    assert gone.is_set()


COPIES = [0, 1, 2]


class ThreeBrokers(AIOKafkaClient):  # type: ignore[misc]  # the driver is untyped
    """The driver's client, in a cluster of three brokers with three copies of everything."""

    old: int | None = None
    minutes: ClassVar[dict[int, str]] = {}
    min_insync: ClassVar[dict[str, str]] = {}
    forbidden = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        brokers = [(node, "127.0.0.1", node, None) for node in range(3)]
        self.topics: list[Any] = [
            (0, "ledger", False, [(0, partition, 0, COPIES, COPIES) for partition in range(64)]),
            (0, "push-game_apns", False, [(0, 0, 0, COPIES, COPIES)]),
            (0, "push-lone_apns", False, [(0, 0, 0, [0], [0])]),
            (0, "__consumer_offsets", True, [(0, 0, 0, COPIES, COPIES)]),
        ]
        topics = [topic for topic in self.topics if not topic[2]]
        self.cluster.update_metadata(SimpleNamespace(API_VERSION=1, brokers=brokers, controller_id=0, topics=topics))

    async def bootstrap(self) -> None:
        pass

    async def fetch_all_metadata(self) -> Any:
        return self.cluster

    def force_metadata_update(self) -> Any:
        return asyncio.sleep(0, True)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        match request:
            case MetadataRequest():
                missing = {*request._topics} - {topic[1] for topic in self.topics}
                found = [topic for topic in self.topics if topic[1] in request._topics]
                return SimpleNamespace(topics=[*found, *((3, name, False, []) for name in missing)])
            case DescribeConfigsRequest():
                return SimpleNamespace(resources=[self.described(*resource) for resource in request._resources])
            case _:
                return SimpleNamespace(api_versions=[(26, 0, 4 if node_id == self.old else 5)])

    def described(self, kind: int, name: str, keys: list[str]) -> Any:
        if self.forbidden:
            return (self.forbidden, "not authorized", kind, name, [])
        value = self.minutes.get(int(name), "10080") if kind == 4 else self.min_insync.get(name, "2")
        return (0, None, kind, name, [(key, value, False, 5, False, []) for key in keys])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> type[ThreeBrokers]:
    class Brokers(ThreeBrokers):
        minutes: ClassVar[dict[int, str]] = {}
        min_insync: ClassVar[dict[str, str]] = {}

    monkeypatch.setattr("shared.drivers.kafka.cluster.AIOKafkaClient", Brokers)
    return Brokers


async def test_every_broker_is_asked_for_its_version(brokers: type[ThreeBrokers]) -> None:
    brokers.old = 2
    for _ in range(8):
        with pytest.raises(Unavailable, match=r"broker 2 .* older than 4\.0"):
            await a_cluster("127.0.0.1:1").verify({})
    brokers.old = None
    with capture_logs() as logs:
        await a_cluster("127.0.0.1:1").verify({})
    assert logs == []


async def test_a_broker_that_forgets_markers_too_early_is_not_used(brokers: type[ThreeBrokers]) -> None:
    brokers.minutes[1] = "10079"
    with pytest.raises(Unavailable, match="broker 1 keeps markers for 10079 minutes") as raised:
        await a_cluster("127.0.0.1:1").verify({})
    assert "stream.marker_retention_days says 7 days" in str(raised.value)


async def test_topics_that_can_lose_what_they_acknowledged_are_logged(brokers: type[ThreeBrokers]) -> None:
    brokers.min_insync |= {"push-game_apns": "1", "push-lone_apns": "1", "__consumer_offsets": "1"}
    with capture_logs() as logs:
        await a_cluster("127.0.0.1:1").verify({})
    warned = {entry["topic"]: (entry["log_level"], entry["copies"], entry["set"]) for entry in logs}
    expected = ("warning", 3, "min.insync.replicas=2")
    assert warned == {"push-game_apns": expected, "__consumer_offsets": expected}


@pytest.mark.parametrize("code", [29, 31], ids=["topics", "cluster"])
async def test_a_cluster_that_does_not_tell_its_configuration_is_used(brokers: type[ThreeBrokers], code: int) -> None:
    brokers.forbidden, brokers.minutes[1] = code, "1"
    with capture_logs() as logs:
        await a_cluster("127.0.0.1:1").verify({})
    assert {entry["of"] for entry in logs} == {
        "0",
        "1",
        "2",
        "ledger",
        "push-game_apns",
        "push-lone_apns",
        "__consumer_offsets",
    }
    assert {entry["log_level"] for entry in logs} == {"warning"}


@pytest.mark.parametrize(("copies", "configs"), [(1, {}), (2, {}), (3, {"min.insync.replicas": "2"})])
def test_a_topic_with_three_copies_is_written_to_two(copies: int, configs: dict[str, str]) -> None:
    assert topic_configs(copies, TopicSpec(4)) == configs


def test_a_topic_that_keeps_its_records_for_a_time_forgets_them_by_nothing_else() -> None:
    kept = {
        "retention.ms": "3600000", "retention.bytes": "-1", "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
    }  # fmt: skip
    assert topic_configs(1, TopicSpec(4, timedelta(hours=1))) == kept
    assert topic_configs(3, TopicSpec(4, timedelta(hours=1))) == kept | {"min.insync.replicas": "2"}
