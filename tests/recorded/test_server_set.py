"""No route takes a field that the server sets."""

from pathlib import Path

import pytest

from tests.ready_databases import ReadyDatabases
from tests.recorded.recorder import check
from tests.recorded.server_set import record_server_set
from tests.recorded.world import open_world
from tests.stack import Endpoints

pytestmark = pytest.mark.recorded


async def test_fields_of_the_server_are_refused_or_ignored(
    stack: Endpoints, ready_databases: ReadyDatabases, tmp_path: Path
) -> None:
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path, zones=False) as world:
            told = await record_server_set(world, await world.tenant())
    assert "TAKEN" not in "".join(told.values()), told
    check(told, "server-set")
