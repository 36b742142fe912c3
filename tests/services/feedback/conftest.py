"""The log on either stream."""

import pytest

from shared.drivers.kafka import Stream


@pytest.fixture
def stream(either_stream: Stream) -> Stream:
    return either_stream
