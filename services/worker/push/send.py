"""The sender: brings one batch to its end.

    recover ──> gate ──> read ──> hold_out ──> render ──> take ──> produce ──> settle ──> feed
                  └<─────────────── advance, where that was only a part of it ──┘

Recovery comes before everything, whatever the job's status: a batch with an owner may be out already. Reading,
rendering and noting who is held out come before the take, so that a transaction is short. Exactly once is the work of
three lines: the take (a compare-and-set that names the lane), the transaction (records and receipt as one), and
recovery (fence, then look).
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import structlog
from cachetools import LRUCache

from services.worker.jobs.grace import Grace
from services.worker.push.recipients import RecipientReader
from services.worker.stage import Stage
from shared.domain.errors import Invalid, LaneLost, Unavailable
from shared.domain.jobs.batches import Batch, BatchPart, BatchStatus, Receipt, is_hopeless, larger, verdict
from shared.domain.jobs.jobs import SEND, Event, EventState, Gate, Job, gate
from shared.domain.jobs.tasks import SendBatch
from shared.domain.push.records import SERVICES, RecordRules
from shared.domain.push.rendering import Renderer, fitting_records
from shared.domain.push.topics import topic_name
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.jobs import JobFlow
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import BATCHES_SETTLED, LANES_LOST, RECORDS_SENT, RECOVERIES
from shared.runtime.settings import StreamSettings, WorkerSettings
from shared.store import Store
from shared.stream import Aborted, Lane, Stream

log = structlog.get_logger(__name__)

_REMEMBERED_JOBS = 16
_TAKES = 3
_REMEMBERED_LANES = 1_000
OUTCOME_UNKNOWN = "outcome-unknown"
UNREADABLE = "unreadable"
REFUSED = "refused"
FAULT = "fault"
HOPELESS = "not-taken"
# Takes that sent nothing, one after the other; then the job's events tell.
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
        self._settings = stream_settings
        self._rules = rules
        # Beyond half their retention, "no marker" no longer proves that nothing went out.
        self._knowable = timedelta(days=stream_settings.marker_retention_days / 2)
        self._jobs: LRUCache[str, tuple[Job, Renderer, int]] = LRUCache(_REMEMBERED_JOBS)
        self._in_hand: set[str] = set()
        self._lost: LRUCache[tuple[str, int], str] = LRUCache(_REMEMBERED_LANES)

    async def run(self, task: SendBatch) -> None:
        """Bring the batch to its end, if the message is of its turn. Raises `Unavailable` and `LaneLost`: then run it
        again."""
        with structlog.contextvars.bound_contextvars(job_id=task.job_id, ordinal=task.ordinal):
            batch = await self._store.batches.get(task.job_id, task.ordinal)
            if batch is None or batch.turn != task.turn or batch.id in self._in_hand:
                return
            self._in_hand.add(batch.id)
            try:
                await self._send(batch)
            except LaneLost as lost:
                LANES_LOST.inc()
                self._lost[batch.id, batch.turn] = lost.lane
                raise
            finally:
                self._in_hand.discard(batch.id)

    async def put_off(self, task: SendBatch) -> None:
        """Have the batch brought back later with a new turn. One that a lane owns goes the same way: whoever takes that
        message recovers it, and once another lane has taken it, it does not come back.

        What we know of our lost lane ends with this turn: of a new one nobody has lost a lane yet.
        """
        await self._feed.put_off(task)

    async def give_up(self, task: SendBatch, reason: str) -> None:
        """Fail a batch that nobody can send, so that its chain goes on. One that a lane owns is recovered first: it may
        be out."""
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        if batch is None or batch.turn != task.turn or (batch.owner and self._is_taken_by_another(batch)):
            return
        unowned = await self._recover(batch) if batch.owner else batch
        if unowned is not None and await self._fail(unowned, FAULT, reason):
            await self._feed.feed_successor(unowned)

    def _is_taken_by_another(self, batch: Batch) -> bool:
        """Whether we lost our lane over this message and somebody else has taken the batch since.

        Fencing back whoever fenced us would go on for ever and send nothing.
        """
        return self._lost.get((batch.id, batch.turn), batch.owner) != batch.owner

    async def _send(self, batch: Batch) -> None:
        if batch.owner and self._is_taken_by_another(batch):
            return
        if batch.has_failed:
            # Whoever settled it may have died before the look.
            await self._breaker.look(batch.job_id)
        if not batch.settled:
            unowned = await self._recover(batch) if batch.owner else batch
            if unowned is None or not await self._gate_and_send(unowned):
                return
        await fault("send.before_feed")
        await self._feed.feed_successor(batch)
        await fault("send.before_ack")

    async def _recover(self, batch: Batch) -> Batch | None:
        """The batch without an owner, for certain; `None` when that settled it, or when somebody else was faster."""
        part = await self._stream.recover(batch)
        if part is not None:
            RECOVERIES.labels("sent").inc()
            if part.next is not None:
                return await self._store.batches.advance(batch, part, halvings=batch.halvings)
            await self._settle_and_feed(batch, part.receipt)
            return None
        if await self._is_forgotten(batch):
            RECOVERIES.labels("unknown").inc()
            await self._settle_and_feed(batch, _rest_failed(batch, OUTCOME_UNKNOWN), to=BatchStatus.FAILED)
            return None
        RECOVERIES.labels("clear").inc()
        return await self._disown(batch)

    async def _disown(self, batch: Batch) -> Batch | None:
        unowned = await self._store.batches.disown(batch)
        if unowned is not None and unowned.fruitless == _TOLD_AT:
            reason = f"batch {batch.ordinal} was not sent in {_TOLD_AT} takes; it is tried again in smaller parts"
            event = Event(SEND, EventState.FAIL, reason, self._clock.now_ns())
            await self._store.jobs.note_first(batch.job_id, event)
        return unowned

    async def _is_forgotten(self, batch: Batch) -> bool:
        """Whether the batch was taken so long ago that its marker may have expired."""
        return batch.taken_at is None or batch.taken_at < await self._store.now() - self._knowable

    async def _settle_and_feed(self, batch: Batch, receipt: Receipt, *, to: BatchStatus | None = None) -> None:
        if await self._settle(batch, receipt, to=to):
            await self._feed.feed_successor(batch)

    async def _gate_and_send(self, batch: Batch) -> bool:
        """Whether this call settled the batch."""
        standing: Batch | None = batch
        while standing is not None and not standing.settled:
            standing = await self._bring_on(standing)
        return standing is not None

    async def _bring_on(self, batch: Batch) -> Batch | None:
        """The batch after one more part, or settled; `None` where it is not ours to go on with."""
        standing = await self._store.jobs.get_standing(batch.job_id)
        if standing is None:
            return None
        match gate(standing, self._clock.now_ns()):
            case Gate.PARK:
                await self._park(batch)
                return None
            case Gate.DROP:
                return await self._store.batches.drop(batch)
            case Gate.OPEN:
                return await self._send_open(batch)

    async def _park(self, batch: Batch) -> None:
        if await self._store.batches.put_back(batch):
            # The job may have been resumed in between, and found nothing planned in this chain.
            await self._feed.feed_job(batch.job_id)

    async def _send_open(self, batch: Batch) -> Batch | None:
        found = await self._job(batch.job_id)
        if found is None:
            return None
        if is_hopeless(batch):
            return await self._fail(batch, HOPELESS, f"{batch.fruitless:,} takes in a row sent nothing of it")
        job, renderer, fitting = found
        try:
            async with self._grace.give(job, stage=SEND):
                recipients = await self._reader.recipients(job, batch, fitting=fitting)
        except Invalid as error:
            if error.field == "csvPath":
                # Nothing more can be read of a file that has changed.
                await self._flow.stop_over_file(job, error.reason)
            return await self._fail(batch, UNREADABLE, error.reason)
        rendered = renderer.render(recipients.rows, now=self._clock.now())
        receipt = batch.receipt + rendered.receipt + recipients.receipt
        part = BatchPart(receipt.bounded(), batch.parts + 1, recipients.next)
        async with self._stream.lane() as lane:
            return await self._produce(job, batch, rendered.records, part, recipients.held_out, lane)

    async def _produce(
        self, job: Job, batch: Batch, records: Sequence[bytes], part: BatchPart, held_out: Sequence[str], lane: Lane
    ) -> Batch | None:
        # The worker does all else before it takes the batch: what fails after the take has to be recovered.
        if held_out:
            await self._store.held_out.put(batch, held_out, owner=lane.id)
        await fault("send.before_take")
        taken = await self._store.batches.take(batch, owner=lane.id)
        if taken is None:
            return None
        await fault("send.after_take")
        topic = topic_name(self._settings.topic_template, job.app_name, job.service)
        began = time.monotonic()
        try:
            await lane.produce(taken, topic, records, part)
        except Aborted as error:
            return await self._retry_or_fail(taken, error, part)
        RECORDS_SENT.labels(job.app_name, job.service).inc(len(records))
        await fault("send.after_commit")
        if part.next is None:
            standing = await self._settle(taken, part.receipt)
        else:
            halvings = larger(taken, time.monotonic() - began, self._settings.transaction_timeout_seconds / 2)
            standing = await self._store.batches.advance(taken, part, halvings=halvings)
        await fault("send.after_settle")
        return standing

    async def _retry_or_fail(self, batch: Batch, error: Aborted, part: BatchPart) -> Batch | None:
        """The broker took none of the records, for certain: try again, but not for ever if it would refuse them
        again."""
        if error.final and batch.fruitless + 1 >= _TAKES:
            log.error("batch refused by the stream", reason=str(error))
            at_least = part.receipt.recipients - batch.receipt.recipients
            return await self._settle(batch, _rest_failed(batch, REFUSED, at_least), to=BatchStatus.FAILED)
        await self._disown(batch)
        raise Unavailable(str(error))

    async def _fail(self, batch: Batch, key: str, reason: str) -> Batch | None:
        log.error("batch cannot be sent", key=key, reason=reason)
        return await self._count_settled(
            await self._store.batches.fail(batch, receipt=_rest_failed(batch, key).bounded())
        )

    async def _settle(self, batch: Batch, receipt: Receipt, *, to: BatchStatus | None = None) -> Batch | None:
        status = to or verdict(receipt, max_failed_share=self._worker.max_user_failure_in_batch)
        settled = await self._store.batches.settle(batch, to=status, receipt=receipt.bounded())
        return await self._count_settled(settled)

    async def _count_settled(self, settled: Batch | None) -> Batch | None:
        if settled is not None:
            BATCHES_SETTLED.labels(settled.status).inc()
            if settled.has_failed:
                await self._breaker.look(settled.job_id)
        return settled

    async def _job(self, job_key: str) -> tuple[Job, Renderer, int] | None:
        """The job, what renders its records, and how many of them fit into one part."""
        known = self._jobs.get(job_key)
        if known is None:
            job = await self._store.jobs.get(job_key)
            if job is None:
                return None
            if job.service not in SERVICES:
                raise Unavailable(f"jobs of the service {job.service!r} are sent by another stage")
            known = self._jobs[job_key] = (job, Renderer(job, self._rules), fitting_records(job))
        return known


def _rest_failed(batch: Batch, key: str, at_least: int = 0) -> Receipt:
    """What is known of the batch, where all that is left of it fails."""
    failed = max(batch.recipients_left, at_least)
    return batch.receipt + Receipt(failed=failed, reasons={key: failed})
