"""Feeding: publish the next batch of each chain, and notice if none is left.

The worker that settles a batch publishes the next one of its chain. The planner feeds the batches that it cuts, and
upkeep feeds those that a dead process did not. They cannot race: planned → queued is a compare-and-set, and only the
winner publishes.

Work that cannot be done now is **put off**: it becomes an occurrence, and the clock brings it back. For a batch this is
safe because the occurrence's generation contains all that the return compares: status, turn and owner. If the batch was
settled, parked, given another turn or taken by another lane, the return does nothing. So putting off the same try twice
is harmless. Plans and finishes are safe to do at any time, and are published as they are.
"""

import asyncio
import random
from datetime import timedelta

from msgspec.structs import replace

from shared.clock.rules.occurrences import Occurrence, once
from shared.core.errors import Unavailable
from shared.core.tasks import encode
from shared.drivers.rabbitmq import Broker
from shared.jobs.kinds import JobKind, JobKinds
from shared.jobs.rules.batches import SLOTS, Batch
from shared.jobs.rules.jobs import (
    FinishJob,
    Job,
    JobStage,
    JobTask,
    PlanJob,
    SendBatch,
    SendMail,
    Standing,
    batch_owner,
    job_owner,
    read_batch_owner,
)
from shared.runtime.faults import fault
from shared.runtime.loops import Backoff, next_delay
from shared.runtime.tracing import current_trace
from shared.store import Store

# The cap is half of the default patience of upkeep; with less patience, upkeep looks for the occurrence first.
PUT_OFF = Backoff(first_seconds=2, cap_seconds=30)


class Feed:
    def __init__(self, store: Store, broker: Broker, kinds: JobKinds) -> None:
        self._store = store
        self._broker = broker
        self._kinds = kinds

    async def feed_job(self, job_id: str) -> None:
        """If the job runs, queue the lowest unsettled batch of each chain if it is planned; publish the finish if none
        is left. After `Unavailable`, batches that were not queued stay planned."""
        standing = await self._store.jobs.get_standing(job_id)
        if standing is None or not standing.feeds:
            return
        kind = self._kinds.of(standing.service)
        if kind.silence is not None:
            await kind.feed(standing)
            if standing.may_finish:
                await self.finish_if_done(job_id)
            return
        heads = await self._store.batches.heads(job_id)
        due = await self._due(job_id, [head.ordinal for head in heads if head.planned])
        await asyncio.gather(*(self._queue(job_id, kind, ordinal) for ordinal in due))
        if not heads and standing.end is not None:
            await self.publish(FinishJob(job_id))

    async def feed_successor(self, batch: Batch, *, gated: Standing | None = None) -> None:
        """If the job runs, queue the batch's successor; publish the finish if this was the last batch.

        `gated` is the standing with which the job let this batch through its gate a moment ago. It is not read again
        while the next batch is planned, because that batch has a gate of its own.
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
        if not await self._store.batches.has_unsettled(job_id):
            await self.publish(FinishJob(job_id))

    async def requeue(self, batch: Batch, *, attempt: int = 0, faults: int = 0) -> bool:
        """Give a queued or owned batch a new turn and a new message; its old message becomes void. `False` if another
        process was faster. If the broker does not confirm the message, it is put off with the new turn, and
        `Unavailable` is raised."""
        standing = await self._store.jobs.get_standing(batch.job_id)
        if standing is None:
            return False
        # Before the move: a process that does not know the kind must not void the message of one that does.
        kind = self._kinds.of(standing.service)
        if batch.owner:
            await kind.end_owner(batch.owner)
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
        """Let the clock bring the task back after a pause that grows with its attempts. A batch of another turn is left
        alone. After `Unavailable` nothing brings it back."""
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
                # Each look at a settled job publishes one more of these, and each would come back for ever.
                if task.faults or not await self._store.occurrences.with_any([owner]):
                    await self._add(task, owner, str(task.attempt))
            case SendMail(job_id, kind, at):
                await self._add(task, job_owner(job_id, JobStage.MAIL), f"{kind}/{at}/{task.attempt}")

    async def bring_back(self, occurrence: Occurrence) -> None:
        """Give the batch its next turn if it has not changed since it was put off."""
        batch = await self._store.batches.get(*read_batch_owner(occurrence.owner))
        if batch is not None and generation_of(batch) == occurrence.generation:
            await self.requeue(batch, attempt=occurrence.runs, faults=occurrence.attempts)

    async def plan(self, job_id: str) -> None:
        """Publish the planning of the job; it continues where the plan ends."""
        await self.publish(PlanJob(job_id))

    async def mails(self, job: Job) -> None:
        for due in job.mails:
            await self.publish(SendMail(job.key, due.kind, due.at))

    async def publish(self, task: JobTask) -> None:
        await self._broker.publish(task.queue, encode(replace(task, trace=current_trace())))

    async def _add(self, task: JobTask, owner: str, generation: str) -> None:
        now = await self._store.now()
        pause = next_delay(PUT_OFF, task.attempt, random.random())
        entry = once(owner, generation, now + timedelta(milliseconds=int(pause * 1000)), accepted_at=now)
        # The counters of the occurrence hold the task's: `attempts` its faults, `runs` its tries.
        await self._store.occurrences.add([replace(entry, attempts=task.faults, runs=task.attempt)])

    async def _due(self, job_id: str, ordinals: list[int]) -> list[int]:
        """The ordinals whose predecessor in the chain is certainly settled. A server that yields in the middle of a
        scan may miss a lower batch that moves meanwhile, and two batches of one chain in flight could be sent twice."""
        before = [ordinal - SLOTS for ordinal in ordinals if ordinal >= SLOTS]
        settled = await self._store.batches.find_settled(job_id, before) if before else set()
        return [ordinal for ordinal in ordinals if ordinal < SLOTS or ordinal - SLOTS in settled]

    async def _queue(self, job_id: str, kind: JobKind, ordinal: int) -> bool:
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
    """The generation of the occurrence for a batch that is put off now: all that `Batches.requeue` compares."""
    return f"{batch.status}/{batch.turn}/{batch.owner}"


def mail_of(occurrence: Occurrence) -> tuple[str, int]:
    """The kind of a mail that was put off, and the time (ns) of the event that it reports."""
    kind, at, _ = occurrence.generation.split("/")
    return kind, int(at)


def _task(kind: JobKind, batch: Batch) -> SendBatch:
    return kind.batch_task(batch.job_id, batch.ordinal, batch.turn)
