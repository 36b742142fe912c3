"""Feeding a credential: batches of its jobs go to the broker in the order of the jobs, a few at a time.

    find the next job ──> take a place ──> queue its batch ──> publish

A credential has few places (`shared.messages.rules.places`), and a batch without one is not queued. So the first
in order goes first, whichever process feeds. If a process dies between place and batch, the place expires.

Dry runs call no provider, so they need no place.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from cachetools import LRUCache
from msgspec.structs import replace

from shared.clock.rules.occurrences import Occurrence, once
from shared.core.errors import Unavailable
from shared.core.instants import LATEST, from_ms, ms
from shared.core.tasks import encode
from shared.drivers.rabbitmq import Broker
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Job
from shared.messages.rules import places
from shared.messages.rules.credentials import SendOrder, Traffic
from shared.messages.rules.pacing import earliest_us
from shared.messages.rules.places import FIRST_IN_LINE, Places, Rank, Share, join
from shared.messages.rules.singles import SendMessages, credential_owner, read_credential_owner
from shared.messages.store_jobs import RunningJob
from shared.runtime.faults import fault
from shared.runtime.metrics import ACCOUNT_PLACES
from shared.runtime.tracing import current_trace
from shared.store import Store

_PAGE = 200


async def page_in_order(
    store: Store, credential_id: str, order: SendOrder, *, floor: float | None = None
) -> AsyncIterator[Sequence[RunningJob]]:
    """The jobs in portions, each before the next: by shares all are in one portion, and no job counts as less served
    than `floor`."""
    pages = _page_by_age(store, credential_id)
    if order is SendOrder.SHARES:
        yield await _let_join(store, [job async for page in pages for job in page], floor)
        return
    async for page in pages:
        yield page


async def _page_by_age(store: Store, credential_id: str) -> AsyncIterator[Sequence[RunningJob]]:
    seen, since = set[str](), 0
    while page := await store.message_jobs.find_running(credential_id, since=since, limit=_PAGE):
        if not (fresh := [job for job in page if job.key not in seen]):
            return
        yield fresh
        if len(page) < _PAGE:
            return
        seen.update(job.key for job in fresh)
        since = page[-1].created_at


async def _let_join(store: Store, running: Sequence[RunningJob], floor: float | None) -> Sequence[RunningJob]:
    """The same jobs with ranks: a job that has sent nothing yet begins level with the others."""
    begun = [Share(job.had, job.share) for job in running if job.had is not None]
    least = max(join(begun), floor or 0.0)
    if new := [job.key for job in running if job.had is None]:
        await store.message_jobs.join(new, least)
    return [replace(job, had=least if job.had is None else max(job.had, least)) for job in running]


_JOBS_LOOKED_AT = 200
_BATCHES = 2
_FRESH = timedelta(seconds=60)


async def feed_dry_runs(
    store: Store,
    credential_id: str,
    *,
    find_planned: Callable[[str, datetime], Awaitable[Batch | None]],
    publish: Callable[[Batch], Awaitable[Batch | None]],
) -> None:
    """Keep a few batches of dry runs on their way, so that they keep no worker from sending."""
    room = _BATCHES
    for job in await store.message_jobs.find_dry_runs(credential_id, limit=_JOBS_LOOKED_AT):
        # A batch that cannot be read, or whose task is lost, blocks the others only for `_FRESH`.
        on_their_way, now = await store.batches.find_on_their_way(job.key), await store.now()
        room -= sum(now - (batch.changed_at or now) < _FRESH for each in on_their_way.values() for batch in each)
        while room > 0 and (found := await find_planned(job.key, await store.now())) is not None:
            room -= await publish(found) is not None
        if room <= 0:
            return


QUEUED_FOR = timedelta(seconds=60)
"""A batch keeps its place for this long while it waits for a worker."""


class _Room(TypedDict):
    until_us: int
    most: int


_TRIES = 20
_REMEMBERED = 1_000
_REMEMBERED_SECONDS = 5.0


class CredentialFeed:
    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker
        # Per job: the lowest batch that may be planned, and when the plan was last read from its beginning. That takes
        # long, but batches come back into the plan.
        self._lowest: LRUCache[str, tuple[int, float]] = LRUCache(_REMEMBERED)

    async def feed_credential(self, credential_id: str) -> None:
        while await self._feed_one(credential_id):
            pass
        await feed_dry_runs(self._store, credential_id, find_planned=self._find_planned, publish=self._publish)

    async def drain(self, job: Job) -> None:
        """Queue all planned batches of a stopped job, without places: their workers end them and send nothing."""
        while (batch := await self._store.message_batches.find_planned(job.key, since=0, now=LATEST)) is not None:
            await self._publish(batch)

    async def feed_due(self, occurrence: Occurrence) -> None:
        await self.feed_credential(read_credential_owner(occurrence.owner))

    async def feed_at(self, credential_id: str, due: datetime) -> None:
        """Let the clock feed the credential at `due`."""
        entry = once(credential_owner(credential_id), str(ms(due)), due, accepted_at=await self._store.now())
        await self._store.occurrences.add([entry])

    async def keep_place(self, credential_id: str, batch: Batch, rank: Rank) -> bool:
        """Renew the place of a batch that a worker has; `False` if it has lost its place and none is free."""
        return await self._keep_place(credential_id, batch.id, rank, turn=batch.turn, beside=0)

    async def enter_first(self, credential_id: str, holder: str) -> bool:
        """Take a place before all batches, in addition to theirs; `False` if nothing is sent now or another worker has
        it."""
        return await self._keep_place(credential_id, holder, FIRST_IN_LINE, turn=0, beside=1)

    async def _keep_place(self, credential_id: str, holder: str, rank: Rank, *, turn: int, beside: int) -> bool:
        for _ in range(_TRIES):
            traffic = await self._store.credentials.get_traffic(credential_id)
            if traffic is None or not traffic.flows:
                return False
            now = await self._store.now()
            known, room = _without_expired(traffic, now), _room(traffic, now)
            ours = places.place_of(traffic.places, holder)
            room["most"] = max(room["most"], places.count(known)) + beside
            known = places.take_over(known, holder, until_us=room["until_us"], turn=turn)
            kept = places.enter(known, holder, rank if ours is None else ours.rank, **room, turn=turn)
            if kept is None:
                return False
            if await self._change(credential_id, traffic, kept):
                return True
        raise Unavailable("too many others change the places of this credential")

    async def leave(self, credential_id: str, holder: str, *, turn: int = 0) -> None:
        for _ in range(_TRIES):
            traffic = await self._store.credentials.get_traffic(credential_id)
            left = () if traffic is None else places.leave(traffic.places, holder, turn=turn)
            if traffic is None or left == traffic.places or await self._change(credential_id, traffic, left):
                return
        raise Unavailable("too many others change the places of this credential")

    async def _feed_one(self, credential_id: str) -> bool:
        """Queue one batch if one may be sent; returns whether there may be more."""
        traffic = await self._store.credentials.get_traffic(credential_id)
        if traffic is None:
            return await self._end_jobs(credential_id)
        if not traffic.flows:
            return False
        now = await self._store.now()
        if (until_us := earliest_us(traffic.pace, rate=traffic.rate, now_us=ms(now) * 1_000)) is not None:
            await self.feed_at(credential_id, from_ms(until_us // 1_000))
            return False
        known, room = _without_expired(traffic, now), _room(traffic, now)
        found = await self._find_next(credential_id, traffic.order, now, known, most=room["most"])
        if found is None:
            return False
        job, batch = found
        if await self._take_place(credential_id, batch, job.rank(by_age=traffic.order is SendOrder.AGE)):
            ACCOUNT_PLACES.labels("taken").inc()
            await fault("feed.after_place")
            await self._queue(credential_id, traffic.order, job, batch)
            return True
        ACCOUNT_PLACES.labels("waited").inc()
        return False

    async def _take_place(self, credential_id: str, batch: Batch, rank: Rank) -> bool:
        """Take a place for the batch. If none is free, the last in order has to yield if it comes later."""
        for _ in range(_TRIES):
            traffic = await self._store.credentials.get_traffic(credential_id)
            if traffic is None or not traffic.flows:
                return False
            now = await self._store.now()
            known = _without_expired(traffic, now)
            entered = places.enter(known, batch.id, rank, **_room(traffic, now), turn=batch.turn + 1)
            wanted = places.have_one_yield(known, rank) if entered is None else entered
            if wanted == known or await self._change(credential_id, traffic, wanted):
                return entered is not None
        raise Unavailable("too many others change the places of this credential")

    async def _end_jobs(self, credential_id: str) -> bool:
        """End jobs whose credential is gone: the worker of a batch stops its job."""
        now = await self._store.now()
        for job in await self._store.message_jobs.find_running(credential_id, limit=_JOBS_LOOKED_AT):
            batch = await self._store.message_batches.find_planned(job.key, since=0, now=now)
            if batch is not None:
                await self._publish(batch)
        return False

    async def _queue(self, credential_id: str, order: SendOrder, job: RunningJob, found: Batch) -> None:
        try:
            batch = await self._publish(found)
        except Unavailable:
            await self._leave_unless_on_its_way(credential_id, found)
            raise
        if batch is None:
            await self._leave_unless_on_its_way(credential_id, found)
        elif order is SendOrder.SHARES:
            await self._store.message_jobs.count_share(job.key, batch.size / job.share, at_least=job.had or 0.0)

    async def _publish(self, found: Batch) -> Batch | None:
        """Publish the batch; `None` if another process was faster. After `Unavailable` it is planned again if the store
        is there."""
        batch = await self._store.batches.queue(found.job_id, found.ordinal)
        if batch is None:
            return None
        await fault("feed.after_queue")
        task = SendMessages(batch.job_id, batch.ordinal, batch.turn, trace=current_trace())
        try:
            await self._broker.publish(task.queue, encode(task))
        except Unavailable:
            await self._store.batches.put_back(batch)
            raise
        return batch

    async def _leave_unless_on_its_way(self, credential_id: str, found: Batch) -> None:
        batch = await self._store.batches.get(found.job_id, found.ordinal)
        if batch is None or not batch.is_on_its_way:
            await self.leave(credential_id, found.id, turn=found.turn + 1)

    async def _find_next(
        self, credential_id: str, order: SendOrder, now: datetime, known: Places, *, most: int
    ) -> tuple[RunningJob, Batch] | None:
        """The first job in order with a batch that may be sent now, and that batch. If no place is free, only a job
        before a holder counts."""
        by_age = order is SendOrder.AGE
        before = places.last_rank(known) if places.count(known) >= most else None
        async for running in page_in_order(self._store, credential_id, order, floor=places.floor(known)):
            for job in sorted(running, key=lambda job: job.rank(by_age=by_age)):
                if before is not None and job.rank(by_age=by_age) >= before:
                    return None
                batch = await self._find_planned(job.key, now)
                if batch is not None:
                    return job, batch
        return None

    async def _find_planned(self, job_key: str, now: datetime) -> Batch | None:
        since, read_at = self._lowest.get(job_key, (0, 0.0))
        if not since or time.monotonic() > read_at + _REMEMBERED_SECONDS:
            since, read_at = 0, time.monotonic()
        batch = await self._store.message_batches.find_planned(job_key, since=since, now=now)
        if batch is None and since:
            batch = await self._store.message_batches.find_planned(job_key, since=0, now=now)
        self._lowest[job_key] = (0 if batch is None else batch.ordinal, read_at)
        return batch

    async def _change(self, credential_id: str, traffic: Traffic, kept: Places) -> bool:
        pace = traffic.pace.next_seq()
        return await self._store.credentials.change_traffic(credential_id, traffic.pace.seq, pace, kept)


def _without_expired(traffic: Traffic, now: datetime) -> Places:
    return places.drop_expired(traffic.places, ms(now) * 1_000)


def _room(traffic: Traffic, now: datetime) -> "_Room":
    until_us = ms(now + QUEUED_FOR) * 1_000
    beside = sum(place.rank == FIRST_IN_LINE for place in _without_expired(traffic, now))
    return {"until_us": until_us, "most": places.capacity(traffic.rate, traffic.max_in_flight) + beside}
