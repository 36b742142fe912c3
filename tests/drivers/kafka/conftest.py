"""Streams to test: every test of the contract runs on each of them."""

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.runtime.server_settings import StreamSettings
from tests.models.push.stream import ModelStream
from tests.models.push.transactions import Kafka
from tests.waiting import until

OpenStream = Callable[[], Stream]


@pytest.fixture(params=["kafka", "local", "model"])
def open_stream(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStream:
    """Opens the same stream as often as it is called, as so many processes would."""
    if request.param == "local":
        return lambda: LocalStream(tmp_path / "stream.db")
    if request.param == "model":
        server = Kafka()
        return lambda: ModelStream(server)
    servers = request.getfixturevalue("stack").kafka_servers
    return lambda: KafkaStream(KafkaServers(servers), StreamSettings(compression="zstd", request_timeout_seconds=30))


@pytest.fixture
async def stream(open_stream: OpenStream) -> AsyncIterator[Stream]:
    """One open stream with its ledger made."""
    opened = open_stream()
    await opened.setup({})
    yield opened
    await opened.close()


@pytest.fixture
async def topic(stream: Stream) -> str:
    """A topic of the test's own."""
    name = f"push-t{secrets.token_hex(4)}_apns-massive"
    await stream.setup({name: 4})
    await until(lambda: stream.spans(name), "the new topic")  # a broker promises a topic before it knows it
    return name
