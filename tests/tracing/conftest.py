"""A house whose processes send their spans to a collector of the test."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.conftest import house
from tests.tracing.collector import Collector, collect

__all__ = ["house"]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collect() as collector:
        yield collector
