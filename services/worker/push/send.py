"""The sender of push: sends one batch.

    find ──> recover ──> gate ──> read ──> render ──> take ──> produce ──> settle ──> feed
                          └<───────────── advance, after a part of the batch ───┘

Recovery comes first, whatever the job's status: a batch with an owner may be sent already. Reading and rendering come
before the take, so that a transaction is short. Three lines guarantee exactly once: the take (a compare-and-set that
names the lane), the transaction (records and receipt as one), and recovery (fence, then look).

The renderer of a job's records and their topic are prepared once for all its batches.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from cachetools import LRUCache
from msgspec import Struct

from services.worker.consumer import Stage
from services.worker.jobs.finish import Grace
from services.worker.push import recipients as outcomes
from services.worker.push.recipients import RecipientReader, Recipients
from shared.core.errors import Invalid, LaneLost, Unavailable
from shared.drivers.kafka import Aborted, Lane, Stream
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.moves import JobFlow
from shared.jobs.rules.batches import Batch, BatchPart, BatchStatus, Receipt, is_hopeless, larger, verdict
from shared.jobs.rules.events import SEND, Event, EventState
from shared.jobs.rules.jobs import Gate, Job, SendBatch, Standing, gate
from shared.push.rules.records import SERVICES, RecordRules, fitting_records, topic_name
from shared.push.rules.rendering import Renderer
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import LANES_LOST, RECOVERIES
from shared.runtime.server_settings import StreamSettings
from shared.runtime.settings import WorkerSettings
from shared.runtime.tracing import span, trace_calls
from shared.store import Store

log = structlog.get_logger(__name__)
_REMEMBERED_JOBS = 16


class Sending(Struct, frozen=True):
    """The renderer of a job's records, their topic, and how many fit into one part."""

    job: Job
    renderer: Renderer
    topic: str
    fitting: int


class Sendings:
    def __init__(self, store: Store, topic_template: str, rules: RecordRules) -> None:
        self._store = store
        self._topic_template = topic_template
        self._rules = rules
        self._sendings: LRUCache[str, Sending] = LRUCache(_REMEMBERED_JOBS)

    async def prepare(self, job_key: str) -> Sending:
        """The sending of this job. Raises `Unavailable` if the job is gone or of another kind."""
        known = self._sendings.get(job_key)
        if known is None:
            job = await self._store.jobs.get(job_key)
            if job is None or job.service not in SERVICES:
                raise Unavailable(f"the job {job_key} is gone or its batches are sent by another stage")
            topic = topic_name(self._topic_template, job.app_name, job.service)
            known = Sending(job, Renderer(job, self._rules), topic, fitting_records(job))
            self._sendings[job_key] = known
        return known

    async def find_job(self, job_key: str) -> Job | None:
        """The job, from memory if one of its batches was sent recently."""
        known = self._sendings.get(job_key)
        return await self._store.jobs.view(job_key) if known is None else known.job


_REMEMBERED_LANES = 1_000
_TAKES = 3
# After this many takes in a row without a record, it becomes one of the job's events.
_TOLD_AT = 3


class Sender(Stage[SendBatch]):
    """The stage behind `push.batch`."""

    task = SendBatch

    def __init__(
        self,
        store: Store,
        reader: RecipientReader,
        stream: Stream,
        feed: Feed,
        flow: JobFlow,
        breaker: Breaker,
        grace: Grace,
        clock: Clock,
        *,
        worker: WorkerSettings,
        stream_settings: StreamSettings,
        rules: RecordRules,
    ) -> None:
        self.in_flight = worker.sends_in_flight
        self._store = store
        self._reader = reader
        self._stream = stream
        self._feed = feed
        self._flow = flow
        self._breaker = breaker
        self._grace = grace
        self._clock = clock
        self._worker = worker
        self._patience = stream_settings.transaction_timeout_seconds / 2
        # Beyond half their retention, "no marker" no longer proves that nothing was sent.
        self._knowable = timedelta(days=stream_settings.marker_retention_days / 2)
        self._sendings = Sendings(store, stream_settings.topic_template, rules)
        self._in_hand: dict[str, int] = {}
        self._lost: LRUCache[tuple[str, int], str] = LRUCache(_REMEMBERED_LANES)

    async def run(self, task: SendBatch) -> None:
        with structlog.contextvars.bound_contextvars(job_id=task.job_id, ordinal=task.ordinal):
            batch = await self._find(task)
            if batch is None:
                return
            with self._in_our_hands(batch):
                if batch.has_failed:
                    # The worker that settled it may have died before the look.
                    await self._breaker.look(batch.job_id)
                left, standing = await self._recover(batch), None
                while left is not None and left.is_on_its_way:
                    standing = await self._store.jobs.get_standing(task.job_id)
                    left = await self._send_part(left, standing)
                await self._feed_after(left, gated=standing)

    async def put_off(self, task: SendBatch) -> None:
        """Let the clock bring the batch back with a new turn. This includes a batch with an owner: the worker that
        takes the message recovers it, and once another lane has taken it, it does not come back. The lost lane is
        forgotten with this turn: in the new turn no lane is lost."""
        await self._feed.put_off(task)

    async def give_up(self, task: SendBatch, reason: str) -> None:
        """Fail a batch that cannot be sent, so that its chain goes on. A batch with an owner is recovered first,
        because it may be sent."""
        batch = await self._find(task)
        left = None if batch is None else await self._recover(batch)
        if left is not None and not left.settled:
            left = await self._fail(left, outcomes.FAULT, reason)
        await self._feed_after(left)

    async def _find(self, task: SendBatch) -> Batch | None:
        """The batch; `None` if the message is void, or another worker has it. Raises `Unavailable` while an earlier
        turn, which can take nothing any more, is in hand here."""
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        if batch is None or batch.turn != task.turn or self._is_taken_by_another(batch):
            return None
        in_hand = self._in_hand.get(batch.id)
        if in_hand not in {None, batch.turn}:
            raise Unavailable(f"an earlier turn of batch {batch.ordinal} is still in hand")
        return batch if in_hand is None else None

    @contextmanager
    def _in_our_hands(self, batch: Batch) -> Iterator[None]:
        self._in_hand[batch.id] = batch.turn
        try:
            yield
        except LaneLost as lost:
            LANES_LOST.inc()
            self._lost[batch.id, batch.turn] = lost.lane
            raise
        finally:
            del self._in_hand[batch.id]

    def _is_taken_by_another(self, batch: Batch) -> bool:
        """Whether this worker lost its lane over this message and another one has taken the batch since. To fence that
        lane in turn would go on for ever and send nothing."""
        lost = self._lost.get((batch.id, batch.turn))
        return lost is not None and batch.owner not in {"", lost}

    async def _send_part(self, batch: Batch, standing: Standing | None) -> Batch | None:
        """Send the next part; returns the batch settled, queued if more is left, or back in its plan. `None`: another
        worker continues it."""
        if standing is None:
            return None
        match gate(standing, self._clock.now_ns()):
            case Gate.PARK:
                return await self._store.batches.put_back(batch)
            case Gate.DROP:
                return await self._store.batches.drop(batch)
            case Gate.OPEN:
                pass
        sending = await self._sendings.prepare(batch.job_id)
        if is_hopeless(batch):
            return await self._fail(batch, outcomes.HOPELESS, f"{batch.fruitless:,} takes in a row sent nothing of it")
        try:
            recipients = await self._read(sending, batch)
        except Invalid as error:
            if error.field == "csvPath":
                # A changed file cannot be read any more.
                await self._flow.stop_over_file(sending.job, error.reason)
            return await self._fail(batch, outcomes.UNREADABLE, error.reason)
        with span("render"):
            rendered = sending.renderer.render(recipients.devices, now=self._clock.now())
        receipt = batch.receipt + rendered.receipt + recipients.receipt
        part = BatchPart(receipt.limit_entries(), batch.parts + 1, recipients.next)
        async with self._stream.lane() as lane:
            taken = await self._take(batch, lane, recipients)
            if taken is None:
                return None
            began = time.monotonic()
            try:
                with span("produce", lane=lane.id, records=len(rendered.records), bytes=rendered.count_bytes):
                    await lane.produce(taken, sending.topic, rendered.records, part)
            except Aborted as error:
                return await self._retry_or_fail(taken, error, part)
            lasted = time.monotonic() - began
            outcomes.count_part(sending.job, taken, part, len(rendered.records), self._clock.now_ns())
            await fault("send.after_commit")
            # The lane stays held: if this fails, recovery of the batch fences this lane and no other work.
            return await self._settle_part(taken, part, halvings=larger(taken, lasted, self._patience))

    @trace_calls("feed")
    async def _feed_after(self, batch: Batch | None, *, gated: Standing | None = None) -> None:
        """Feed the batches that this batch's end makes due."""
        if batch is None:
            return
        await fault("send.before_feed")
        if batch.settled:
            await self._feed.feed_successor(batch, gated=gated)
        else:
            # It is back in its plan. The job may have been resumed meanwhile, and found nothing planned in this chain.
            await self._feed.feed_job(batch.job_id)
        await fault("send.before_ack")

    @trace_calls("recover")
    async def _recover(self, batch: Batch) -> Batch | None:
        """The batch, certainly without an owner: settled, or free for its next part. `None`: another worker was
        faster."""
        if batch.settled or not batch.owner:
            return batch
        part = await self._stream.recover(batch)
        if part is not None:
            RECOVERIES.labels("sent").inc()
            return await self._settle_part(batch, part, halvings=batch.halvings)
        # After so long, its marker may have expired.
        if batch.taken_at is None or batch.taken_at < await self._store.now() - self._knowable:
            RECOVERIES.labels("unknown").inc()
            return await self._settle(batch, BatchStatus.FAILED, outcomes.rest_failed(batch, outcomes.OUTCOME_UNKNOWN))
        RECOVERIES.labels("clear").inc()
        return await self._disown(batch)

    @trace_calls("read")
    async def _read(self, sending: Sending, batch: Batch) -> Recipients:
        async with self._grace.give(sending.job, stage=SEND):
            return await self._reader.recipients(sending.job, batch, fitting=sending.fitting)

    @trace_calls("take")
    async def _take(self, batch: Batch, lane: Lane, recipients: Recipients) -> Batch | None:
        """Take the batch for this lane; `None` if another lane was first. Everything else is done before, because a
        failure after the take needs recovery."""
        if recipients.held_out:
            await self._store.held_out.put(batch, recipients.held_out, owner=lane.id)
        await fault("send.before_take")
        taken = await self._store.batches.take(batch, owner=lane.id)
        if taken is not None:
            await fault("send.after_take")
        return taken

    @trace_calls("settle")
    async def _settle_part(self, batch: Batch, part: BatchPart, *, halvings: int) -> Batch | None:
        """Settle a batch after its last part, or queue it again for the next one."""
        if part.next is None:
            status = verdict(part.receipt, max_failed_share=self._worker.max_user_failure_in_batch)
            left = await self._settle(batch, status, part.receipt)
        else:
            left = await self._store.batches.advance(batch, part, halvings=halvings)
        await fault("send.after_settle")
        return left

    async def _retry_or_fail(self, batch: Batch, error: Aborted, part: BatchPart) -> Batch | None:
        """Kafka certainly took none of the records: try again, but not for ever if it would refuse them again."""
        if error.final and batch.fruitless + 1 >= _TAKES:
            log.error("batch refused by the stream", reason=str(error))
            at_least = part.receipt.recipients - batch.receipt.recipients
            receipt = outcomes.rest_failed(batch, outcomes.REFUSED, at_least)
            return await self._settle(batch, BatchStatus.FAILED, receipt)
        await self._disown(batch)
        raise Unavailable(str(error))

    async def _disown(self, batch: Batch) -> Batch | None:
        unowned = await self._store.batches.disown(batch)
        if unowned is not None and unowned.fruitless == _TOLD_AT:
            reason = f"batch {batch.ordinal} was not sent in {_TOLD_AT} takes; it is tried again in smaller parts"
            event = Event(SEND, EventState.FAIL, reason, self._clock.now_ns())
            await self._store.jobs.note_first(batch.job_id, event)
        return unowned

    async def _fail(self, batch: Batch, key: str, reason: str) -> Batch | None:
        """Settle a batch that no lane owns."""
        log.error("batch cannot be sent", key=key, reason=reason)
        receipt = outcomes.rest_failed(batch, key).limit_entries()
        return await self._count_settled(await self._store.batches.fail(batch, receipt=receipt))

    async def _settle(self, batch: Batch, status: BatchStatus, receipt: Receipt) -> Batch | None:
        """Settle a batch whose lane can send nothing more of it."""
        settled = await self._store.batches.settle(batch, to=status, receipt=receipt.limit_entries())
        return await self._count_settled(settled)

    async def _count_settled(self, settled: Batch | None) -> Batch | None:
        if settled is not None:
            if settled.has_failed:
                await self._breaker.look(settled.job_id)
            outcomes.count_settled(await self._sendings.find_job(settled.job_id), settled)
        return settled
