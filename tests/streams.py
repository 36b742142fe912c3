"""A stream for tests that both kinds have to pass."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from tests.tiers import and_rarely


@pytest.fixture(params=and_rarely("kafka", rarely=["local"]))
async def either_stream(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stream]:
    """Kafka, and outside the gate also a local log: in the gate, the contract of all streams tests that one."""
    servers = request.getfixturevalue("stack").kafka_servers if request.param == "kafka" else ""
    opened = KafkaStream(KafkaServers(servers)) if servers else LocalStream(tmp_path / "stream.db")
    yield opened
    await opened.close()
