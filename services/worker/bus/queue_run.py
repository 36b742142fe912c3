"""Working on one queue while its wake-up is in hand:

    look ──> not active                  rest
     ├─> its namespace is at its share   hand to the slow stage; there, rest for five seconds
     ├─> its receiver is paused          rest until then, or probe: one call
     └─> cut due events ──> call, within in_flight ──> settle ──> look again
    nothing to do ──> rest; 100 deliveries or ten seconds ──> hand it on

It rests only if nothing has changed since the read: after news of more events it looks again. A run that has lost the
wake-up stops: another worker has it, and the cursor prevents both from cutting or settling the same events.
"""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

import structlog

from services.worker.bus.counting import count_throttled
from services.worker.bus.held_queue import MOMENT_SECONDS, HeldQueue, RunTools, WakeUpLost
from services.worker.bus.queue_calls import QueueCalls
from services.worker.bus.queue_filling import QueueFilling
from services.worker.bus.queue_settling import QueueSettling
from shared.domain.bus.health import gate, is_to_be_suspended, next_attempt
from shared.domain.bus.wake_ups import FAR_AHEAD, TakenWakeUp

log = structlog.get_logger(__name__)

DELIVERIES_AT_A_TIME = 100
MOST_DEATHS = 20

_NO_PAUSE = timedelta(0)
_CROWDED = timedelta(seconds=5)


class QueueRun:
    """The work on one queue. `taken_at` is when its wake-up was requested, by the loop's clock."""

    def __init__(self, taken: TakenWakeUp, tools: RunTools, *, taken_at: float) -> None:
        self._tools = tools
        self._held = HeldQueue(taken, tools, taken_at=taken_at)
        self._settling = QueueSettling(self._held)
        self._filling = QueueFilling(self._held, self._settling)
        self._calls = QueueCalls(self._held, self._settling)
        self._counted_for: str | None = None

    async def run(self) -> None:
        """Work until the queue rests, is handed on, or is lost."""
        try:
            if self._held.taken.of.deaths >= MOST_DEATHS:
                await self._held.suspend(f"{MOST_DEATHS} workers in a row have died as they delivered")
            while await self._take_turn():
                pass
        except WakeUpLost:
            log.info("another worker has the queue", queue=self._held.queue)
        finally:
            await self._calls.drop()
            self._held.share.give_back()
            if self._counted_for is not None:
                self._tools.runs.give_back(self._counted_for)
                self._tools.moving[self._counted_for] = True

    async def _take_turn(self) -> bool:
        """Look once, and do the next step; returns whether to look again."""
        held = self._held
        if self._calls.made >= DELIVERIES_AT_A_TIME or held.is_out_of_time:
            await held.hand_on()
            return False
        if not await held.read():
            return await held.rest(held.taken.of.waiting, FAR_AHEAD, not_before=FAR_AHEAD)
        if not await self._count_in(held.active.namespace):
            return await self._leave_to_others()
        now, noise = self._tools.time.reckon(), random.random()
        going = gate(held.cursor.health, now, self._tools.care, noise=noise)
        if not going.is_open:
            count_throttled(held.active)
            return await held.rest_until(now + going.put_off)
        is_probe = held.cursor.health.pause(self._tools.care) > _NO_PAUSE
        in_hand = await self._filling.fill(1 if is_probe else DELIVERIES_AT_A_TIME, now)
        if in_hand.deliveries:
            await self._calls.deliver(in_hand.deliveries, in_flight=1 if is_probe else held.active.in_flight)
        held.share.give_back()
        if in_hand.deliveries and not held.is_well:
            return await self._judge()
        if in_hand.deliveries and held.cursor.open_deliveries:
            return True
        return in_hand.next_moment <= now or await held.rest(in_hand.left, in_hand.next_moment)

    async def _count_in(self, namespace: str) -> bool:
        """Whether the namespace may have this queue in hand: at once, or within a moment if its queues come and go."""
        runs = self._tools.runs
        if self._counted_for is None and (runs.has_room(namespace, 1) or namespace in self._tools.moving):
            with suppress(TimeoutError):
                async with asyncio.timeout(MOMENT_SECONDS):
                    await runs.take(namespace)
                    self._counted_for = namespace
                    self._tools.moving[namespace] = True
        return self._counted_for is not None

    async def _leave_to_others(self) -> bool:
        """Make room for other namespaces; returns whether to look again."""
        if self._tools.for_slow:
            return await self._held.rest_until(self._tools.time.reckon() + _CROWDED)
        await self._held.hand_on(to_slow=True)
        return False

    async def _judge(self) -> bool:
        """After a failure: suspend the subscription, pause its receiver, or look again."""
        held, now, care = self._held, self._tools.time.reckon(), self._tools.care
        health = held.cursor.health
        if is_to_be_suspended(health, now, care) and self._settling.callback:
            since = f"{health.failing_since:%Y-%m-%d %H:%M} UTC"
            await held.suspend(f"its receiver has done nothing but fail since {since}", self._settling.callback)
        elif health.is_failing and held.is_active:
            return await held.rest_until(next_attempt(health, now, care, noise=random.random()))
        return True
