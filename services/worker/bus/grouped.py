"""Store calls for all wake-ups in hand, made together: concurrent calls share a round trip.

The first chunks of many queues are read together, and a long backlog delays no other queue. A queue whose cursor is
locked by an open transaction, such as that of a dead process, waits for a while.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import compress, groupby
from operator import attrgetter
from typing import Generic, TypeVar

import structlog
from cachetools import LRUCache
from msgspec import Struct

from shared.bus.rules.cutting import ChunkHead, QueuedChunk
from shared.bus.rules.deliveries import Cursor, EventDelivery
from shared.bus.rules.subscriptions import EventSubscription, subscription_of
from shared.bus.rules.wake_ups import Rest, TakenWakeUp
from shared.bus.store_cuts import PATIENCE, BusCuts, CursorCut, CursorWrites
from shared.bus.store_deliveries import QueueSettlement
from shared.bus.store_wake_ups import HandedWakeUp
from shared.bus.waking import Waker
from shared.clock.store_occurrences import fresh_token
from shared.core.errors import Unavailable
from shared.drivers.mongo.transactions import OwnSession
from shared.runtime.cached import Coalescer
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_MOST = 10_000
Write = TypeVar("Write")


class LockedQueues:
    """The locked queues that a process has met recently."""

    def __init__(self) -> None:
        self._met: LRUCache[str, bool] = LRUCache(maxsize=_MOST)

    async def write(
        self,
        writes: Sequence[Write],
        queue_of: Callable[[Write], str],
        write_some: Callable[[Sequence[Write], float], Awaitable[CursorWrites]],
    ) -> Sequence[bool | Exception]:
        """Write these by `write_some`, which also takes a patience in seconds. Answers for each whether it was written,
        or `Unavailable` if its queue is locked. If one queue has several writes, only the first is made: two runs have
        met, and one of them has lost the queue."""
        queues = list(map(queue_of, writes))
        firsts = [queues.index(queue) == place for place, queue in enumerate(queues)]
        outcome = await self._write_firsts(list(compress(writes, firsts)), queue_of, write_some)
        self._note(set(queues), outcome.locked)
        return [is_first and _answer(queue, outcome) for queue, is_first in zip(queues, firsts, strict=True)]

    async def _write_firsts(
        self,
        writes: Sequence[Write],
        queue_of: Callable[[Write], str],
        write_some: Callable[[Sequence[Write], float], Awaitable[CursorWrites]],
    ) -> CursorWrites:
        together = [write for write in writes if queue_of(write) not in self._met]
        outcome = await write_some(together, PATIENCE) if together else CursorWrites()
        for write in writes:
            if queue_of(write) in self._met:
                outcome |= await write_some([write], 0)
        return outcome

    def _note(self, queues: set[str], locked: frozenset[str]) -> None:
        for queue in queues - locked:
            self._met.pop(queue, None)
        for queue in locked:
            if queue not in self._met:
                log.warning("another transaction keeps the cursor of a queue", queue=queue)
            self._met[queue] = True


def _answer(queue: str, outcome: CursorWrites) -> bool | Exception:
    if queue in outcome.locked:
        return Unavailable("MongoDB: another transaction keeps the cursor of this queue")
    return queue in outcome.written


HEADS = 2_000
"""The chunks that one read takes for several queues."""
FIRST_HEADS = 64
"""The chunks of one queue that are read first. A queue with more waiting events is read alone."""
READS_AT_ONCE = 8
Heads = dict[str, list[ChunkHead]]


class HeadsAsked(Struct, frozen=True):
    """A queue whose chunks are read, at most `most`, with the known number of waiting events."""

    queue: str
    most: int
    waiting: int


async def read_heads(cuts: BusCuts, asked: Sequence[HeadsAsked]) -> list[list[ChunkHead]]:
    """The first chunks of each queue, in order."""
    apart = [one for one in asked if max(one.most, one.waiting) > FIRST_HEADS]
    groups = _divide([one for one in asked if max(one.most, one.waiting) <= FIRST_HEADS])
    limit = asyncio.Semaphore(READS_AT_ONCE)
    reads = [_read_group(cuts, group, limit) for group in groups]
    found: Heads = {}
    for heads in await asyncio.gather(*reads, _read_apart(cuts, apart, limit)):
        found |= heads
    return [found.get(one.queue, [])[: one.most] for one in asked]


async def _read_group(cuts: BusCuts, group: Sequence[HeadsAsked], limit: asyncio.Semaphore) -> Heads:
    async with limit:
        found = await cuts.read_heads([one.queue for one in group], limit=HEADS)
    heads = {queue: list(some) for queue, some in groupby(found, attrgetter("queue"))}
    if len(found) < HEADS:
        return heads
    return heads | await _read_apart(cuts, [one for one in group if one.queue >= found[-1].queue], limit)


async def _read_apart(cuts: BusCuts, asked: Sequence[HeadsAsked], limit: asyncio.Semaphore) -> Heads:
    async def read(one: HeadsAsked) -> list[ChunkHead]:
        async with limit:
            return await cuts.read_heads([one.queue], limit=one.most)

    found = await asyncio.gather(*map(read, asked))
    return {one.queue: heads for one, heads in zip(asked, found, strict=True)}


def _divide(asked: Sequence[HeadsAsked]) -> Iterator[list[HeadsAsked]]:
    """Groups of queues that are expected to have fewer than `HEADS` chunks together."""
    group, expected = list[HeadsAsked](), 0
    for one in asked:
        expected += one.waiting + 1
        if expected >= HEADS:
            yield group
            group, expected = [], one.waiting + 1
        group.append(one)
    if group:
        yield group


AT_ONCE = 200
"""The most wake-ups of one call."""
BYTES_AT_ONCE = 4 * 2**20
"""The most bytes of events that one call reads or writes, unless a single delivery has more."""
_SOON = timedelta(seconds=2)
_ONE = BYTES_AT_ONCE // AT_ONCE
_DOCUMENT_BYTES = 1_024  # what a delivery costs beside its events
Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Work = Callable[[Sequence[Asked]], Awaitable[Sequence[Answered | Exception]]]


class GroupedCall(Generic[Asked, Answered]):
    """One kind of call, made for many at once. `Unavailable` is raised for all, any other error only for its own
    item."""

    def __init__(self, work: Work[Asked, Answered], size: Callable[[Asked], int] | None = None) -> None:
        self._work = work
        self._coalescer: Coalescer[Asked, Answered | Exception] = (
            Coalescer(self._answer_all, most=AT_ONCE)
            if size is None
            else Coalescer(self._answer_all, most=BYTES_AT_ONCE, size=size)
        )

    async def __call__(self, asked: Asked) -> Answered:
        answer = await self._coalescer(asked)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _answer_all(self, asked: Sequence[Asked]) -> Sequence[Answered | Exception]:
        try:
            return await self._work(asked)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised for its own item
            return [error] if len(asked) == 1 else [await self._answer_one(one) for one in asked]

    async def _answer_one(self, asked: Asked) -> Answered | Exception:
        try:
            return (await self._work([asked]))[0]
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised for its own item
            return error


class OpenAsked(Struct, frozen=True):
    """A queue whose open deliveries are read: all, or only the first to try."""

    queue: str
    only_first: bool


class QueueReading(Struct, frozen=True):
    """A queue's subscription and its cursor, `None` if it is gone."""

    subscription: EventSubscription | None
    cursor: Cursor | None


class GroupedStore:
    """Store calls for wake-ups in hand. Each take and renewal holds a wake-up for `lease`.

    All cuts use one session and all settlements another, and each wake-up in hand names both. A process that dies in a
    transaction leaves locks, which the server itself keeps for a minute. So a worker that takes an abandoned wake-up
    ends the sessions of its last owner first.
    """

    def __init__(self, store: Store, time: DatabaseTime, waker: Waker, *, lease: timedelta) -> None:
        self._store = store
        self._time = time
        self._lease = lease
        self._waker = waker
        self._sessions: tuple[OwnSession, OwnSession] | None = None
        self._locked = LockedQueues()
        self.take = GroupedCall(self._take)
        self.renew = GroupedCall(self._renew)
        self.rest = GroupedCall(self._rest)
        self.hand_on = GroupedCall(self._hand_on)
        self.read_queue = GroupedCall(self._read_queues)
        self.read_open = GroupedCall(self._read_open)
        self.read_heads = GroupedCall(partial(read_heads, store.bus_cuts))
        self.read_chunks = GroupedCall(self._read_chunks, _size_of_heads)
        self.read_bodies = GroupedCall(self._read_bodies, _size_of_deliveries)
        self.cut = GroupedCall(self._cut, _size_of_cut)
        self.settle = GroupedCall(self._settle, _size_of_settlement)

    async def _take(self, handed: Sequence[tuple[str, str]]) -> Sequence[TakenWakeUp | None]:
        """Take each (id, token); `None` if another worker has it."""
        now, token = await self._time.now(), fresh_token()
        # Of two messages about one wake-up, the later one has its token.
        asked, names = list(dict(handed).items()), [session.name for session in self._own_sessions]
        try:
            taken = await self._store.bus_wake_ups.take(asked, token, until=now + self._lease, sessions=names)
            await self._end_sessions({name for wake_up in taken.values() for name in wake_up.of.left}.difference(names))
        except Exception:
            # Some of these are taken, and it is not known which. If left to their leases, they would count as deaths.
            ours = [HandedWakeUp(id, token, slow=False) for id, _ in asked]
            await self._store.bus_wake_ups.put_back(ours, now + _SOON)
            raise
        found, given, last = list[TakenWakeUp | None](), set[str](), dict(handed)
        for id, token in handed:
            is_last = last[id] == token and id not in given
            found.append(taken.get(id) if is_last else None)
            given.add(id) if is_last else None
        return found

    async def _end_sessions(self, names: Collection[str]) -> None:
        """End the sessions of dead workers. If a server refuses, it ends them by itself later."""
        try:
            await self._store.bus_cuts.end_sessions(names)
        except Unavailable:
            raise
        except Exception:
            log.exception("sessions of a worker that is gone cannot be ended", sessions=len(names))

    async def _renew(self, taken: Sequence[TakenWakeUp]) -> Sequence[bool]:
        ours = await self._store.bus_wake_ups.renew(taken, until=await self._time.now() + self._lease)
        return [wake_up.claim in ours for wake_up in taken]

    async def _rest(self, rests: Sequence[Rest]) -> Sequence[TakenWakeUp | None]:
        """Each as it is now, if it needs another look."""
        woken = await self._store.bus_wake_ups.rest(rests)
        self._waker.expect({rest.taken.id: rest.fires_at for rest in rests if rest.taken.claim not in woken})
        return [woken.get(rest.taken.claim) for rest in rests]

    async def _hand_on(self, taken: Sequence[TakenWakeUp]) -> Sequence[None]:
        await self._waker.hand_on(taken)
        return [None] * len(taken)

    async def _read_queues(self, queues: Sequence[str]) -> Sequence[QueueReading]:
        ids = {queue: subscription_of(queue) for queue in queues}
        cursors, subscriptions = await asyncio.gather(
            self._store.bus_cursors.read(queues), self._store.bus_subscriptions.with_ids(list(set(ids.values())))
        )
        found = [subscriptions.get(ids[queue]) for queue in queues]
        return [
            QueueReading(subscription if subscription and subscription.queue == queue else None, cursors.get(queue))
            for queue, subscription in zip(queues, found, strict=True)
        ]

    async def _read_open(self, asked: Sequence[OpenAsked]) -> Sequence[list[EventDelivery]]:
        """The open deliveries of each queue, without events and attempts, the next to try first."""
        firsts, every = ([one.queue for one in asked if one.only_first is first] for first in (True, False))
        found = defaultdict[str, list[EventDelivery]](list)
        for delivery in await self._store.bus_deliveries.read_open(every) if every else []:
            found[delivery.queue].append(delivery)
        for delivery in await self._store.bus_deliveries.read_first_open(firsts) if firsts else []:
            found[delivery.queue].append(delivery)
        return [found[one.queue] for one in asked]

    async def _read_chunks(self, asked: Sequence[Sequence[ChunkHead]]) -> Sequence[list[QueuedChunk]]:
        found = await self._store.bus_cuts.read([head.id for heads in asked for head in heads])
        by_id = {chunk.id: chunk for chunk in found}
        return [[by_id[head.id] for head in heads if head.id in by_id] for heads in asked]

    async def _read_bodies(self, asked: Sequence[Sequence[EventDelivery]]) -> Sequence[list[EventDelivery]]:
        found = await self._store.bus_deliveries.with_ids([delivery.id for some in asked for delivery in some])
        return [[found[delivery.id] for delivery in some if delivery.id in found] for some in asked]

    async def _cut(self, cuts: Sequence[CursorCut]) -> Sequence[bool | Exception]:
        async def cut(some: Sequence[CursorCut], patience: float) -> CursorWrites:
            return await self._store.bus_cuts.cut(some, self._own_sessions[0], patience)

        return await self._locked.write(cuts, lambda each: each.cursor.id, cut)

    async def _settle(self, settlements: Sequence[QueueSettlement]) -> Sequence[bool | Exception]:
        async def settle(some: Sequence[QueueSettlement], patience: float) -> CursorWrites:
            return await self._store.bus_deliveries.settle(some, self._own_sessions[1], patience)

        return await self._locked.write(settlements, lambda each: each.before.id, settle)

    @property
    def _own_sessions(self) -> tuple[OwnSession, OwnSession]:
        if self._sessions is None:
            self._sessions = self._store.bus_cuts.open_session(), self._store.bus_cuts.open_session()
        return self._sessions

    async def close(self) -> None:
        """End the sessions once no wake-up is in hand."""
        sessions, self._sessions = self._sessions or (), None
        for session in sessions:
            await session.close()


def _size_of_heads(heads: Iterable[ChunkHead]) -> int:
    return max(sum(head.bytes for head in heads), _ONE)


def _size_of_deliveries(deliveries: Iterable[EventDelivery]) -> int:
    return max(sum(delivery.size for delivery in deliveries), _ONE)


def _size_of_cut(cut: CursorCut) -> int:
    return max(cut.cut.size + len(cut.cut.deliveries) * _DOCUMENT_BYTES, _ONE)


def _size_of_settlement(settlement: QueueSettlement) -> int:
    letters = sum(settled.letter.size for settled in settlement.settled if settled.letter is not None)
    return max(letters + len(settlement.settled) * _DOCUMENT_BYTES, _ONE)
