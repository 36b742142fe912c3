"""A client that may call 127.0.0.1 alone, and a server there that takes notes."""

from collections.abc import AsyncIterator

import pytest

from shared.drivers.http.client import HttpOutgoing
from tests.drivers.http.receiver import Receiver, calling, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as started:
        yield started


@pytest.fixture
async def outgoing() -> AsyncIterator[HttpOutgoing]:
    async with calling() as opened:
        yield opened
