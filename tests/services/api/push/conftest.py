"""A push database whose devices differ, and the API over it."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio

from shared.drivers.postgres import Audience
from shared.runtime.server_settings import Section
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House, _execute
from tests.services.api.http.test_service import rebuilt
from tests.stack import Endpoints


def over(house: House, audience: Any, *sections: Section, **servers: Any) -> Client:
    return Client(rebuilt(house, *sections, audience=audience, **servers), {"x-forwarded-email": ADMIN})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowd_url(stack: Endpoints) -> AsyncIterator[str]:
    """A push database that no test of the module changes."""
    name = f"crowd_{secrets.token_hex(6)}"
    await _execute(stack.postgres_url, f'CREATE DATABASE "{name}"')
    yield f"{stack.postgres_url.rpartition('/')[0]}/{name}"
    await _execute(stack.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowd(crowd_url: str) -> AsyncIterator[Audience]:
    """1,200 devices of 600 users, of whom a quarter each have another zone and locale."""
    async with _crowd(crowd_url) as audience:
        yield audience


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowded(house: House, crowd: Audience) -> Client:
    """An API over it."""
    return over(house, crowd)


@pytest_asyncio.fixture(loop_scope="module")
async def own_crowd(push_database: str) -> AsyncIterator[Audience]:
    """The same in the test's `push_database`."""
    async with _crowd(push_database) as audience:
        yield audience


@asynccontextmanager
async def _crowd(url: str) -> AsyncIterator[Audience]:
    await _execute(
        url,
        """
        CREATE TABLE game_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint PRIMARY KEY);
        INSERT INTO game_apns SELECT 'user-' || i / 2, 'secret-' || i, (ARRAY['en', 'PT', 'fr', NULL])[1 + i % 4], 'US',
            (ARRAY['+0000', '-0000', '+0545', NULL])[1 + i % 4], i FROM generate_series(0, 1199) i""",
    )
    audience = Audience.open(url, pool_size=2, statement_timeout_seconds=10)
    yield audience
    await audience.close()
