"""A scheduler that fires at once, for tests."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from services.scheduler.deliver import Due
from services.scheduler.fire import Fire
from shared.clock.rules.occurrences import SHARDS
from shared.clock.settlement import Attempt, Settlement
from shared.clock.store_occurrences import Visible, fresh_token
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import AHEAD, HOUR

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Firing:
    """A scheduler that fires whatever is claimable, at once, and notes the dues of each message."""

    def __init__(self, store: Store) -> None:
        self.fired: list[tuple[str, datetime]] = []
        self._store = store
        self._time = DatabaseTime(store)
        settlement = Settlement(store, tick=SECOND)
        self._fire = Fire(
            store, self._time, cast("Any", self), settlement, {}, tick=SECOND, misfire_after=MINUTE, work_seconds=30
        )

    async def deliver(self, due: Sequence[Due], now: datetime) -> tuple[list[Attempt], list[object]]:
        await asyncio.sleep(0)
        self.fired += [(occurrence.message_id, occurrence.due) for occurrence, _ in due]
        return [Attempt(occurrence, schedule, now) for occurrence, schedule in due], []

    async def run_once(self, until: datetime) -> None:
        await self._time.now()
        token, leased_until = fresh_token(), AHEAD + 10_000 * HOUR
        for shard in range(SHARDS):
            await self._store.occurrences.claim(shard, token, Visible(until), leased_until=leased_until)
        claimed = await self._store.occurrences.read(token, limit=100)
        if claimed:
            await self._fire.fire(claimed, trusted_until=asyncio.get_running_loop().time() + 30)
