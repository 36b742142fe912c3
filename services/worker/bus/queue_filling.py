"""Bringing deliveries of one queue into hand: open ones that may be tried, then new ones that are cut."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from services.worker.bus.grouped import OpenAsked
from services.worker.bus.heads import FIRST_HEADS, HEADS, HeadsAsked
from services.worker.bus.held_queue import HeldQueue
from services.worker.bus.queue_settling import QueueSettling
from shared.domain.bus.cutting import ChunkHead, CutRules, choose_chunks, cut, fills_one, is_due
from shared.domain.bus.deliveries import DeliveryStatus, EventDelivery, first_bytes
from shared.domain.bus.settling import is_too_old
from shared.domain.bus.wake_ups import FAR_AHEAD
from shared.runtime.faults import fault
from shared.store.bus.cuts import CursorCut

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
