"""Every exchange with the API is as it was recorded."""

from pathlib import Path

import pytest

from tests.ready_databases import ReadyDatabases
from tests.recorded.exchanges import SUBJECTS, Teller, sweep
from tests.recorded.recorder import Recording, check
from tests.recorded.world import open_world
from tests.stack import Endpoints

pytestmark = pytest.mark.recorded


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_exchanges(stack: Endpoints, ready_databases: ReadyDatabases, tmp_path: Path, subject: str) -> None:
    recording = Recording()
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path) as world:
            tenant = await world.tenant()
            await sweep(Teller(world, recording, f"api/{subject}"), tenant, subject)
    check(recording.texts(world.names), f"api/{subject}")
