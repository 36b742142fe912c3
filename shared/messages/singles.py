"""Single messages on their way to a worker.

    limit ──> store ──> does the app still exist? ──> wake a worker ──> (at its instant)

A message is stored before any worker is told, so it is never lost: if telling fails, upkeep repeats it. A worker is
told only that a credential has due single messages, so an extra message does no harm.
"""

import asyncio
import math
import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache
from msgspec import Struct

from shared.clock.rules.occurrences import Occurrence, occurrence_id, once
from shared.core.errors import Conflict, TooMany, Unavailable
from shared.core.instants import from_ms, ms
from shared.core.tasks import encode
from shared.drivers.rabbitmq import Broker
from shared.messages.rules.answers import Reason
from shared.messages.rules.ledger import Message, reject
from shared.messages.rules.singles import SILENCE, SendSingles, read_singles_owner, singles_owner
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.runtime.cached import Coalescer
from shared.runtime.faults import fault
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)

_REMEMBERED, _COUNTED_FOR_SECONDS = 1_000, 1.0
_KEPT_FOR, _PAGE = timedelta(hours=1), 500
_STORED_AT_ONCE, _SHORT = 100, 1 << 16


class _Asked(Struct, frozen=True):
    namespace: str
    rate: float
    count: int


class _Counted(Struct):
    """The number of due messages that wait, and when it was counted."""

    count: int
    at: float


class SendLimiter:
    """Limits callers to their rates, exactly over all processes: a burst is at most the messages of one second. At most
    `most_due` messages of a namespace may be due and wait."""

    def __init__(self, store: Store, time: DatabaseTime, *, most_due: int) -> None:
        self._store = store
        self._time = time
        self._most_due = most_due
        self._take = Coalescer(self._take_together)
        self._waiting: LRUCache[str, _Counted] = LRUCache(_REMEMBERED)

    async def let_through(self, namespace: str, *, rate: float, count: int = 1, at_least: int = 1) -> int:
        """The number of messages that may be sent now. Raises `TooMany` if that is fewer than `at_least`; then none
        counts."""
        granted, wait_seconds = await self._take(_Asked(namespace, rate, count))
        if granted < at_least:
            shown = f"{rate:g}"
            reason = f"this caller may send {shown} single messages a second: ask an admin for a token with more"
            raise TooMany(reason, retry_after_seconds=max(math.ceil(wait_seconds), 1))
        await self._check_room(namespace, count=granted)
        return granted

    async def _check_room(self, namespace: str, *, count: int) -> None:
        """Raise `TooMany` if too many would wait. The count may miss messages of the last second."""
        known, now = self._waiting.get(namespace), time.monotonic()
        if known is None or now - known.at > _COUNTED_FOR_SECONDS:
            due = await self._store.singles.count_due(namespace, now=await self._time.now(), most=self._most_due)
            known = self._waiting[namespace] = _Counted(due, now)
        if known.count + count > self._most_due:
            reason = (
                f"{known.count:,} single messages of this caller are due and wait, and providers.waiting_singles "
                f"allows {self._most_due:,}: send fewer at once, or ask an operator to raise it"
            )
            raise TooMany(reason, retry_after_seconds=10)
        known.count += count

    async def _take_together(self, asked: Sequence[_Asked]) -> list[tuple[int, float]]:
        now, answers = await self._time.now(), [(0, 0.0)] * len(asked)
        for namespace, rate in dict.fromkeys((one.namespace, one.rate) for one in asked):
            theirs = [place for place, one in enumerate(asked) if (one.namespace, one.rate) == (namespace, rate)]
            wanted = sum(asked[place].count for place in theirs)
            granted = await self._store.send_limits.take(namespace, wanted, rate=rate, now=now)
            left = granted.count
            for place in theirs:
                part = min(asked[place].count, left)
                answers[place], left = (part, granted.wait_seconds), left - part
        return answers


class _Wish(Struct, frozen=True):
    """Messages to store, their contents, and the caller's trace."""

    messages: Sequence[Message]
    contents: Mapping[str, str]
    trace: str

    @property
    def is_small(self) -> bool:
        """Whether it is a single short message."""
        return len(self.messages) == 1 and sum(map(len, self.contents.values())) <= _SHORT


class SingleFlow:
    def __init__(self, store: Store, broker: Broker, time: DatabaseTime) -> None:
        self._store = store
        self._broker = broker
        self._time = time
        self._accept = Coalescer(self._accept_all, most=_STORED_AT_ONCE)

    async def accept(self, messages: Sequence[Message], contents: Mapping[str, str]) -> dict[str, Message]:
        """Store messages with their contents; returns existing ones by id, which stay unchanged. Raises `Conflict` if
        the app of one is being deleted: then none is stored."""
        wish = _Wish(messages, contents, current_trace())
        # A long wish goes alone, so that short ones do not wait for it.
        there = await self._accept(wish) if wish.is_small else (await self._accept_all([wish]))[0]
        if there is None:
            raise Conflict("the app is being deleted", field="appId", value=messages[0].app_id)
        return there

    async def _accept_all(self, wishes: Sequence[_Wish]) -> list[dict[str, Message] | None]:
        """The existing messages of each wish; `None` if its app is being deleted."""
        messages = {message.id: message for wish in reversed(wishes) for message in wish.messages}
        contents = {id_: content for wish in reversed(wishes) for id_, content in wish.contents.items()}
        await self._store.single_contents.add(contents, at=await self._time.now())
        known = await self._store.singles.add([*messages.values()])
        await fault("single.after_insert")
        going = await self._withdraw_of_deleted([message for message in messages.values() if message.id not in known])
        staying = [message for message in messages.values() if message.app_id not in going]
        await self._tell(staying, trace=wishes[0].trace)
        there = await self._store.messages.with_ids(sorted(known)) if known else {}
        answers: list[dict[str, Message] | None] = []
        for wish in wishes:
            if any(message.app_id in going for message in wish.messages):
                answers.append(None)
                continue
            answers.append({message.id: there[message.id] for message in wish.messages if message.id in there})
            # A concurrent request with the same key finds what the first has stored.
            for message in wish.messages:
                there.setdefault(message.id, messages[message.id])
        return answers

    async def _withdraw_of_deleted(self, stored: Sequence[Message]) -> set[str]:
        """Withdraw messages whose apps are being deleted: the deletion may have looked before they were stored. Returns
        the ids of these apps."""
        apps = await self._store.apps.with_ids(sorted({message.app_id for message in stored}))
        going = {id_ for id_ in (each.app_id for each in stored) if (app := apps.get(id_)) is None or app.deleting}
        if withdrawn := [message.id for message in stored if message.app_id in going]:
            await self._store.singles.withdraw(withdrawn)
            await self._store.single_contents.remove(withdrawn)
        return going

    async def _tell(self, messages: Collection[Message], *, trace: str) -> None:
        """Tell workers about due messages, and the clock about later ones."""
        now, due = await self._time.now(), dict[str, set[datetime]]()
        for message in messages:
            if message.pending is not None:
                due.setdefault(message.credential_id, set()).add(message.pending.due)
        # In parallel, so that accounts do not wait for each other while a broker does not answer.
        await asyncio.gather(*(self._tell_of(each, due[each], now, trace=trace) for each in sorted(due)))

    async def _tell_of(self, credential_id: str, moments: AbstractSet[datetime], now: datetime, *, trace: str) -> None:
        later = sorted(moment for moment in moments if moment > now)
        try:
            if later:
                await self.wake_at(credential_id, *later)
            if len(later) < len(moments):
                await self.wake(credential_id, trace=trace)
        except Unavailable as error:
            log.warning("single messages wait for upkeep", credential=credential_id, reason=str(error))

    async def cancel(self, message: Message) -> bool:
        """Cancel a message that is not being sent; `False` if it has changed since it was read."""
        now = from_ms(ms(await self._time.now()))
        cancelled = EntryChange(message, reject(message, Reason.CANCELLED, at=now))
        if await self._store.messages.fold([cancelled]) is not WriteResult.DONE:
            return False
        await self._store.single_contents.remove([message.id])
        if message.pending is not None and message.pending.due > now:
            await self._forget_moment(message.credential_id, message.pending.due)
        return True

    async def _forget_moment(self, credential_id: str, due: datetime) -> None:
        """Remove an instant for which no message waits any more."""
        try:
            if await self._store.singles.has_due_at(credential_id, due):
                return
            await self._store.occurrences.remove(occurrence_id(singles_owner(credential_id), str(ms(due)), due))
            # A message that was stored meanwhile may have found the instant there.
            if await self._store.singles.has_due_at(credential_id, due):
                await self.wake_at(credential_id, due)
        except Unavailable as error:
            log.warning("an instant without messages stays", credential=credential_id, reason=str(error))

    async def forget_contents(self) -> None:
        """Remove contents of messages that are not pending, which dead processes have left."""
        before, after = await self._store.now() - _KEPT_FOR, ""
        while True:
            old, after = await self._store.single_contents.page(after=after, before=before, limit=_PAGE)
            entries = await self._store.messages.with_ids(old)
            over = [id_ for id_ in old if (entry := entries.get(id_)) is None or entry.pending is None]
            if over:
                await self._store.single_contents.remove(over)
            if not after:
                return

    async def wake(self, credential_id: str, *, trace: str = "") -> None:
        task = SendSingles(credential_id=credential_id, trace=trace or current_trace())
        await self._broker.publish(task.queue, encode(task))

    async def wake_at(self, credential_id: str, *moments: datetime) -> None:
        """Let a worker send at these moments."""
        owner, now = singles_owner(credential_id), await self._time.now()
        await self._store.occurrences.add([once(owner, str(ms(due)), due, accepted_at=now) for due in moments])

    async def wake_due(self, occurrence: Occurrence) -> None:
        await self.wake(read_singles_owner(occurrence.owner))

    async def wake_lost(self) -> None:
        """Tell workers again about messages that have been due for `SILENCE` and that no worker holds."""
        since, credential_id = await self._store.now() - SILENCE, ""
        while (found := await self._store.singles.find_waiting(since=since, after=credential_id)) is not None:
            credential_id = found
            lease = await self._store.singles.get_lease(credential_id)
            if lease is None or not lease.is_held(await self._store.now()):
                await self.wake(credential_id)
