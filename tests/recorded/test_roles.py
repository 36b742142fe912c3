"""Each route answers each caller with the status that was recorded."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.ready_databases import ReadyDatabases
from tests.recorded.recorder import check
from tests.recorded.roles import CALLERS, as_tables, record_role
from tests.recorded.world import World, open_world
from tests.stack import Endpoints

pytestmark = [pytest.mark.recorded, pytest.mark.asyncio(loop_scope="module")]

Told = dict[str, dict[str, dict[str, str]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    stack: Endpoints, ready_databases: ReadyDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path_factory.mktemp("roles"), zones=False) as world:
            yield world


@pytest.fixture(scope="module")
def told() -> Told:
    """The answers to earlier callers."""
    return {}


@pytest.mark.parametrize("caller", CALLERS)
async def test_roles(world: World, told: Told, caller: str) -> None:
    """One caller at a time, as each takes a while; the last one compares the tables."""
    told[caller] = await record_role(world, caller)
    if caller == CALLERS[-1]:
        assert list(told) == list(CALLERS), "run all callers at once"
        check(as_tables(told), "roles")
