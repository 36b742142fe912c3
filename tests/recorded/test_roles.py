"""Each route answers each caller with the status that was recorded."""

from pathlib import Path

from tests.ready_databases import ReadyDatabases
from tests.recorded.recorder import Recording, check
from tests.recorded.roles import CALLERS, as_table, record_roles
from tests.recorded.world import open_world
from tests.stack import Endpoints


async def test_roles(stack: Endpoints, ready_databases: ReadyDatabases, tmp_path: Path) -> None:
    recording = Recording()
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path, zones=False) as world:
            await record_roles(world, recording, CALLERS)
    check(as_table(recording), "roles")
