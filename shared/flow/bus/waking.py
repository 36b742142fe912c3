"""Waking: a queue is told what waits in it, and whoever finds it due sees that a worker looks at it.

A wake-up that is due is handed over in the store first, with a fresh token and a lease, and published then. If the
broker cannot be told, it comes due again soon; if nobody takes it, the lease ends, and the clock hands it over. One on
which three workers in a row have died rests for a while first, and longer after each further death.

The clock may see too late what comes due within its tick. So the process that has set such a moment holds a timer, and
hands the wake-up over then, if it still rests and is due, and the clock does not hold it. If the process dies, the
clock does it.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from shared.broker import Broker
from shared.domain.bus.tasks import DeliverQueue, DeliverSlowly
from shared.domain.bus.wake_ups import TakenWakeUp, Wake, merge_wakes, parting_pause
from shared.domain.clock.occurrences import Occurrence
from shared.domain.errors import Unavailable
from shared.domain.tasks import encode
from shared.flow.time import DatabaseTime
from shared.runtime.coalescer import Coalescer
from shared.runtime.metrics import BUS_WAKE_UPS_HANDED_AGAIN
from shared.store import Store
from shared.store.bus.wake_ups import WAKES_AT_ONCE, HandedWakeUp, wake_up_id
from shared.store.clock.occurrences import fresh_token

log = structlog.get_logger(__name__)

_SOON = timedelta(seconds=2)
_MOST_TIMERS, _NO_TIMERS = 10_000, timedelta.min
_TOGETHER_SECONDS = 0.02

Claimed = TypeVar("Claimed", Occurrence, TakenWakeUp)


class Waker:
    """Wakes queues. `handed_for` is how long what was handed over may wait for a worker, `tick` the time between two
    looks of the clock."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        time: DatabaseTime,
        *,
        handed_for: timedelta,
        tick: timedelta = _NO_TIMERS,
    ) -> None:
        self._store = store
        self._broker = broker
        self._time = time
        self._handed_for = handed_for
        self._tick = tick
        self._timers = dict[str, asyncio.TimerHandle]()
        self._hand_over_due = Coalescer(self._hand_over_all_due, most=WAKES_AT_ONCE, linger_seconds=_TOGETHER_SECONDS)
        self._rung = set[asyncio.Future[None]]()

    async def wake(self, wakes: Sequence[Wake]) -> None:
        """Tell queues what waits in them; workers hear of those that are due. A queue that was removed is passed over.
        Safe to repeat: a wake-up too many costs a look. Raises `Unavailable`: then some may not have been told."""
        merged = merge_wakes(wakes)
        for first in range(0, len(merged), WAKES_AT_ONCE):
            some, now = merged[first : first + WAKES_AT_ONCE], await self._time.now()
            until = now + self._handed_for
            handed = await self._store.bus_wake_ups.wake(some, fresh_token(), now=now, leased_until=until)
            self.expect({wake_up_id(wake.queue): wake.due for wake in some if wake.due > now})
            self._forget_timers(handed)
            await self._publish(handed)

    def expect(self, moments: Mapping[str, datetime]) -> None:
        """Hand over the wake-ups with these ids at their moments, as far as these are within a tick."""
        now, loop = self._time.reckon(), asyncio.get_running_loop()
        for id, moment in moments.items():
            if moment - now > self._tick:
                continue
            at, known = _ring_at(loop.time() + (moment - now).total_seconds()), self._timers.get(id)
            if known is not None and at < known.when():
                known.cancel()
            elif known is not None or len(self._timers) >= _MOST_TIMERS:
                continue
            self._timers[id] = loop.call_at(at, self._ring, id)

    async def close(self) -> None:
        """Cancel the timers: the clock hands over their wake-ups."""
        self._tick = _NO_TIMERS
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*self._rung, return_exceptions=True)

    async def hand_over(self, claimed: Sequence[Occurrence]) -> None:
        """Have workers look at what the clock has claimed. Raises `Unavailable`."""
        now = await self._time.now()
        for wave in _divide_repeats(claimed):
            handed = await self._store.bus_wake_ups.hand_over(wave, fresh_token(), until=now + self._handed_for)
            BUS_WAKE_UPS_HANDED_AGAIN.inc(sum(wake_up.deaths > 0 for wake_up in handed))
            if parting := [wake_up for wake_up in handed if wake_up.has_to_part]:
                moments = [now + parting_pause(wake_up.deaths, noise=random.random()) for wake_up in parting]
                await self._store.bus_wake_ups.part(parting, moments)
            await self._publish([wake_up for wake_up in handed if not wake_up.has_to_part])

    async def hand_on(self, taken: Sequence[TakenWakeUp]) -> None:
        """Give back what is ours and still due, so that others have their turn. Raises `Unavailable`."""
        until = await self._time.now() + self._handed_for
        for wave in _divide_repeats(taken):
            await self._publish(await self._store.bus_wake_ups.hand_on(wave, fresh_token(), until=until))

    def _ring(self, id: str) -> None:
        del self._timers[id]
        rung = self._hand_over_due.ask(id)
        self._rung.add(rung)
        rung.add_done_callback(self._rung.discard)

    async def _hand_over_all_due(self, ids: Sequence[str]) -> Sequence[None]:
        """One that is not due has been moved since: its moment may be within the tick again."""
        try:
            now, token = await self._time.now(), fresh_token()
            until = now + self._handed_for
            handed, resting = await self._store.bus_wake_ups.hand_over_due(ids, token, now=now, until=until)
            self.expect(resting)
            await self._publish(handed)
        except Unavailable as error:
            log.warning("wake-ups wait for the clock", wake_ups=len(ids), reason=str(error))
        return [None] * len(ids)

    def _forget_timers(self, handed: Sequence[HandedWakeUp]) -> None:
        for wake_up in handed:
            if (timer := self._timers.pop(wake_up.id, None)) is not None:
                timer.cancel()

    async def _publish(self, handed: Sequence[HandedWakeUp]) -> None:
        """Tell workers; what the broker has not taken comes due again."""
        told = await asyncio.gather(*map(self._tell, handed))
        untold = [wake_up for wake_up, is_told in zip(handed, told, strict=True) if not is_told]
        if untold:
            log.warning("wake-ups wait for the broker", wake_ups=len(untold))
            await self._store.bus_wake_ups.put_back(untold, await self._time.now() + _SOON)

    async def _tell(self, handed: HandedWakeUp) -> bool:
        kind = DeliverSlowly if handed.slow else DeliverQueue
        try:
            await self._broker.publish(kind.queue, encode(kind(wake_up_id=handed.id, token=handed.token)))
        except Unavailable:
            return False
        return True


def _ring_at(seconds: float) -> float:
    """The end of this moment's slice of time: all timers of a slice ring together, and cost one update."""
    return math.ceil(seconds / _TOGETHER_SECONDS) * _TOGETHER_SECONDS


def _divide_repeats(claimed: Sequence[Claimed]) -> list[list[Claimed]]:
    """These in as few parts as can be, each with a wake-up once: of several claims of it one has its token, and nobody
    knows which."""
    waves = list[list[Claimed]]()
    count = Counter[str]()
    for claim in claimed:
        if count[claim.id] == len(waves):
            waves.append([])
        waves[count[claim.id]].append(claim)
        count[claim.id] += 1
    return waves
