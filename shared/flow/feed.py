"""Feeding: putting the next batch of each chain on the broker, and noticing when none is left.

A chain's next batch is published only when the one before it is settled, by whoever settled it. The planner feeds
what it cuts and `lost` feeds what a dead process did not. They cannot race: planned → queued is a compare-and-set,
and only its winner publishes.
"""

import asyncio
from collections.abc import Iterable

from shared.broker import Broker
from shared.domain.batches import SLOTS, Batch
from shared.domain.errors import Unavailable
from shared.domain.tasks import FinishJob, PlanJob, SendBatch, Task, encode, queue_of
from shared.runtime.faults import fault
from shared.store import Store


class Feed:
    """Publishes tasks, each after the move that makes it due."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def job(self, job_id: str) -> None:
        """Queue every chain's lowest unsettled batch that is planned, if the job runs; have it finished if none is
        left.

        Raises `Unavailable`; what was not queued then stays planned.
        """
        standing = await self._store.jobs.standing(job_id)
        if standing is None or not standing.feeds:
            return
        heads = await self._store.batches.heads(job_id)
        await self._queue_all(job_id, await self._due(job_id, [head.ordinal for head in heads if head.planned]))
        if not heads and standing.end is not None:
            await self.publish(FinishJob(job_id))

    async def chain_of(self, batch: Batch) -> None:
        """Queue the batch's successor, if the job runs; have the job finished if this was the last one to settle."""
        standing = await self._store.jobs.standing(batch.job_id)
        if standing is None:
            return
        successor = batch.ordinal + SLOTS
        if standing.feeds and (standing.end is None or successor < standing.end):
            await self._queue_all(batch.job_id, [successor])
        elif standing.may_finish:
            await self.finish_if_done(batch.job_id)

    async def finish_if_done(self, job_id: str) -> None:
        """Have the job closed if none of its batches is unsettled."""
        if not await self._store.batches.any_unsettled(job_id):
            await self.publish(FinishJob(job_id))

    async def again(self, batch: Batch) -> bool:
        """Give a queued or owned batch a new turn and a new message; its old message is void. `False`: somebody else
        did."""
        renewed = await self._store.batches.requeue(batch)
        if renewed is None:
            return False
        await self.publish(_send(renewed))
        return True

    async def plan(self, job_id: str) -> None:
        """Have the job planned, from wherever its plan stands."""
        await self.publish(PlanJob(job_id))

    async def publish(self, task: Task) -> None:
        """Put the task into its queue. Raises `Unavailable`."""
        await self._broker.publish(queue_of(task), encode(task))

    async def _due(self, job_id: str, ordinals: list[int]) -> list[int]:
        """Those whose predecessor in the chain is settled, for certain.

        A server that yields in the middle of a scan may miss a lower batch that moves meanwhile; two batches of one
        chain in flight could go out twice.
        """
        before = [ordinal - SLOTS for ordinal in ordinals if ordinal >= SLOTS]
        settled = await self._store.batches.settled_among(job_id, before) if before else set()
        return [ordinal for ordinal in ordinals if ordinal < SLOTS or ordinal - SLOTS in settled]

    async def _queue_all(self, job_id: str, ordinals: Iterable[int]) -> None:
        await asyncio.gather(*(self._queue(job_id, ordinal) for ordinal in ordinals))

    async def _queue(self, job_id: str, ordinal: int) -> None:
        batch = await self._store.batches.queue(job_id, ordinal)
        if batch is None:
            return
        await fault("feed.after_queue")
        try:
            await self.publish(_send(batch))
        except Unavailable:
            await self._store.batches.put_back(batch)
            raise


def _send(batch: Batch) -> SendBatch:
    return SendBatch(batch.job_id, batch.ordinal, batch.turn)
