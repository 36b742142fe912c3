"""All names that others rely upon are as they were recorded."""

from pathlib import Path

import pytest

from tests.ready_databases import ReadyDatabases
from tests.recorded.names import record_names
from tests.recorded.recorder import check
from tests.recorded.world import open_world
from tests.stack import Endpoints

pytestmark = pytest.mark.recorded


async def test_names(stack: Endpoints, ready_databases: ReadyDatabases, tmp_path: Path) -> None:
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path) as world:
            check(await record_names(world), "names")
