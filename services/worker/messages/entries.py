"""Writing a batch's entries in the ledger, repeated until they are written.

Each note says what happens to a message: it is about to be called, it was answered, or it is not called after all. The
change of its entry is decided anew at every try, from the present entry. Meanwhile a callback may have changed it, or a
write with a lost reply may have happened. If an answer says that an address will never work, the address is suppressed
in the same transaction.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import assert_never

import structlog
from msgspec import Struct

from shared.core.errors import Unavailable
from shared.messages.barring import bars_beside
from shared.messages.rules.answers import Answer, Channel, Reason
from shared.messages.rules.jobs import Repeating, Resending
from shared.messages.rules.ledger import (
    Message,
    answer,
    give_back,
    is_to_be_sent,
    postpone,
    recover,
    reject,
    write_ahead,
)
from shared.messages.store_ledger import EntryChange, Transact, WriteResult, WritingSession
from shared.providers import Content
from shared.runtime.loops import Backoff, next_delay
from shared.runtime.metrics import MESSAGES_UNKNOWN
from shared.store import Store

log = structlog.get_logger(__name__)

_PAUSES = Backoff(first_seconds=0.02, cap_seconds=1)
_LATE_TRIES = 15
_BEHIND = "MongoDB: entries have changed, and no majority of the members has the changes yet"
_FIRST_ROUND = Resending()
_NOTHING_AGAIN = Repeating()


class Prepared(Struct):
    """One message, its content or the function that makes it at the call, and its recipient. `is_stored`: the ledger
    has an entry, which may be redacted; `is_gone`: it had one."""

    message: Message
    content: Content | Callable[[], Content]
    is_stored: bool = False
    to: str = ""
    is_gone: bool = False

    def __post_init__(self) -> None:
        self.to = self.to or self.message.to

    def make_content(self) -> Content:
        """The message's content, made once and kept for further tries."""
        if callable(self.content):
            self.content = self.content()
        return self.content

    def forget_content(self) -> None:
        self.content = {}


class Purpose(Enum):
    REJECT = "reject"  # it is not called at all
    AHEAD = "ahead"  # it is called soon
    BACK = "back"  # it was to be called, and was not
    ANSWER = "answer"  # it was called, and this came of it
    LATER = "later"  # it is not looked at before then
    RECOVER = "recover"  # a dead worker was going to call it


class Note(Struct):
    """One message and the change to write: `until` when no other worker touches it; or the answer that was `given` to
    this `attempt`, and when it came (`at`); or the `reason`, with a `detail`, for not calling."""

    prepared: Prepared
    purpose: Purpose
    until: datetime | None = None
    given: Answer | None = None
    attempt: int = 0
    at: datetime | None = None
    reason: Reason = Reason.OTHER
    detail: str = ""


class BatchTaken(Exception):
    """Another worker sends the batch now: nothing more may be written or called."""


class EntryWriter:
    """Writes entries of one batch for its `owner`, or `of_singles` for the lease of their credential. A message has
    `attempts` tries; `resending` says what its job sends again, `repeating` which possibly sent messages it repeats,
    and `channel` is that of the job's messages."""

    def __init__(
        self,
        store: Store,
        *,
        batch_id: str,
        owner: str,
        attempts: int = 3,
        resending: Resending = _FIRST_ROUND,
        session: WritingSession | None = None,
        repeating: Repeating = _NOTHING_AGAIN,
        of_singles: bool = False,
        channel: Channel = Channel.OTHER,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._channel = channel
        self._rest = rest
        self._store = store
        self._repeating = repeating
        self._of_singles = of_singles
        self._session = session
        self._batch_id = batch_id
        self._owner = owner
        self._attempts = attempts
        self._resending = resending

    async def write(self, notes: Sequence[Note], *, patience_seconds: float | None = None) -> None:
        """Write these notes; each message is then as its entry is. While the store is away this waits, at most
        `patience_seconds`. It also waits out a majority read that still shows an entry before a change that the write
        has met.

        Raises:
            BatchTaken: the batch has another owner.
            Unavailable: the store was away for longer than that.
        """
        deadline = None if patience_seconds is None else time.monotonic() + patience_seconds
        failures = 0
        while True:
            changes = self._changes(notes)
            try:
                result = await self._store.messages.write(
                    self._batch_id,
                    self._owner,
                    [change for _, change in changes],
                    self._session,
                    of_singles=self._of_singles,
                    beside=self._bars(notes, [change for _, change in changes]),
                )
                if result is WriteResult.STALE and not await self._read_again(notes):
                    raise Unavailable(_BEHIND)
            except Unavailable as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                failures += 1
                log.warning("the ledger cannot be written", reason=str(error), attempt=failures)
                await self._rest(next_delay(_PAUSES, failures, 0))
                continue  # whether it was written shows when it is written again
            match result:
                case WriteResult.DONE:
                    for prepared, change in changes:
                        prepared.message, prepared.is_stored = change.after, True
                    is_lost = any(note.purpose is Purpose.RECOVER for note in notes)
                    count_unknown((change for _, change in changes), why="lost_worker" if is_lost else "no_answer")
                    return
                case WriteResult.LOST:
                    raise BatchTaken
                case WriteResult.STALE:
                    failures = 0
                case _:
                    assert_never(result)

    async def record_late(self, notes: Sequence[Note]) -> None:
        """Record answers after the batch was taken: they count unless newer facts are known."""
        failures = 0
        await self._read_again(notes)
        while changes := [change for _, change in self._changes(notes)]:
            if await self._store.messages.fold(changes, beside=self._bars(notes, changes)) is WriteResult.DONE:
                return
            failures = 0 if await self._read_again(notes) else failures + 1
            if failures > _LATE_TRIES:
                raise Unavailable(_BEHIND)
            if failures:
                await self._rest(next_delay(_PAUSES, failures, 0))

    def is_ours(self, prepared: Prepared) -> bool:
        """Whether this owner has noted the message as about to be called."""
        message = prepared.message
        return not prepared.is_gone and message.is_sending and message.owner == self._owner

    def is_to_be_sent(self, prepared: Prepared) -> bool:
        """Whether the message is uncalled in this round of its job."""
        if prepared.is_gone:
            return False
        return is_to_be_sent(prepared.message, round=self._resending.round, states=self._resending.states)

    def _bars(self, notes: Sequence[Note], changes: Sequence[EntryChange]) -> Transact | None:
        """Only answers of the provider suppress: a recipient rejected here is barred from this list alone."""
        answered = {note.prepared.message.id for note in notes if note.purpose is Purpose.ANSWER}
        return bars_beside(self._store, [each for each in changes if each.after.id in answered], self._channel)

    def _changes(self, notes: Sequence[Note]) -> list[tuple[Prepared, EntryChange]]:
        changes = []
        for note in notes:
            prepared = note.prepared
            after = None if prepared.is_gone else self._entry_after(note)
            if after is not None:
                before = prepared.message if prepared.is_stored else None
                changes.append((prepared, EntryChange(before, after)))
        return changes

    def _entry_after(self, note: Note) -> Message | None:
        """The entry to write; `None` if nothing has to be written."""
        message = note.prepared.message
        match note.purpose:
            case Purpose.AHEAD:
                assert note.until is not None
                round_, to = self._resending.round, note.prepared.to
                wanted = self.is_to_be_sent(note.prepared)
                if wanted and note.at is not None and message.single is not None and message.single.is_over(note.at):
                    return reject(message, Reason.EXPIRED, at=note.at)
                within = self._repeating.within
                ahead = write_ahead(
                    message, owner=self._owner, until=note.until, round=round_, to=to, repeats_within=within
                )
                return ahead if wanted else None
            case Purpose.REJECT:
                assert note.at is not None
                wanted = self.is_to_be_sent(note.prepared)
                return reject(message, note.reason, at=note.at, detail=note.detail) if wanted else None
            case Purpose.BACK:
                return give_back(message) if self.is_ours(note.prepared) else None
            case Purpose.ANSWER:
                assert note.given is not None
                assert note.at is not None
                again = self._repeating.allows_own
                return answer(message, note.attempt, note.given, at=note.at, attempts=self._attempts, repeats=again)
            case Purpose.LATER:
                assert note.until is not None
                return None if self.is_ours(note.prepared) else postpone(message, note.until)
            case Purpose.RECOVER:
                assert note.at is not None
                return recover(message, owner=self._owner, now=note.at, repeats=self._repeating.allows(message))
            case _:
                assert_never(note.purpose)

    async def _read_again(self, notes: Sequence[Note]) -> bool:
        """Whether an entry has changed."""
        found = await self._store.messages.with_ids([note.prepared.message.id for note in notes])
        has_changed = False
        for prepared in (note.prepared for note in notes):
            before = prepared.message, prepared.is_gone
            if (message := found.get(prepared.message.id)) is not None:
                prepared.message, prepared.is_stored = message, True
            else:
                prepared.is_gone = prepared.is_stored
            has_changed |= before != (prepared.message, prepared.is_gone)
        return has_changed


def count_unknown(changes: Iterable[EntryChange], *, why: str) -> None:
    """Count the messages that became `unknown`, because of `no_answer` from a provider or a `lost_worker`."""
    MESSAGES_UNKNOWN.labels(why).inc(sum(change.after.is_unknown for change in changes))
