"""What a later version stores is read: fields that this version does not know are ignored."""

from datetime import UTC, datetime

import pytest

from shared.audience.rules.audiences import KeyRange
from shared.clock.rules.occurrences import once
from shared.jobs.rules.batches import Batch
from shared.store import Store
from tests.clock.store.test_schedules import made
from tests.jobs.made import a_job
from tests.jobs.store.test_templates import template

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
FIELD = "of_a_later_version"


async def test_fields_that_nobody_knows_are_ignored(store: Store) -> None:
    job, batch, schedule = a_job(), Batch(job_id="j", ordinal=0, range=KeyRange(0, 9), size=9), made("a")
    occurrence = once("schedule/ns/a", "g1", NOON, accepted_at=NOON)
    await store.jobs.add(job)
    await store.batches.add_page([batch])
    await store.schedules.add([schedule])
    await store.occurrences.add([occurrence])
    await store.templates.add(template(1))
    for name in ("jobs", "batches", "schedules", "occurrences", "templates"):
        changed = await store._database[name].update_many({}, {"$set": {FIELD: {"any": 1}}})
        assert changed.modified_count == 1
    for path in ("plan", "receipt"):
        await store._database["jobs" if path == "plan" else "batches"].update_many({}, {"$set": {f"{path}.{FIELD}": 1}})

    assert await store.jobs.get(job.key) == job
    assert await store.batches.get("j", 0) == batch
    assert await store.schedules.get("ns/a") == schedule
    assert await store.occurrences.find_upcoming("schedule/ns/a", 1) == [occurrence]
    assert await store.templates.get("001") == template(1)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
async def test_occurrences_of_an_unknown_kind_are_left_to_their_lease(store: Store, limit: int) -> None:
    """However many of them stand between those that are known."""
    mixed = sorted((once("schedule/ns/a", str(n), NOON, accepted_at=NOON) for n in range(6)), key=lambda each: each.id)
    await store.occurrences.add(mixed)
    await store._database["occurrences"].update_many({}, {"$set": {"token": "t"}})
    for other in (mixed[0], mixed[2], mixed[3], mixed[5]):
        await store._database["occurrences"].update_one({"_id": other.id}, {"$set": {"kind": "of a later version"}})
    known = [mixed[1].id, mixed[4].id]
    assert [each.id for each in await store.occurrences.read("t", limit=limit)] == known[:limit]
    assert [each.id for each in await store.occurrences.read("t", after=known[0], limit=limit)] == known[1:]
