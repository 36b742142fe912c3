"""Feeding: putting the next batch of each chain on the broker, and noticing when none is left.

A chain's next batch is published only when the one before it is settled, by whoever settled it. The planner feeds
what it cuts and upkeep feeds what a dead process did not. They cannot race: planned → queued is a compare-and-set,
and only its winner publishes.

Work that cannot be done now is **put off**: it becomes an occurrence, and the clock brings it back. For a batch this is
safe because the occurrence's generation names all that the return compares: status, turn and owner. Once the batch was
settled, parked, given another turn or taken by another lane, it does nothing. So to put the same try off twice is
harmless. Plans and finishes can be done by anybody at any time, and are published as they are.
"""

import asyncio
import random
from collections.abc import Iterable
from datetime import timedelta

from msgspec.structs import replace

from shared.broker import Broker
from shared.domain.clock.occurrences import Occurrence, once
from shared.domain.errors import Unavailable
from shared.domain.jobs.batches import SLOTS, Batch
from shared.domain.jobs.jobs import Job, Standing
from shared.domain.jobs.owners import JobStage, batch_owner, job_owner, read_batch_owner
from shared.domain.jobs.tasks import FinishJob, JobTask, PlanJob, SendBatch, SendMail
from shared.domain.tasks import encode
from shared.flow.jobs.kinds import JobKind, JobKinds
from shared.runtime.faults import fault
from shared.runtime.retries import Backoff, next_delay
from shared.runtime.tracing import current_trace
from shared.store import Store

# The cap is half of what upkeep, by default, takes for lost; with less patience it looks for the occurrence first.
PUT_OFF = Backoff(first_seconds=2, cap_seconds=30)


class Feed:
    """Publishes tasks, each after the move that makes it due."""

    def __init__(self, store: Store, broker: Broker, kinds: JobKinds) -> None:
        self._store = store
        self._broker = broker
        self._kinds = kinds

    async def feed_job(self, job_id: str) -> None:
        """Queue every chain's lowest unsettled batch that is planned, if the job runs; have it finished if none is
        left.

        Raises `Unavailable`; what was not queued then stays planned.
        """
        standing = await self._store.jobs.get_standing(job_id)
        if standing is None or not standing.feeds:
            return
        kind = self._kinds.of(standing.service)
        if kind.feeder is not None:
            await kind.feeder.feed(standing)
            if standing.may_finish:
                await self.finish_if_done(job_id)
            return
        heads = await self._store.batches.heads(job_id)
        due = await self._due(job_id, [head.ordinal for head in heads if head.planned])
        await self._queue_all(job_id, kind, due)
        if not heads and standing.end is not None:
            await self.publish(FinishJob(job_id))

    async def feed_successor(self, batch: Batch, *, gated: Standing | None = None) -> None:
        """Queue the batch's successor, if the job runs; have the job finished if this was the last one to settle.

        A job that let the batch itself through its gate, a moment ago, is not asked again while its next batch waits in
        the plan: that batch has a gate of its own.
        """
        successor = batch.ordinal + SLOTS
        if (
            gated is not None
            and not batch.has_failed
            and gated.feeds_batch(successor)
            and await self._queue(batch.job_id, self._kinds.of(gated.service), successor)
        ):
            return
        standing = await self._store.jobs.get_standing(batch.job_id)
        if standing is None:
            return
        if standing.feeds_batch(successor):
            await self._queue(batch.job_id, self._kinds.of(standing.service), successor)
        elif standing.may_finish:
            await self.finish_if_done(batch.job_id)

    async def finish_if_done(self, job_id: str) -> None:
        """Have the job closed if none of its batches is unsettled."""
        if not await self._store.batches.has_unsettled(job_id):
            await self.publish(FinishJob(job_id))

    async def requeue(self, batch: Batch, *, attempt: int = 0, faults: int = 0) -> bool:
        """Give a queued or owned batch a new turn and a new message; its old message is void. `False`: somebody else
        did.

        Raises `Unavailable`; a message that the broker did not confirm is put off with its new turn.
        """
        standing = await self._store.jobs.get_standing(batch.job_id)
        if standing is None:
            return False
        # Before the move: a process that does not know the kind must not void the message of one that does.
        kind = self._kinds.of(standing.service)
        if batch.owner and kind.feeder is not None:
            await kind.feeder.end_owner(batch.owner)
        renewed = await self._store.batches.requeue(batch)
        if renewed is None:
            return False
        task = replace(_task(kind, renewed), attempt=attempt, faults=faults)
        try:
            await self.publish(task)
        except Unavailable:
            await self.put_off(task)
            raise
        return True

    async def put_off(self, task: JobTask) -> None:
        """Have the clock bring the task back after a pause that grows with its attempts; the batch of another turn, or
        of none, is left alone.

        Raises `Unavailable`: then nothing brings it back.
        """
        match task:
            case SendBatch(job_id, ordinal, turn):
                batch = await self._store.batches.get(job_id, ordinal)
                if batch is None or batch.turn != turn or not batch.is_on_its_way:
                    return
                await self._add(task, batch_owner(job_id, ordinal), generation_of(batch))
            case PlanJob(job_id):
                await self._store.jobs.touch(job_id)
                await self._add(task, job_owner(job_id, JobStage.PLAN), str(task.attempt))
            case FinishJob(job_id):
                owner = job_owner(job_id, JobStage.FINISH)
                # Each look at a job that is all settled publishes one more of these, and each would come back for ever.
                if task.faults or not await self._store.occurrences.with_any([owner]):
                    await self._add(task, owner, str(task.attempt))
            case SendMail(job_id, kind, at):
                await self._add(task, job_owner(job_id, JobStage.MAIL), f"{kind}/{at}/{task.attempt}")

    async def bring_back(self, occurrence: Occurrence) -> None:
        """Give the batch that was put off its next turn, if it stands as it stood then. Raises `Unavailable`."""
        batch = await self._store.batches.get(*read_batch_owner(occurrence.owner))
        if batch is not None and generation_of(batch) == occurrence.generation:
            await self.requeue(batch, attempt=occurrence.runs, faults=occurrence.attempts)

    async def plan(self, job_id: str) -> None:
        """Have the job planned, from wherever its plan stands."""
        await self.publish(PlanJob(job_id))

    async def mails(self, job: Job) -> None:
        """Have the mails sent that are due about the job."""
        for due in job.mails:
            await self.publish(SendMail(job.key, due.kind, due.at))

    async def publish(self, task: JobTask) -> None:
        """Put the task into its queue. Raises `Unavailable`."""
        await self._broker.publish(task.queue, encode(replace(task, trace=current_trace())))

    async def _add(self, task: JobTask, owner: str, generation: str) -> None:
        now = await self._store.now()
        pause = next_delay(PUT_OFF, task.attempt, random.random())
        entry = once(owner, generation, now + timedelta(milliseconds=int(pause * 1000)), accepted_at=now)
        # An occurrence's own counters carry the task's: `attempts` its faults, `runs` its tries.
        await self._store.occurrences.add([replace(entry, attempts=task.faults, runs=task.attempt)])

    async def _due(self, job_id: str, ordinals: list[int]) -> list[int]:
        """The ordinals whose predecessor in the chain is settled, for certain.

        A server that yields in the middle of a scan may miss a lower batch that moves meanwhile; two batches of one
        chain in flight could go out twice.
        """
        before = [ordinal - SLOTS for ordinal in ordinals if ordinal >= SLOTS]
        settled = await self._store.batches.find_settled(job_id, before) if before else set()
        return [ordinal for ordinal in ordinals if ordinal < SLOTS or ordinal - SLOTS in settled]

    async def _queue_all(self, job_id: str, kind: JobKind, ordinals: Iterable[int]) -> None:
        await asyncio.gather(*(self._queue(job_id, kind, ordinal) for ordinal in ordinals))

    async def _queue(self, job_id: str, kind: JobKind, ordinal: int) -> bool:
        """Queue this batch; `False` where it does not wait in the plan."""
        batch = await self._store.batches.queue(job_id, ordinal)
        if batch is None:
            return False
        await fault("feed.after_queue")
        try:
            await self.publish(_task(kind, batch))
        except Unavailable:
            await self._store.batches.put_back(batch)
            raise
        return True


def generation_of(batch: Batch) -> str:
    """The generation that fences the occurrence of a batch put off now: all that `Batches.requeue` compares."""
    return f"{batch.status}/{batch.turn}/{batch.owner}"


def mail_of(occurrence: Occurrence) -> tuple[str, int]:
    """The kind of the mail that was put off, and when what it tells happened (ns)."""
    kind, at, _ = occurrence.generation.split("/")
    return kind, int(at)


def _task(kind: JobKind, batch: Batch) -> SendBatch:
    return kind.batch_task(batch.job_id, batch.ordinal, batch.turn)
