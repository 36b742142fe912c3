"""A post office, and the provider that it sends by."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from tests.providers.fakes import FakeProcess, fake_process
from tests.services.worker.messages.post import Post, post_office


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProcess]:
    async with fake_process("http_fake") as running:
        yield running


@pytest.fixture
def settings() -> Mapping[str, str]:
    """What a test parametrizes if its post office needs other settings."""
    return {}


@pytest_asyncio.fixture
async def post(
    mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess, settings: Mapping[str, str]
) -> AsyncIterator[Post]:
    async with post_office(mongo_database, push_database, tmp_path, fake, **settings) as opened:
        yield opened
