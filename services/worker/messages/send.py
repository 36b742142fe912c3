"""The sender of messages: sends the due messages of one batch, by its job's credential.

    find ──> take ──> recover ──> gate ──> read ──> screen ──> dispatch ──> settle ──> feed
                                   └──────────> put back <───────┘

The ledger says which messages were sent, so any worker may leave or continue a batch: no recipient is called twice
unless the policy for `unknown` messages says so. Recovery comes first, whatever the job's status: a batch with an owner
may have messages with an unknown result. The batch returns to its plan if some messages are to be called later, and is
settled when none is left.

While a batch is being sent, its credential is fed, so that the next batch is prepared meanwhile. This runs beside the
sending: a broker that does not answer delays no batch, and failures are tried again when the batch ends. A dry run
calls no provider and only writes the counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import assert_never

import structlog
from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from services.worker.consumer import Stage
from services.worker.jobs.finish import Grace
from services.worker.messages.dispatch import DispatchEnd
from services.worker.messages.entries import BatchTaken, EntryWriter, Note, Prepared, Purpose
from services.worker.messages.in_hand import BatchesInHand, BatchInHand, falls_silent
from services.worker.messages.opening import Dispatches
from services.worker.messages.rows import (
    Mailings,
    MessagesOfJob,
    RecipientRows,
    RowsReader,
    Screened,
    fit,
    ids_of,
    screen,
)
from shared.core.errors import Invalid, Unavailable
from shared.core.instants import from_ms
from shared.jobs.feed import Feed
from shared.jobs.moves import JobFlow
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.events import SEND
from shared.jobs.rules.jobs import Gate, Standing, gate, split_key
from shared.messages.barring import UnsubscribeLinks
from shared.messages.credentials import CredentialFlow
from shared.messages.feeding import CredentialFeed
from shared.messages.halting import BounceBreaker
from shared.messages.rules.credentials import Credential, OnUnknown
from shared.messages.rules.jobs import Repeating, due_at, receipt_of_entries
from shared.messages.rules.ledger import Message, MessageState, add_tallies, difference, reject
from shared.messages.rules.singles import SendMessages
from shared.messages.store_ledger import WRITTEN_AT_ONCE, WritingSession, turn_of
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)


class EarlyFeed:
    """Feeds credentials, each once at a time."""

    def __init__(self, feed: CredentialFeed) -> None:
        self._feed = feed
        self._feeding: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def begin(self, credential_id: str) -> None:
        """Feed this credential soon; if it is being fed, once more."""
        if credential_id in self._feeding:
            self._again.add(credential_id)
        else:
            self._feeding[credential_id] = asyncio.create_task(self._feed_one(credential_id))

    async def close(self) -> None:
        """Wait for running feeds, because a queued batch has to be published."""
        await asyncio.gather(*self._feeding.values())

    async def _feed_one(self, credential_id: str) -> None:
        try:
            await self._feed.feed_credential(credential_id)
            while credential_id in self._again:
                self._again.remove(credential_id)
                await self._feed.feed_credential(credential_id)
        except Unavailable as error:
            log.warning("the next batch is not let in yet", credential=credential_id, reason=str(error))
        except Exception:
            log.exception("the next batch is not let in", credential=credential_id)
        finally:
            self._again.discard(credential_id)
            del self._feeding[credential_id]


async def settle_counted(
    store: Store,
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
) -> Batch | None:
    """Settle a batch as if the provider accepted every call. `None` if another worker has it."""
    screened = await screen(store, links, mailing, credential, batch, rows, {}, now=await store.now())
    taken = [replace(prepared.message, state=MessageState.SENT, attempt=1) for prepared in screened.prepared]
    entries = [*taken]
    for note in screened.rejected:
        assert note.at is not None
        entries.append(reject(note.prepared.message, note.reason, at=note.at, detail=note.detail))
    return await store.message_batches.settle(
        batch,
        to=BatchStatus.SENT,
        receipt=receipt_of_entries(entries),
        size=len(rows.numbers),
        tally=add_tallies(difference(None, entry) for entry in entries),
    )


_WorkAtBatch = Callable[[BatchInHand, WritingSession], Awaitable[Batch | None]]
_REMEMBERED_OWNERS = 10_000
_NOTHING_AGAIN = Repeating()


class _Batch(Struct, frozen=True):
    """A batch that this worker owns, with the dependencies of its sending."""

    batch: Batch
    mailing: MessagesOfJob
    credential: Credential
    session: WritingSession


class MessageSender(Stage[SendMessages]):
    """The stage behind `message.batch`."""

    task = SendMessages

    def __init__(
        self,
        store: Store,
        mailings: Mailings,
        reader: RowsReader,
        dispatches: Dispatches,
        credentials: CredentialFlow,
        links: UnsubscribeLinks,
        credential_feed: CredentialFeed,
        feed: Feed,
        flow: JobFlow,
        bounces: BounceBreaker,
        grace: Grace,
        clock: Clock,
        *,
        in_flight: int,
    ) -> None:
        self.in_flight = in_flight
        self._store = store
        self._mailings = mailings
        self._reader = reader
        self._dispatches = dispatches
        self._credentials = credentials
        self._links = links
        self._credential_feed = credential_feed
        self._early_feed = EarlyFeed(credential_feed)
        self._feed = feed
        self._flow = flow
        self._bounces = bounces
        self._grace = grace
        self._clock = clock
        self._in_hand = BatchesInHand(store, bounces, clock, most=in_flight)
        self._at: dict[str, int] = {}
        self._own: LRUCache[str, bool] = LRUCache(_REMEMBERED_OWNERS)

    async def run(self, task: SendMessages) -> None:
        batch = await self._find(task)
        if batch is None:
            return
        with structlog.contextvars.bound_contextvars(job_id=batch.job_id, batch=batch.ordinal):
            await self._work(batch, self._bring_on)

    async def run_again(self, task: SendMessages) -> None:
        """As `run`, but a batch that a dead worker owns by this very task gets a new turn."""
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        if batch is not None and batch.is_on_its_way and self._has_come_twice(task, batch):
            if await falls_silent(self._store, batch):
                await self._feed.requeue(batch)
        else:
            await self.run(task)

    async def put_off(self, task: SendMessages) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: SendMessages, reason: str) -> None:
        """Settle a batch that cannot be sent: messages without an entry stay unsent."""

        async def settle(held: BatchInHand, session: WritingSession) -> Batch | None:
            log.error("batch cannot be sent", job_id=held.batch.job_id, batch=held.batch.ordinal, reason=reason)
            return await self._end(held.batch, session, BatchStatus.FAILED)

        batch = await self._find(task)
        if batch is not None:
            await self._work(batch, settle)

    def stop(self) -> None:
        self._in_hand.stop()

    async def close(self) -> None:
        await self._early_feed.close()
        await self._dispatches.close()

    async def _work(self, batch: Batch, work: _WorkAtBatch) -> None:
        """Take the batch, work at it, and feed the next one; `work` returns the batch if this worker is done with it.
        No other task of this process works at it meanwhile."""
        self._at[batch.id] = batch.turn
        try:
            async with self._store.messages.open_session() as session:
                owned = await self._take(batch, session)
                if owned is None:
                    return
                with self._in_hand.hold(owned, session) as held:
                    left = await work(held, session)
        finally:
            del self._at[batch.id]
        if left is not None:
            standing = await self._leave_place(left)
            if standing is not None and left.settled and standing.may_finish:
                await self._feed.finish_if_done(left.job_id)

    async def _find(self, task: SendMessages) -> Batch | None:
        """The batch to work on; `None` if the task is void, or the batch is in hand here. Raises `Unavailable` while an
        earlier turn is in hand: a worker that puts a batch back may get it again at once."""
        if self._in_hand.stopping:
            raise Unavailable("this process is stopping; the batch is sent elsewhere")
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        if batch is None:
            return None
        if (ours := self._at.get(batch.id)) is not None:
            if task.turn > ours:
                raise Unavailable("this process is not done yet with an earlier turn of the batch")
            return None
        if batch.turn == task.turn and batch.is_on_its_way:
            return None if self._has_come_twice(task, batch) else batch
        if not batch.is_on_its_way:
            await self._leave_place(batch)
        return None

    def _has_come_twice(self, task: SendMessages, batch: Batch) -> bool:
        """Whether another worker owns the batch by this very task."""
        return batch.turn == task.turn == turn_of(batch.owner) and batch.owner not in self._own

    async def _take(self, batch: Batch, session: WritingSession) -> Batch | None:
        """Take the batch, to be written in this session; `None` if another worker was faster."""
        if batch.owner:
            await self._store.messages.end_session(batch.owner)
            disowned = await self._store.batches.disown(batch)
            if disowned is None:
                return None
            await fault("message.after_disown")
            batch = disowned
        owner = session.owner(batch.turn)
        self._own[owner] = True
        owned = await self._store.batches.take(batch, owner=owner)
        await fault("message.after_take")
        return owned

    async def _bring_on(self, held: BatchInHand, session: WritingSession) -> Batch | None:
        """The batch, settled or back in its plan; `None` if another worker has it now."""
        batch = held.batch
        try:
            mailing = await self._mailings.prepare(batch.job_id)
            credential = await self._store.credentials.get(mailing.job.credential_id)
            if credential is None or mailing.job.app_id not in credential.usable_by:
                failure = "the job's credential is gone, or is another app's"
                await self._flow.stop(batch.job_id, failure=failure, stage=SEND)
                return await self._end(batch, session, BatchStatus.DROPPED)
            async with self._grace.give(mailing.job, stage=SEND):
                return await self._send(held, _Batch(batch, mailing, credential, session))
        except BatchTaken:
            return None
        except Invalid as error:
            return await self._fail_unreadable(batch, session, error)

    async def _send(self, held: BatchInHand, ours: _Batch) -> Batch | None:
        batch = ours.batch
        entries = await self._recover(batch, ours.session, self._repeating_of(ours))
        standing = await self._store.jobs.get_standing(batch.job_id)
        match Gate.DROP if standing is None else gate(standing, self._clock.now_ns()):
            case Gate.PARK:
                return await self._store.message_batches.put_back(batch)
            case Gate.DROP:
                return await self._end(batch, ours.session, BatchStatus.DROPPED)
            case Gate.OPEN:
                pass
            case other:
                assert_never(other)
        if ours.mailing.options.dry_run:
            rows = await self._reader.read(ours.mailing, batch)
            return await settle_counted(self._store, self._links, ours.mailing, ours.credential, batch, rows)
        rank = (0.0, ours.mailing.job.created_at, ours.mailing.job.key)
        if not await self._credential_feed.keep_place(ours.credential.id, batch, rank):
            return await self._store.message_batches.put_back(batch)
        rows = await self._reader.read(ours.mailing, batch)
        resent = ours.mailing.resending.round > 0
        ours = replace(ours, batch=await fit(self._store, batch, rows, entries, resent=resent))
        screened = await self._screen(ours, rows, entries)
        end, free_us = await self._dispatch(held, ours, screened)
        await fault("message.before_settle")
        return await self._leave_batch(ours, rows, end, free_us)

    async def _recover(
        self, batch: Batch, session: WritingSession, repeating: Repeating = _NOTHING_AGAIN
    ) -> Mapping[str, Message]:
        """The batch's entries. The messages that a dead worker left are decided, as far as possible now."""
        now, entries = await self._store.now(), await self._read_entries(batch)
        prepared = [Prepared(entry, {}, is_stored=True) for entry in entries.values()]
        lost = [Note(each, Purpose.RECOVER, at=now) for each in prepared if each.message.is_sending]
        writer = EntryWriter(self._store, batch_id=batch.id, owner=batch.owner, session=session, repeating=repeating)
        for first in range(0, len(lost), WRITTEN_AT_ONCE):
            # The task comes again later if the ledger cannot be written now.
            await writer.write(lost[first : first + WRITTEN_AT_ONCE], patience_seconds=0)
        found = [each for note in lost if not (each := note.prepared.message).is_sending]
        if found:
            repeated = sum(entry.is_unsent for entry in found)
            log.warning("messages of a lost worker", messages=len(found), repeated=repeated)
        return {each.message.id: each.message for each in prepared if not each.is_gone}

    async def _screen(self, ours: _Batch, rows: RecipientRows, entries: Mapping[str, Message]) -> Screened:
        now = await self._store.now()
        screened = await screen(
            self._store, self._links, ours.mailing, ours.credential, ours.batch, rows, entries, now=now
        )
        writer = self._writer(ours)
        for first in range(0, len(screened.rejected), WRITTEN_AT_ONCE):
            await writer.write(screened.rejected[first : first + WRITTEN_AT_ONCE])
        return screened

    async def _dispatch(self, held: BatchInHand, ours: _Batch, screened: Screened) -> tuple[DispatchEnd, int]:
        """Why sending ended, and when instants are granted again."""
        if not screened.prepared:
            return DispatchEnd.DONE, 0
        opening = self._dispatches.open(
            ours.credential,
            self._writer(ours),
            holder=ours.batch.id,
            turn=ours.batch.turn,
            let_next_in=partial(self._early_feed.begin, ours.credential.id),
        )
        async with opening as dispatch:
            held.dispatch = dispatch
            if self._in_hand.stopping:
                dispatch.stop()
            end = await dispatch.run(screened.prepared)
            if end is DispatchEnd.REJECTED:
                await self._credentials.reject(ours.credential, dispatch.refusal)
            return end, dispatch.free_us

    def _writer(self, ours: _Batch) -> EntryWriter:
        return EntryWriter(
            self._store,
            batch_id=ours.batch.id,
            owner=ours.batch.owner,
            attempts=ours.credential.retry.attempts,
            resending=ours.mailing.resending,
            session=ours.session,
            repeating=self._repeating_of(ours),
            channel=ours.mailing.options.channel,
        )

    def _repeating_of(self, ours: _Batch) -> Repeating:
        """Which `unknown` messages are sent again: all if the job wants it, else those that the provider drops if
        repeated."""
        wanted = ours.mailing.options.on_unknown is OnUnknown.RETRY
        return Repeating(wanted, self._credentials.repeats_within(ours.credential))

    async def _leave_batch(self, ours: _Batch, rows: RecipientRows, end: DispatchEnd, free_us: int) -> Batch | None:
        """The batch, settled if no call is left, or back in its plan."""
        match end:
            case DispatchEnd.TAKEN:
                return None
            case DispatchEnd.DONE:
                return await self._settle_or_wait(ours, rows)
            case DispatchEnd.LATER:
                return await self._wait_until(ours, from_ms(free_us // 1_000))
            case DispatchEnd.STOPPED | DispatchEnd.YIELDED | DispatchEnd.FORBIDDEN | DispatchEnd.REJECTED:
                return await self._put_back_or_drop(ours)
            case other:
                assert_never(other)

    async def _settle_or_wait(self, ours: _Batch, rows: RecipientRows) -> Batch | None:
        entries, now = await self._read_entries(ours.batch), await self._store.now()
        calling = {id_ for id_, entry in entries.items() if entry.is_sending}
        due = [
            due_at(entries.get(id_), ours.mailing.resending, ours.credential.retry, now=now)
            for id_ in calling.union(ids_of(ours.batch, rows))
        ]
        moments = [moment for moment in due if moment is not None]
        if moments:
            return await self._wait_until(ours, min(moments))
        return await self._settle(ours.batch, BatchStatus.SENT)

    async def _wait_until(self, ours: _Batch, moment: datetime) -> Batch | None:
        left = await self._store.message_batches.put_back(ours.batch, not_before=moment)
        if left is not None:
            await self._credential_feed.feed_at(ours.credential.id, moment)
        return left

    async def _put_back_or_drop(self, ours: _Batch) -> Batch | None:
        standing = await self._store.jobs.get_standing(ours.batch.job_id)
        if standing is None or gate(standing, self._clock.now_ns()) is Gate.DROP:
            return await self._end(ours.batch, ours.session, BatchStatus.DROPPED)
        return await self._store.message_batches.put_back(ours.batch)

    async def _end(self, batch: Batch, session: WritingSession, to: BatchStatus) -> Batch | None:
        """Settle a batch of which nothing more is sent: messages without an entry stay unsent. Calls of a lost worker
        are waited for, because only then their result may be judged."""
        entries, now = await self._read_entries(batch), await self._store.now()
        open_until = [entry.until or now for entry in entries.values() if entry.is_sending]
        if open_until:
            await asyncio.sleep(max((max(open_until) - now).total_seconds(), 0) + 0.001)
            await self._recover(batch, session)
        return await self._settle(batch, to)

    async def _settle(self, batch: Batch, to: BatchStatus) -> Batch | None:
        receipt = receipt_of_entries(list((await self._read_entries(batch)).values()))
        settled = await self._store.message_batches.settle(batch, to=to, receipt=receipt, size=batch.size)
        await self._bounces.look(batch.job_id)
        return settled

    async def _fail_unreadable(self, batch: Batch, session: WritingSession, error: Invalid) -> Batch | None:
        """A changed file or a missing table cannot be read any more."""
        job = await self._store.jobs.view(batch.job_id)
        if job is not None and error.field == "csvPath":
            await self._flow.stop_over_file(job, error.reason)
        elif job is not None:
            await self._flow.stop(job.key, failure=error.reason, stage=SEND)
        return await self._end(batch, session, BatchStatus.DROPPED)

    async def _read_entries(self, batch: Batch) -> dict[str, Message]:
        return await self._store.messages.read_batch(split_key(batch.job_id)[1], batch.ordinal)

    async def _leave_place(self, batch: Batch) -> Standing | None:
        standing = await self._store.jobs.get_standing(batch.job_id)
        if standing is not None:
            await self._credential_feed.leave(standing.credential_id, batch.id, turn=batch.turn)
            await self._credential_feed.feed_credential(standing.credential_id)
        return standing
