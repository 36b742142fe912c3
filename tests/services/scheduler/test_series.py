"""Work that goes on is no work that is done."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from services.scheduler.fire import Fire
from shared.clock.rules.occurrences import Occurrence, once, series
from shared.clock.settlement import Settlement
from shared.clock.store_occurrences import Visible
from shared.store import Store
from shared.time import DatabaseTime

pytestmark = pytest.mark.native

SECOND = timedelta(seconds=1)


class Nobody:
    """Delivers nothing: no schedule is due."""

    async def deliver(self, due: list[object], _: object) -> tuple[list[object], list[object]]:
        assert due == []
        return [], []


async def test_a_series_that_is_worked_on_is_not_deleted(store: Store) -> None:
    """Its handler gives it to somebody, who moves it. Were it deleted, nobody would ever look at its queue again."""
    time, began = DatabaseTime(store), list[str]()
    now = await time.now()
    both = [make("kind/a", "g", now, accepted_at=now) for make in (once, series)]
    await store.occurrences.add(both)
    for shard in {each.shard for each in both}:
        await store.occurrences.claim(shard, "ours", Visible(now), leased_until=now + 60 * SECOND)
    claimed = await store.occurrences.read("ours", limit=10)

    async def begin(occurrence: Occurrence) -> None:
        began.append(occurrence.id)

    settlement, nobody = Settlement(store, tick=SECOND), cast("Any", Nobody())
    fire = Fire(store, time, nobody, settlement, {"kind": begin}, tick=SECOND, misfire_after=SECOND, work_seconds=30)
    await fire.fire(claimed, trusted_until=asyncio.get_running_loop().time() + 30)
    assert sorted(began) == sorted(each.id for each in both)
    assert [each.id for each in await store.occurrences.find_upcoming("kind/a", 10)] == [both[1].id]
