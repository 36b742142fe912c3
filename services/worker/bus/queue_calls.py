"""Calling one queue's receiver for the deliveries in hand.

Calls go on while ended ones are settled; calls that end meanwhile are settled together next. The number of concurrent
calls begins with one and doubles as the receiver answers. After a failed call no more begin. An ordered queue has one
call at a time, and the next begins when the last is settled.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import structlog

from services.worker.bus.held_queue import RENEW_SECONDS, HeldQueue
from services.worker.bus.queue_settling import EndedCall, QueueSettling
from shared.domain.bus.deliveries import EventDelivery
from shared.domain.bus.settling import CallResult
from shared.domain.errors import Unavailable
from shared.runtime.faults import fault

log = structlog.get_logger(__name__)

_UNSETTLED = 4
"""The deliveries that may be called but not settled, per concurrent call: they are called again if the process dies."""
_NOT_MADE_SECONDS = 0.5  # before it asks again for what this process lacks


class QueueCalls:
    """The calls of one run. `made` counts them."""

    def __init__(self, held: HeldQueue, settling: QueueSettling) -> None:
        self._held = held
        self._settling = settling
        self._pending: deque[EventDelivery] = deque()
        self._calls: dict[asyncio.Task[CallResult | None], EventDelivery] = {}
        self._ended: list[EndedCall] = []
        self._settlement: asyncio.Task[None] | None = None
        self._in_settlement = 0
        self._width = 1
        self.made = 0

    async def deliver(self, deliveries: Iterable[EventDelivery], *, in_flight: int) -> None:
        """Call for these, at most `in_flight` at a time, and settle; stops early if a call fails. Raises
        `WakeUpLost`."""
        self._pending.extend(deliveries)
        self._width = 1
        while self._pending or self._calls or self._unsettled:
            self._begin_calls(in_flight)
            self._begin_settlement()
            await self._wait_for_one()
            await self._keep()
            if not self._held.is_well or self._held.is_out_of_time:
                self._pending.clear()

    async def drop(self) -> None:
        """Cancel running calls and the settlement."""
        tasks = [*self._calls, *([self._settlement] if self._settlement is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _unsettled(self) -> int:
        return len(self._ended) + self._in_settlement

    def _begin_calls(self, in_flight: int) -> None:
        ordered = self._held.active.ordered
        most = 1 if ordered else min(self._width, in_flight)
        unsettled = 0 if ordered else _UNSETTLED * in_flight - 1
        while self._pending and len(self._calls) < most and self._unsettled <= unsettled:
            delivery = self._pending.popleft()
            self._calls[asyncio.create_task(self._call(delivery))] = delivery
            self.made += 1

    def _begin_settlement(self) -> None:
        if self._ended and self._settlement is None:
            self._settlement = asyncio.create_task(self._settling.settle(self._ended))
            self._in_settlement, self._ended = len(self._ended), []

    async def _keep(self) -> None:
        """Keep the lease. If the store is away while the lease lasts, ended calls may still be settled; calls that
        would outlast the lease do not begin."""
        try:
            await self._held.keep()
        except Unavailable:
            if not self._held.is_leased:
                raise

    async def _wait_for_one(self) -> None:
        """Wait until a call or the settlement ends, but at most until the lease has to be renewed."""
        awaited = {*self._calls, *([self._settlement] if self._settlement is not None else [])}
        await asyncio.wait(awaited, timeout=RENEW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if self._settlement is not None and self._settlement.done():
            self._settlement.result()
            self._settlement, self._in_settlement = None, 0
        self._collect_ended()

    def _collect_ended(self) -> None:
        done = [call for call in self._calls if call.done()]
        ended = [(self._calls.pop(call), call.result()) for call in done]
        made = [(delivery, result) for delivery, result in ended if result is not None]
        self._ended += made
        # After a call that was not made none behind it is made, because in an ordered queue it would overtake.
        if len(made) < len(ended) or not all(result.is_success for _, result in made):
            self._pending.clear()
        elif made:
            self._width *= 2

    async def _call(self, delivery: EventDelivery) -> CallResult | None:
        """`None` if the call was not made."""
        await fault("deliver.before_call")
        async with self._held.tools.places.one(self._held.active.namespace):
            if not self._held.may_call:
                return None
            try:
                result = await self._held.tools.receivers.call(delivery, self._held.active)
            except Unavailable as error:
                log.warning("a receiver is not called", queue=self._held.queue, reason=str(error))
                await asyncio.sleep(_NOT_MADE_SECONDS)
                return None
        await fault("deliver.after_call")
        return result
