"""Retention of the bus: data that is too old, too much or without an owner is removed in steps.

removed subscription ──an hour──> its chunks, deliveries and cursor, then itself
settled delivery ──`delivery_days`, or `deliveries_kept` later ones──> removed
dead letter, replay ──`dead_letter_days`──> removed
former choice ──fan-outs have read the log up to its end──> removed
removed topic ──the log has dropped its events──> removed
mail of a notice ──a day──> removed
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from shared.domain.bus.notice_mails import OLDEST_MAIL
from shared.domain.bus.subscriptions import EventSubscription
from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.runtime.settings import BusSettings
from shared.store import Store

_LATE = timedelta(hours=1)
_SOME = _PAGE = 500
_FORMER = 1_000
_LOG_DAYS_MORE = 1  # the log forgets by whole segments
# Enough for thousands of deliveries a second between two rounds, a minute apart; a longer round delays the next one.
_STEPS = 1_000
_TURNS = 250
_QUEUES = 20
_BIG = 20  # chunks and deliveries may have a megabyte


class BusRetention:
    """Removes old data of the bus, as much as fits in a round. `settings` gives the ages."""

    def __init__(self, store: Store, time: DatabaseTime, settings: BusSettings) -> None:
        self._store = store
        self._time = time
        self._deliveries_for = timedelta(days=settings.delivery_days)
        self._deliveries_kept = settings.deliveries_kept
        self._log_for = timedelta(days=settings.log_days + _LOG_DAYS_MORE)
        self._letters_for = timedelta(days=settings.dead_letter_days)

    async def run_once(self) -> Swept:
        now, deliveries = await self._time.now(), self._store.bus_deliveries
        settled, died = now - self._deliveries_for, now - self._letters_for
        forget_old = partial(deliveries.forget_settled, settled, _SOME)
        forgotten = await repeat(forget_old, while_full=_SOME, most=_STEPS)
        forgotten += await repeat(lambda: self._store.bus_dead_letters.forget(died, _SOME), while_full=_SOME)
        mailed, notices = now - OLDEST_MAIL - _LATE, self._store.bus_notices
        forgotten += await repeat(lambda: notices.forget_mails(mailed, _SOME), while_full=_SOME)
        replays = self._store.bus_replays
        forgotten += await repeat(lambda: replays.forget(died, _SOME), while_full=_SOME)
        forgotten += await self._forget_surplus()
        for queue in await self._store.bus_gone_queues.find(now - _LATE, _QUEUES):
            forgotten += await repeat(partial(self._store.bus_gone_queues.sweep, queue, _BIG), while_full=1)
        forgotten += len(await self._store.bus_subscriptions.forget_removed(now - _LATE, _SOME, now=now))
        forgotten += await self._forget_former() + await self._store.bus_topics.forget_gone(now - self._log_for, _SOME)
        return Swept(discarded=forgotten)

    async def _forget_former(self) -> int:
        """Remove former choices once fan-outs have read all that the log had at their end. An open replay may still
        read them."""
        forgotten, after = 0, ""
        while found := await self._store.bus_subscriptions.find_with_former(_FORMER, after=after):
            forgotten += await self._forget_read(found)
            after = found[-1].id
        return forgotten

    async def _forget_read(self, found: Sequence[EventSubscription]) -> int:
        every = {former.ends.id: former.ends for each in found for former in each.former}
        names = {name for ends in every.values() for name, _ in ends.offsets}
        stored = await self._store.bus_flushes.read_positions(sorted(names))
        positions = {name: at.position for name, at in stored.items()}
        read = [id for id, ends in every.items() if ends.are_read(positions)]
        replayed = await self._store.bus_replays.find_open([each.queue for each in found])
        ids = [each.id for each in found if each.queue not in replayed] if read else []
        return await self._store.bus_subscriptions.forget_former(ids, read, now=await self._time.now()) if ids else 0

    async def _forget_surplus(self) -> int:
        """Remove settled deliveries beyond `deliveries_kept`: some of each queue, then again of queues that have
        more."""
        surplus, forgotten = await self._find_surplus(), 0
        for _ in range(_TURNS):
            counts = [await self._store.bus_deliveries.forget_below(queue, old, _SOME) for queue, old in surplus]
            surplus = [one for one, count in zip(surplus, counts, strict=True) if count == _SOME]
            forgotten += sum(counts)
        return forgotten

    async def _find_surplus(self) -> list[tuple[str, int]]:
        """Queues with more deliveries than are kept, each with the last sequence to remove."""
        after, found = "", list[tuple[str, int]]()
        while cursors := await self._store.bus_cursors.page_beyond(self._deliveries_kept, after=after, limit=_PAGE):
            found += [(cursor.id, cursor.sequence - self._deliveries_kept) for cursor in cursors]
            after = cursors[-1].id
        return found
