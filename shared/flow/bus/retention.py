"""Retention of the bus: what is too old, too much, or belongs to nobody any more is forgotten, some of it a round.

removed subscription ──an hour──> its chunks, deliveries and cursor go, and what is left of itself
settled delivery     ──some days, or so many later ones──> goes
dead letter, replay  ──some days──> goes
mail of a notice     ──a day──> goes
"""

from datetime import timedelta
from functools import partial

from shared.domain.bus.notice_mails import OLDEST_MAIL
from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.runtime.settings import BusSettings
from shared.store import Store

_LATE = timedelta(hours=1)
_SOME = _PAGE = 500
# Enough for thousands of deliveries a second between two rounds, a minute apart; a round that takes longer than that
# puts the next one off.
_STEPS = 1_000
_TURNS = 250
_QUEUES = 20
_BIG = 20  # chunks and deliveries may have a megabyte


class BusRetention:
    """Forgets what is old, as far as one round goes. `settings` says after how long."""

    def __init__(self, store: Store, time: DatabaseTime, settings: BusSettings) -> None:
        self._store = store
        self._time = time
        self._deliveries_for = timedelta(days=settings.delivery_days)
        self._deliveries_kept = settings.deliveries_kept
        self._letters_for = timedelta(days=settings.dead_letter_days)

    async def run_once(self) -> Swept:
        """Forget what is old. Raises `Unavailable`."""
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
        return Swept(discarded=forgotten)

    async def _forget_surplus(self) -> int:
        """Forget settled deliveries that so many later ones follow: some of each queue, then again of those that have
        more."""
        surplus, forgotten = await self._find_surplus(), 0
        for _ in range(_TURNS):
            counts = [await self._store.bus_deliveries.forget_below(queue, old, _SOME) for queue, old in surplus]
            surplus = [one for one, count in zip(surplus, counts, strict=True) if count == _SOME]
            forgotten += sum(counts)
        return forgotten

    async def _find_surplus(self) -> list[tuple[str, int]]:
        """The queues that have had more than are kept, and up to which sequence these go."""
        after, found = "", list[tuple[str, int]]()
        while cursors := await self._store.bus_cursors.page_beyond(self._deliveries_kept, after=after, limit=_PAGE):
            found += [(cursor.id, cursor.sequence - self._deliveries_kept) for cursor in cursors]
            after = cursors[-1].id
        return found
