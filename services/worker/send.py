"""The sender: brings one batch to its end.

    recover ──> gate ──> read ──> hold_out ──> render ──> take ──> produce ──> settle ──> feed

Recovery comes before everything, whatever the job's status: a batch with an owner may be out already. Reading,
rendering and noting who is held out come before the take, so that a transaction is short. Exactly once is the work of
three lines: the take (a compare-and-set that names the lane), the transaction (records and receipt as one), and
recovery (fence, then look).
"""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta

import structlog
from msgspec.structs import replace

from services.record_rules import record_rules
from services.worker.recipients import Reader
from shared.domain.audiences import topic_name
from shared.domain.batches import Batch, BatchStatus, Receipt, verdict
from shared.domain.errors import Invalid, LaneLost, Unavailable
from shared.domain.jobs import Gate, Job, gate
from shared.domain.rendering import Rendered, Renderer
from shared.domain.tasks import SendBatch, Task
from shared.flow import Breaker, Feed, JobFlow
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
REFUSED = "refused"
FAULT = "fault"


class Sender:
    """The stage behind `push.batch`."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        stream: Stream,
        feed: Feed,
        flow: JobFlow,
        breaker: Breaker,
        clock: Clock,
        *,
        worker: WorkerSettings,
        records: StreamSettings,
    ) -> None:
        self._store = store
        self._reader = reader
        self._stream = stream
        self._feed = feed
        self._flow = flow
        self._breaker = breaker
        self._clock = clock
        self._worker = worker
        self._records = records
        self._rules = record_rules(worker, records)
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
        if batch.status is BatchStatus.FAILED:
            # Whoever settled it may have died before the look.
            await self._breaker.look(batch.job_id)
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
            lost = Receipt(failed=batch.at_stake, reasons={OUTCOME_UNKNOWN: batch.at_stake})
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
            recipients = await self._reader.recipients(job, batch)
        except Invalid as error:
            if error.field == "csvPath":
                # Nothing more can be read of a file that has changed.
                await self._flow.stop_over_file(job, error.reason)
            return await self._failed(batch, UNREADABLE, error.reason)
        rendered = renderer.render(recipients.rows, now=self._clock.now())
        rendered = replace(rendered, receipt=rendered.receipt + recipients.receipt)
        async with self._stream.lane() as lane:
            return await self._produced(job, batch, rendered, recipients.held_out, lane)

    async def _produced(self, job: Job, batch: Batch, rendered: Rendered, held_out: Sequence[str], lane: Lane) -> bool:
        # Nothing but the transaction stands behind the take: what failed there would have to be recovered.
        if held_out:
            await self._store.held_out.put(batch, held_out, owner=lane.id)
        await fault("send.before_take")
        taken = await self._store.batches.take(batch, owner=lane.id)
        if taken is None:
            return False
        await fault("send.after_take")
        topic = topic_name(self._records.topic_template, job.app_name, job.service)
        try:
            await lane.produce(taken, topic, rendered.records, rendered.receipt)
        except Aborted as error:
            return await self._refused(taken, error, recipients=rendered.receipt.recipients)
        RECORDS_SENT.labels(job.app_name, job.service).inc(len(rendered.records))
        await fault("send.after_commit")
        settled = await self._settled(taken, rendered.receipt)
        await fault("send.after_settle")
        return settled

    async def _refused(self, batch: Batch, error: Aborted, *, recipients: int) -> bool:
        """The broker took none of the records, for certain: try again, but not for ever if it would refuse them
        again."""
        if error.final and batch.attempts >= _TAKES:
            log.error("batch refused by the stream", reason=str(error))
            refused = Receipt(failed=recipients, reasons={REFUSED: recipients})
            return await self._settled(batch, refused, to=BatchStatus.FAILED)
        await self._store.batches.disown(batch)
        raise Unavailable(str(error))

    async def _failed(self, batch: Batch, key: str, reason: str) -> bool:
        log.error("batch cannot be sent", key=key, reason=reason)
        receipt = Receipt(failed=batch.at_stake, reasons={key: batch.at_stake})
        return await self._noted(await self._store.batches.fail(batch, receipt=receipt))

    async def _settled(self, batch: Batch, receipt: Receipt, *, to: BatchStatus | None = None) -> bool:
        status = to or verdict(receipt, max_failed_share=self._worker.max_user_failure_in_batch)
        settled = await self._store.batches.settle(batch, to=status, receipt=receipt.bounded())
        return await self._noted(settled)

    async def _noted(self, settled: Batch | None) -> bool:
        if settled is None:
            return False
        BATCHES_SETTLED.labels(settled.status).inc()
        if settled.status is BatchStatus.FAILED:
            await self._breaker.look(settled.job_id)
        return True

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
