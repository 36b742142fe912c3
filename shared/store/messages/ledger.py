"""The ledger of messages: an entry for each message that was ever sent, and tallies that are exact at any moment.

Entries and tallies change in one transaction. There are two tallies for a batch, so that a worker never waits for a
callback: the worker's stands in the batch itself and is fenced by the batch's owner, and that of callbacks in
`tallies`. The true tally of the batch is their sum.

A process that dies in a transaction leaves it open, and the server keeps what it has touched from others for up to a
minute. So whoever sends a batch does all its writing in one session (`WritingSession`), whose id is the batch's owner:
who finds the owner gone ends its session first (`end_session`).

Each change names the entry as it was read. One that has changed since is not touched, and neither is any other entry of
the same write: whoever writes reads again and decides anew. So a write that may have happened is safe to repeat.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Self

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from shared.domain.messages.batches import receipt_of_states
from shared.domain.messages.events import message_event
from shared.domain.messages.ledger import Message, add_tallies, batch_prefix, difference, prefix_of
from shared.store.documents import Codec, Document, is_duplicate, make, of_same_place, translate_errors
from shared.store.messages.sums import beginning_with
from shared.store.outbox import OUTBOX, prepare_for_outbox
from shared.store.transactions import OwnSession, end_session, run_transaction

WRITTEN_AT_ONCE = 200
"""How many entries one write should have at most: the server works on them in one transaction."""

Transact = Callable[[AsyncClientSession], Awaitable[None]]
"""Writes in the transaction of this session."""

# The server looks each document up in a list of all of them: twice as many take more than twice as long.
_UPDATED_AT_ONCE = 100
_SESSION_ID = re.compile(r"[0-9a-f]{32}")
_codec = Codec(Message)


class EntryChange(Struct, frozen=True):
    """One entry as it was read, `None` where there was none, and as it is to be; `between` are the entries of the steps
    from one to the other."""

    before: Message | None
    after: Message
    between: tuple[Message, ...] = ()


class WritingSession:
    """In which all writing for one batch is done, one write at a time; the batch was written for last at `wrote_at`, by
    our own clock."""

    def __init__(self, own: OwnSession) -> None:
        self.own = own
        self.lock = asyncio.Lock()
        self.wrote_at = time.monotonic()

    def owner(self, turn: int) -> str:
        """The owner of a batch that was taken with this turn, to be written for in this session."""
        return f"{self.own.name}/{turn}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self.lock:
            await self.own.close()


class WriteResult(Enum):
    """How a write ended."""

    DONE = "done"
    STALE = "stale"  # an entry has changed since it was read: nothing was written
    LOST = "lost"  # the batch belongs to somebody else: nothing was written


class _NotWritten(Exception):
    """Ends a transaction in which nothing may be written."""

    def __init__(self, result: WriteResult) -> None:
        super().__init__(result)
        self.result = result


class MessageLedger:
    """The `messages` collection, `tallies`, and the field `tally` of batches. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._messages = database["messages"]
        self._tallies = database["tallies"]
        self._batches = database["batches"]
        self._leases = database["send_leases"]

    async def setup(self) -> None:
        """Make the indexes, and the collection without any: a transaction on an older server cannot."""
        await self._messages.create_index([("app_id", ASCENDING), ("to", ASCENDING)])
        await self._messages.create_index([("ref", ASCENDING)], sparse=True)
        await make(self._tallies)

    async def get(self, message_id: str) -> Message | None:
        """An entry."""
        with translate_errors():
            return _codec.maybe(await self._messages.find_one({"_id": message_id}))

    async def with_ids(self, message_ids: Sequence[str]) -> dict[str, Message]:
        """The entries of these that there are, by id."""
        with translate_errors():
            # They are small: not a few at a time, as large documents are read.
            found = await self._messages.find({"_id": {"$in": list(message_ids)}}).to_list()
        return {message.id: message for message in map(_codec.value, found)}

    async def with_refs(self, refs: Sequence[str]) -> dict[str, Message]:
        """The entries that a provider calls so, by that name, as far as it calls no other one the same. The names are
        those of one account."""
        wanted = set(refs)
        while wanted:
            # A provider may call all of its messages the same: of these some are enough to see that.
            most = 2 * len(wanted)
            with translate_errors():
                found = await self._messages.find({"ref": {"$in": sorted(wanted)}}).limit(most).to_list()
            entries = list(map(_codec.value, found))
            counts = Counter(entry.ref for entry in entries)
            if len(entries) < most:
                return {entry.ref: entry for entry in entries if counts[entry.ref] == 1}
            wanted -= {ref for ref, count in counts.items() if count > 1}
        return {}

    async def read_batch(self, incarnation: str, ordinal: int) -> dict[str, Message]:
        """The entries of a job's batch, by id."""
        with translate_errors():
            found = await self._messages.find(beginning_with(batch_prefix(incarnation, ordinal))).to_list()
        return {message.id: message for message in map(_codec.value, found)}

    def open_session(self) -> WritingSession:
        """A session to write in."""
        return WritingSession(OwnSession(self._database))

    async def end_session(self, owner: str) -> None:
        """End the session of an owner who is gone, and the transaction that may be open in it. One who is not gone
        begins that anew, and finds the batch taken."""
        if found := _SESSION_ID.match(owner):
            await end_session(self._database, found[0])

    async def write(
        self,
        batch_id: str,
        owner: str,
        changes: Sequence[EntryChange],
        session: WritingSession | None = None,
        *,
        of_singles: bool = False,
        beside: Transact | None = None,
    ) -> WriteResult:
        """Change entries of a batch that this owner sends, and its tally; in the owner's session, if it has one. If
        they are `of_singles`, they are single messages, whose lease has the id of their credential, and have no tally.
        `beside` writes more in the same transaction."""
        owned = self._leases if of_singles else self._batches
        tally = {} if of_singles else add_tallies(difference(change.before, change.after) for change in changes)
        counted = _increments({"tally": tally, "receipt": _told_of(tally)})
        events = await self._prepare_events(changes)

        async def transact(running: AsyncClientSession) -> None:
            moved = await owned.update_one(
                {"_id": batch_id, "owner": owner},
                {"$currentDate": {"changed_at": True}} | counted,
                session=running,
            )
            if not moved.matched_count:
                raise _NotWritten(WriteResult.LOST)
            await self._change(changes, events, running)
            if beside is not None:
                await beside(running)

        if session is None:
            return await self._run(transact)
        async with session.lock:
            result = await self._run(transact, session.own)
            session.wrote_at = time.monotonic()
        return result

    async def fold(self, changes: Sequence[EntryChange], *, beside: Transact | None = None) -> WriteResult:
        """Change entries by what callbacks tell, and their batches' tallies; `beside` writes more in the same
        transaction."""
        tallies: dict[str, Counter[str]] = {}
        for change in changes:
            if prefix := prefix_of(change.after.id):
                tallies.setdefault(prefix, Counter()).update(difference(change.before, change.after))
        events = await self._prepare_events(changes)

        async def transact(session: AsyncClientSession) -> None:
            await self._change(changes, events, session)
            if beside is not None:
                await beside(session)
            # Last, as other callbacks may wait for them.
            for prefix, tally in sorted(tallies.items()):
                if changed := _increments({"": add_tallies([tally])}):
                    await self._tallies.update_one({"_id": prefix}, changed, upsert=True, session=session)

        return await self._run(transact)

    async def _prepare_events(self, changes: Sequence[EntryChange]) -> list[Document]:
        steps = [step for change in changes for step in pairwise((change.before, *change.between, change.after))]
        events = [message_event(before, after) for before, after in steps if after is not None]
        with translate_errors():
            return await prepare_for_outbox(self._database, [event for event in events if event is not None])

    async def _change(
        self, changes: Sequence[EntryChange], events: Sequence[Document], session: AsyncClientSession
    ) -> None:
        """Raises `_NotWritten` where an entry is not as it was read."""
        fresh = [_codec.document(change.after) for change in changes if change.before is None]
        known = [(change.before, change.after) for change in changes if change.before is not None]
        if fresh:
            try:
                await self._messages.insert_many(fresh, ordered=True, session=session)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise
                raise _NotWritten(WriteResult.STALE) from None
        for first in range(0, len(known), _UPDATED_AT_ONCE):
            await self._replace(known[first : first + _UPDATED_AT_ONCE], session)
        if events:
            await self._database[OUTBOX].insert_many(events, session=session)

    async def _replace(self, known: Sequence[tuple[Message, Message]], session: AsyncClientSession) -> None:
        """Raises `_NotWritten` where an entry is not as it was read."""
        ids = [before.id for before, _ in known]
        is_as_read = {"$eq": ["$v", of_same_place(ids, [before.v for before, _ in known])]}
        after = of_same_place(ids, [_codec.document(after) for _, after in known])
        # Ids alone choose the documents: beside other conditions the server may not go by them.
        replaced = await self._messages.update_many(
            {"_id": {"$in": ids}}, [{"$replaceWith": {"$cond": [is_as_read, after, "$$ROOT"]}}], session=session
        )
        if replaced.modified_count < len(known):
            raise _NotWritten(WriteResult.STALE)

    async def _run(self, transact: Transact, own: OwnSession | None = None) -> WriteResult:
        try:
            await run_transaction(self._database, transact, session=own)
        except _NotWritten as refused:
            return refused.result
        return WriteResult.DONE


def turn_of(owner: str) -> int | None:
    """The turn with which this owner took its batch; `None` where that is not known."""
    turn = owner.partition("/")[2]
    return int(turn) if turn.isdigit() else None


def _told_of(tally: Mapping[str, int]) -> dict[str, int]:
    """The counts that a change adds to its batch's receipt, which tells how far the batch is before it is settled."""
    receipt = receipt_of_states(tally, {})
    return {"sent": receipt.sent, "failed": receipt.failed, "skipped": receipt.skipped}


def _increments(fields: Mapping[str, Mapping[str, int]]) -> Document:
    """The change that adds these counts to fields of a document; `""` stands for the document itself."""
    counts = {f"{field}.{name}".lstrip("."): count for field, told in fields.items() for name, count in told.items()}
    return {"$inc": counts} if any(counts.values()) else {}
