"""Working on one queue while its wake-up is in hand.

    look ──> fill: open deliveries, then new ones ──> call the receiver ──> settle with the cursor ──> rest

Calls go on while ended ones are settled, one settlement at a time.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from msgspec import Struct
from msgspec.structs import replace

from services.worker.bus.grouped import FIRST_HEADS, HEADS, HeadsAsked, OpenAsked
from services.worker.bus.held_queue import (
    MOMENT_SECONDS,
    RENEW_SECONDS,
    HeldQueue,
    RunTools,
    WakeUpLost,
    count_call,
    count_settled,
    count_throttled,
)
from shared.bus.rules.cutting import ChunkHead, CutRules, choose_chunks, cut, fills_one, is_due
from shared.bus.rules.deliveries import (
    CallResult,
    Cursor,
    DeathReason,
    DeliveryStatus,
    EventDelivery,
    SettledDelivery,
    bury,
    first_bytes,
    is_too_old,
    settle,
)
from shared.bus.rules.health import gate, is_to_be_suspended, next_attempt
from shared.bus.rules.notices import notices_of_settlement
from shared.bus.rules.wake_ups import FAR_AHEAD, TakenWakeUp
from shared.bus.store_cuts import CursorCut
from shared.bus.store_deliveries import QueueSettlement
from shared.core.errors import Unavailable
from shared.runtime.faults import fault

log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 0.3
EndedCall = tuple[EventDelivery, CallResult]


class QueueSettling:
    """Writes the results of a queue's deliveries. `callback` is the one whose failure was written last."""

    def __init__(self, held: HeldQueue) -> None:
        self._held = held
        self.callback = ""

    async def settle(self, ended: Sequence[EndedCall]) -> None:
        """Write the results of calls. While the store is away, this repeats as long as the lease lasts. Raises
        `WakeUpLost`."""
        some = list(ended)
        while some:
            try:
                if await self._write_ended(some):
                    break
                some = await self._find_open(some)
            except Unavailable:
                if not self._held.is_leased:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
        for callback in {result.callback for _, result in ended if result.is_gone}:
            await self._held.suspend("its receiver answered 410: it is gone", callback)
        await fault("deliver.after_settle")

    async def bury(self, old: Iterable[EventDelivery], now: datetime) -> None:
        """Turn deliveries that are too old into dead letters; they come with their events. Raises `WakeUpLost`."""
        cursor, settled = self._held.cursor, list[SettledDelivery]()
        for delivery in old:
            cursor, one = bury(cursor, delivery, self._held.active, DeathReason.AGE, now)
            settled.append(one)
        if settled and not await self._write(cursor, settled):
            await self._held.renew()  # still held: the cursor has moved, and is read again
            return
        for one in settled:
            count_settled(self._held.active, one)

    async def _write_ended(self, ended: Iterable[EndedCall]) -> bool:
        cursor, settled = self._held.cursor, list[tuple[SettledDelivery, CallResult]]()
        for delivery, result in ended:
            cursor, one = settle(cursor, delivery, result, self._held.active, self._held.tools.care)
            settled.append((one, result))
        if not await self._write(cursor, [one for one, _ in settled]):
            return False
        for one, result in settled:
            self.callback = self.callback if result.is_success else result.callback
            count_call(self._held.active, one, result)
        return True

    async def _write(self, cursor: Cursor, settled: Sequence[SettledDelivery]) -> bool:
        before = self._held.cursor
        if cursor.health.is_failing and not cursor.open_deliveries and not await self._has_chunks():
            # No call is made until more events come. That time says nothing about the receiver.
            cursor = replace(cursor, health=cursor.health.rest_from(self._held.tools.time.reckon()))
        after = replace(cursor, v=before.v + 1)
        notices = notices_of_settlement(self._held.active, before, after)
        if not await self._held.tools.store.settle(QueueSettlement(before, after, tuple(settled), notices)):
            return False
        self._held.cursor = after
        return True

    async def _has_chunks(self) -> bool:
        return bool(await self._held.tools.store.read_heads(HeadsAsked(self._held.queue, 1, 1)))

    async def _find_open(self, ended: Sequence[EndedCall]) -> list[EndedCall]:
        """The calls that are still to be settled, with their present deliveries."""
        await self._held.read_after_move()
        found = await self._held.tools.store.read_bodies([delivery for delivery, _ in ended])
        results = {delivery.id: result for delivery, result in ended}
        return [(now, results[now.id]) for now in found if now.status is DeliveryStatus.OPEN]


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


_CUT_BYTES = 256 * 2**10  # of one queue at a time, unless one delivery has more


class DeliveriesInHand(Struct, frozen=True):
    """The deliveries to call for now. `left` events wait in the queue; the next look is due at `next_moment`."""

    deliveries: Sequence[EventDelivery]
    left: int
    next_moment: datetime


class QueueFilling:
    """Brings deliveries into hand for one run. Events that are read count as held until the run's share of bytes is
    given back."""

    def __init__(self, held: HeldQueue, settling: QueueSettling) -> None:
        self._held = held
        self._settling = settling

    async def fill(self, most: int, now: datetime) -> DeliveriesInHand:
        """Return at most `most` deliveries to call now. Raises `WakeUpLost`."""
        held, opened, next_open = self._held, list[EventDelivery](), FAR_AHEAD
        found, is_in_turn = list[EventDelivery](), most == 1 and not self._is_ordered
        if held.cursor.open_deliveries:
            found = await held.tools.store.read_open(OpenAsked(held.queue, is_in_turn))
            is_other_asked = is_in_turn and found and held.cursor.asks_another(found[0])
            if is_other_asked and (fresh := await self._cut(1, now)).deliveries:
                return fresh
            opened, next_open = await self._take_open(found, most, now)
        wanted = min(most - len(opened), held.active.most_open - held.cursor.open_deliveries)
        if wanted <= 0:
            return DeliveriesInHand(opened, held.taken.of.waiting, now if opened else next_open)
        made = await self._cut(wanted, now)
        if is_in_turn and found and not opened and not made.deliveries and found[0].failures == 1:
            # The pause of its receiver is over, and no other delivery can try the receiver.
            opened, next_open = await self._take_open(found, most, found[0].retry_at or now)
        return DeliveriesInHand([*opened, *made.deliveries], made.left, min(next_open, made.next_moment))

    async def _take_open(
        self, found: Sequence[EventDelivery], most: int, now: datetime
    ) -> tuple[list[EventDelivery], datetime]:
        """Open deliveries that may be tried, with events, and the next moment at which another may be."""
        if self._is_ordered:
            found = sorted(found, key=lambda delivery: delivery.sequence)
        old = [delivery for delivery in found if is_too_old(delivery, self._held.active, now)]
        if old:
            await self._settling.bury(await self._read_bodies(old[:most]), now)
            return [], now
        ready = [one for one in found if self._is_ordered or one.retry_at is None or one.retry_at <= now]
        # The queue's last worker may have settled some since: these have no events any more.
        chosen = [one for one in await self._read_bodies(ready[:most]) if one.status is DeliveryStatus.OPEN]
        if len(chosen) < len(ready):
            return chosen, now
        return chosen, min((one.retry_at or now for one in found if one not in ready), default=FAR_AHEAD)

    @property
    def _is_ordered(self) -> bool:
        return self._held.active.ordered

    async def _read_bodies(self, deliveries: Sequence[EventDelivery]) -> list[EventDelivery]:
        """The first deliveries with events, as many as may be in hand."""
        chosen = first_bytes(deliveries, _CUT_BYTES)
        if not chosen:
            return []
        await self._held.hold_bytes(sum(delivery.size for delivery in chosen))
        return await self._held.tools.store.read_bodies(chosen)

    async def _cut(self, wanted: int, now: datetime) -> DeliveriesInHand:
        subscription = self._held.active
        rules = CutRules(
            max_events=subscription.max_events,
            max_bytes=subscription.max_bytes,
            timeout=subscription.timeout,
            deliveries=wanted,
        )
        heads, more = await self._read_heads(rules)
        waiting = sum(head.n for head in heads)
        if not is_due(heads, rules, now):
            return DeliveriesInHand(
                [], waiting, min((head.first_at + rules.timeout for head in heads), default=FAR_AHEAD)
            )
        chosen = choose_chunks(heads, rules, most_bytes=_CUT_BYTES)
        size = sum(head.bytes for head in chosen)
        if not self._held.can_hold_bytes(size):
            return DeliveriesInHand([], waiting, now)
        more = more or len(chosen) < len(heads)
        del heads  # there may be thousands, and the wait may be long
        await self._held.hold_bytes(size)
        return await self._cut_these(chosen, waiting, rules, now, more=more)

    async def _read_heads(self, rules: CutRules) -> tuple[list[ChunkHead], bool]:
        """The first chunks, and whether others may follow: a few at first, more if these fill no delivery."""
        queue, waiting = self._held.queue, self._held.taken.of.waiting
        heads, most = list[ChunkHead](), 0
        for most in (FIRST_HEADS, max(HEADS, rules.max_events) + 1):
            heads = await self._held.tools.store.read_heads(HeadsAsked(queue, most, waiting))
            if len(heads) < most or fills_one(heads, rules):
                break
        return heads, len(heads) == most

    async def _cut_these(
        self, chosen: Sequence[ChunkHead], waiting: int, rules: CutRules, now: datetime, *, more: bool
    ) -> DeliveriesInHand:
        cursor, queue = self._held.cursor, self._held.queue
        chunks = await self._held.tools.store.read_chunks(chosen)
        made = cut(queue, chunks, rules, sequence=cursor.sequence, now=now, more=more)
        if made.deliveries and not await self._write_cut(CursorCut(cursor, made)):
            return DeliveriesInHand([], self._held.taken.of.waiting, now)
        left = waiting - made.events
        if more or len(chunks) < len(chosen):
            return DeliveriesInHand(made.deliveries, left, now)
        return DeliveriesInHand(made.deliveries, left, made.next_due or FAR_AHEAD)

    async def _write_cut(self, write: CursorCut) -> bool:
        """Whether the cut was made. If the cursor has moved, perhaps by the queue's last worker, it is read again.
        Raises `WakeUpLost` if another worker has the queue."""
        if not await self._held.tools.store.cut(write):
            await self._held.renew()
            return False
        self._held.cursor = write.after
        await fault("deliver.after_cut")
        return True


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
