"""The sender: brings one batch to its end.

    recover ──> gate ──> read ──> hold_out ──> render ──> take ──> produce ──> settle ──> feed

Recovery comes before everything, whatever the job's status: a batch with an owner may be out already. Reading and
rendering come before the take, so that a transaction is short. Exactly once is the work of three lines: the take (a
compare-and-set that names the lane), the transaction (records and receipt as one), and recovery (fence, then look).
"""

from collections import OrderedDict
from datetime import timedelta

import structlog
from msgspec.structs import replace

from shared.audience import Audience
from shared.domain.audiences import table_name, topic_name
from shared.domain.batches import Batch, BatchStatus, Receipt, verdict
from shared.domain.errors import Invalid, LaneLost, Unavailable
from shared.domain.jobs import Gate, Job, gate
from shared.domain.records import RecordRules
from shared.domain.rendering import Rendered, Renderer
from shared.domain.tasks import SendBatch, Task
from shared.flow import Feed
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import BATCHES_SETTLED, LANES_LOST, RECORDS_SENT, RECOVERIES
from shared.runtime.settings import StreamSettings, WorkerSettings
from shared.store import Store
from shared.stream import Aborted, Lane, Stream

log = structlog.get_logger(__name__)

_JOBS_AT_HAND = 16
_TAKES = 3
_LOST_AT_HAND = 1_000
OUTCOME_UNKNOWN = "outcome-unknown"
UNREADABLE = "unreadable"
GONE = "gone"
REFUSED = "refused"
FAULT = "fault"


class Sender:
    """The stage behind `push.batch`."""

    def __init__(
        self,
        store: Store,
        audience: Audience,
        stream: Stream,
        feed: Feed,
        clock: Clock,
        *,
        worker: WorkerSettings,
        records: StreamSettings,
    ) -> None:
        self._store = store
        self._audience = audience
        self._stream = stream
        self._feed = feed
        self._clock = clock
        self._worker = worker
        self._records = records
        self._rules = RecordRules(
            push_expiry=worker.push_expiry_unit,
            time_to_live=worker.gcm_time_to_live,
            max_record_bytes=records.max_record_bytes,
        )
        # Beyond half their retention, "no marker" no longer proves that nothing went out.
        self._knowable = timedelta(days=records.marker_retention_days / 2)
        self._jobs: OrderedDict[str, tuple[Job, Renderer]] = OrderedDict()
        self._in_hand: set[str] = set()
        self._lost: OrderedDict[tuple[str, int], str] = OrderedDict()

    async def __call__(self, task: Task) -> None:
        """Bring the batch to its end, if the message is of its turn. Raises `Unavailable` and `LaneLost`: then run it
        again."""
        assert isinstance(task, SendBatch)
        with structlog.contextvars.bound_contextvars(job_id=task.job_id, ordinal=task.ordinal):
            batch = await self._store.batches.get(task.job_id, task.ordinal)
            if batch is None or batch.turn != task.turn or batch.id in self._in_hand:
                return
            self._in_hand.add(batch.id)
            try:
                await self._send(batch)
            except LaneLost as lost:
                LANES_LOST.inc()
                self._remember(batch, lost.lane)
                raise
            finally:
                self._in_hand.discard(batch.id)

    async def put_off(self, task: Task) -> None:
        """Have the batch brought back later with a new turn. One that a lane owns goes the same way: whoever takes that
        message recovers it, and once another lane has taken it, it does not come back.

        What we know of our lost lane ends with this turn: of a new one nobody has lost a lane yet.
        """
        assert isinstance(task, SendBatch)
        await self._feed.put_off(task)

    async def give_up(self, task: Task, reason: str) -> None:
        """Fail a batch that nobody can send, so that its chain goes on. One that a lane owns is recovered first: it may
        be out."""
        assert isinstance(task, SendBatch)
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        if batch is None or batch.turn != task.turn or (batch.owner and self._is_anothers(batch)):
            return
        unowned = await self._recovered(batch) if batch.owner else batch
        if unowned is not None and await self._failed(unowned, FAULT, reason):
            await self._feed.chain_of(unowned)

    def _remember(self, batch: Batch, lane: str) -> None:
        self._lost[batch.id, batch.turn] = lane
        while len(self._lost) > _LOST_AT_HAND:
            self._lost.popitem(last=False)

    def _is_anothers(self, batch: Batch) -> bool:
        """Whether we lost our lane over this message and somebody else has taken the batch since.

        Fencing back whoever fenced us would go on for ever and send nothing.
        """
        return self._lost.get((batch.id, batch.turn), batch.owner) != batch.owner

    async def _send(self, batch: Batch) -> None:
        if batch.owner and self._is_anothers(batch):
            return
        if not batch.settled:
            unowned = await self._recovered(batch) if batch.owner else batch
            if unowned is None or not await self._brought_to_its_end(unowned):
                return
        await fault("send.before_feed")
        await self._feed.chain_of(batch)
        await fault("send.before_ack")

    async def _recovered(self, batch: Batch) -> Batch | None:
        """The batch without an owner, for certain; `None` when that settled it, or when somebody else was faster."""
        receipt = await self._stream.recover(batch)
        if receipt is not None:
            RECOVERIES.labels("sent").inc()
            await self._settle_and_feed(batch, receipt)
            return None
        if await self._is_forgotten(batch):
            RECOVERIES.labels("unknown").inc()
            lost = Receipt(failed=batch.size, reasons={OUTCOME_UNKNOWN: batch.size})
            await self._settle_and_feed(batch, lost, to=BatchStatus.FAILED)
            return None
        RECOVERIES.labels("clear").inc()
        return await self._store.batches.disown(batch)

    async def _is_forgotten(self, batch: Batch) -> bool:
        """Whether the batch was taken so long ago that its marker may have expired."""
        return batch.taken_at is None or batch.taken_at < await self._store.now() - self._knowable

    async def _settle_and_feed(self, batch: Batch, receipt: Receipt, *, to: BatchStatus | None = None) -> None:
        if await self._settled(batch, receipt, to=to):
            await self._feed.chain_of(batch)

    async def _brought_to_its_end(self, batch: Batch) -> bool:
        """Whether this call settled the batch."""
        standing = await self._store.jobs.standing(batch.job_id)
        if standing is None:
            return False
        match gate(standing, self._clock.now_ns()):
            case Gate.PARK:
                return await self._parked(batch)
            case Gate.DROP:
                return await self._store.batches.drop(batch) is not None
            case Gate.OPEN:
                return await self._sent(batch)

    async def _parked(self, batch: Batch) -> bool:
        if await self._store.batches.put_back(batch):
            # The job may have been resumed in between, and found nothing planned in this chain.
            await self._feed.job(batch.job_id)
        return False

    async def _sent(self, batch: Batch) -> bool:
        found = await self._job(batch.job_id)
        if found is None:
            return False
        job, renderer = found
        try:
            rendered = await self._rendered(job, renderer, batch)
        except Invalid as error:
            return await self._failed(batch, UNREADABLE, error.reason)
        async with self._stream.lane() as lane:
            return await self._produced(job, batch, rendered, lane)

    async def _rendered(self, job: Job, renderer: Renderer, batch: Batch) -> Rendered:
        rows = await self._audience.read(table_name(job.app_name, job.service), job.filters, batch.range)
        rendered = renderer.render(rows, now=self._clock.now())
        return replace(rendered, receipt=_with_gone(rendered.receipt, batch.size - len(rows)))

    async def _produced(self, job: Job, batch: Batch, rendered: Rendered, lane: Lane) -> bool:
        await fault("send.before_take")
        taken = await self._store.batches.take(batch, owner=lane.id)
        if taken is None:
            return False
        await fault("send.after_take")
        topic = topic_name(self._records.topic_template, job.app_name, job.service)
        try:
            await lane.produce(taken, topic, rendered.records, rendered.receipt)
        except Aborted as error:
            return await self._refused(taken, error)
        RECORDS_SENT.labels(job.app_name, job.service).inc(len(rendered.records))
        await fault("send.after_commit")
        settled = await self._settled(taken, rendered.receipt)
        await fault("send.after_settle")
        return settled

    async def _refused(self, batch: Batch, error: Aborted) -> bool:
        """The broker took none of the records, for certain: try again, but not for ever if it would refuse them
        again."""
        if error.final and batch.attempts >= _TAKES:
            log.error("batch refused by the stream", reason=str(error))
            refused = Receipt(failed=batch.size, reasons={REFUSED: batch.size})
            return await self._settled(batch, refused, to=BatchStatus.FAILED)
        await self._store.batches.disown(batch)
        raise Unavailable(str(error))

    async def _failed(self, batch: Batch, key: str, reason: str) -> bool:
        log.error("batch cannot be sent", key=key, reason=reason)
        failed = await self._store.batches.fail(batch, receipt=Receipt(failed=batch.size, reasons={key: batch.size}))
        if failed is not None:
            BATCHES_SETTLED.labels(failed.status).inc()
        return failed is not None

    async def _settled(self, batch: Batch, receipt: Receipt, *, to: BatchStatus | None = None) -> bool:
        status = to or verdict(receipt, max_failed_share=self._worker.max_user_failure_in_batch)
        settled = await self._store.batches.settle(batch, to=status, receipt=receipt.bounded())
        if settled is not None:
            BATCHES_SETTLED.labels(status).inc()
        return settled is not None

    async def _job(self, job_id: str) -> tuple[Job, Renderer] | None:
        if job_id not in self._jobs:
            job = await self._store.jobs.get(job_id)
            if job is None:
                return None
            self._jobs[job_id] = (job, Renderer(job, self._rules))
            while len(self._jobs) > _JOBS_AT_HAND:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(job_id)
        return self._jobs[job_id]


def _with_gone(receipt: Receipt, missing: int) -> Receipt:
    """Rows that were planned and are not there any more are skipped ones."""
    return receipt + Receipt(skipped=missing, reasons={GONE: missing}) if missing > 0 else receipt
