"""Waking: tell queues what waits in them, and hand due queues to workers.

A due wake-up is first handed over in the store, with a new token and a lease, then published. If the broker is
away, it comes due again soon. If no worker takes it, the lease ends and the clock hands it over again. After three
workers in a row have died on a wake-up, it rests, longer after each further death.

The clock may be late by up to its tick. So the process that sets such a moment keeps a timer, and hands the wake-up
over then if it still rests, is due and is not held by the clock. If the process dies, the clock does it.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from shared.bus.rules.wake_ups import DeliverQueue, DeliverSlowly, TakenWakeUp, Wake, merge_wakes, parting_pause
from shared.bus.store_wake_ups import WAKES_AT_ONCE, HandedWakeUp, wake_up_id
from shared.clock.rules.occurrences import Occurrence
from shared.clock.store_occurrences import fresh_token
from shared.core.errors import Unavailable
from shared.core.tasks import encode
from shared.drivers.rabbitmq import Broker
from shared.runtime.cached import Coalescer
from shared.runtime.metrics import BUS_WAKE_UPS_HANDED_AGAIN
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_SOON = timedelta(seconds=2)
_MOST_TIMERS, _NO_TIMERS = 10_000, timedelta.min
_TOGETHER_SECONDS = 0.02
Claimed = TypeVar("Claimed", Occurrence, TakenWakeUp)


class Waker:
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
        """Tell queues what waits in them, and workers about the due ones. Removed queues are skipped. Safe to repeat:
        an extra wake-up costs one look. After `Unavailable` some may not have been told."""
        merged = merge_wakes(wakes)
        for first in range(0, len(merged), WAKES_AT_ONCE):
            some, now = merged[first : first + WAKES_AT_ONCE], await self._time.now()
            until = now + self._handed_for
            handed = await self._store.bus_wake_ups.wake(some, fresh_token(), now=now, leased_until=until)
            self.expect({wake_up_id(wake.queue): wake.due for wake in some if wake.due > now})
            self._forget_timers(handed)
            await self._publish(handed)

    def expect(self, moments: Mapping[str, datetime]) -> None:
        """Set timers for the wake-ups whose moments are within a tick."""
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
        now = await self._time.now()
        for wave in _divide_repeats(claimed):
            handed = await self._store.bus_wake_ups.hand_over(wave, fresh_token(), until=now + self._handed_for)
            BUS_WAKE_UPS_HANDED_AGAIN.inc(sum(wake_up.deaths > 0 for wake_up in handed))
            if parting := [wake_up for wake_up in handed if wake_up.has_to_part]:
                moments = [now + parting_pause(wake_up.deaths, noise=random.random()) for wake_up in parting]
                await self._store.bus_wake_ups.part(parting, moments)
            await self._publish([wake_up for wake_up in handed if not wake_up.has_to_part])

    async def hand_on(self, taken: Sequence[TakenWakeUp]) -> None:
        """Publish wake-ups again that this worker holds and that are still due, so that other queues get their turn."""
        until = await self._time.now() + self._handed_for
        for wave in _divide_repeats(taken):
            await self._publish(await self._store.bus_wake_ups.hand_on(wave, fresh_token(), until=until))

    def _ring(self, id: str) -> None:
        del self._timers[id]
        rung = self._hand_over_due.ask(id)
        self._rung.add(rung)
        rung.add_done_callback(self._rung.discard)

    async def _hand_over_all_due(self, ids: Sequence[str]) -> Sequence[None]:
        """A wake-up that is not due was moved: its new moment may be within the tick too."""
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
        """Tell workers; wake-ups that the broker did not take come due again."""
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
    """Round up to a slice of time: all timers of a slice ring together and cost one update."""
    return math.ceil(seconds / _TOGETHER_SECONDS) * _TOGETHER_SECONDS


def _divide_repeats(claimed: Sequence[Claimed]) -> list[list[Claimed]]:
    """Divide into as few parts as possible, each with a wake-up at most once: of several claims of one wake-up, only
    one has its token, and it is not known which."""
    waves = list[list[Claimed]]()
    count = Counter[str]()
    for claim in claimed:
        if count[claim.id] == len(waves):
            waves.append([])
        waves[count[claim.id]].append(claim)
        count[claim.id] += 1
    return waves


class DueQueues:
    """The clock's handler for owners of the kind `bus`."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._hand_over = Coalescer(self._hand_over_all)

    async def begin(self, occurrence: Occurrence) -> None:
        """Hand a wake-up to a worker; the clock no longer holds it then."""
        await self._hand_over(occurrence)

    async def _hand_over_all(self, claimed: Sequence[Occurrence]) -> Sequence[None]:
        await self._waker.hand_over(claimed)
        return [None] * len(claimed)
