"""A release that a later one has shut out of the database does not work there."""

import pytest

from shared.domain.documents import VERSION
from tests.e2e.house import House

pytestmark = [pytest.mark.upgrade, pytest.mark.native]


async def test_a_process_that_is_too_old_does_not_start(house: House) -> None:
    meta = house.servers.store._database["meta"]
    await meta.update_one({"_id": "schema"}, {"$set": {"oldest": VERSION + 1}})
    for service in ("init", "api", "worker", "scheduler", "feedback", "fanout"):
        process = await house.spawn(service)
        assert await process.gone() == 1
        assert "run a newer release" in process.log
        assert '"ready"' not in process.log
