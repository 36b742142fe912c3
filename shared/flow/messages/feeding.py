"""Feeding a credential: its jobs' batches go to the broker in the order of its jobs, a few at a time.

    find the next job ──> take a place ──> queue its batch ──> publish

A credential has few places (`shared.domain.messages.places`), and a batch without one is not queued. So what comes
first in order goes first, whoever feeds. A place that is taken and whose batch is on nobody's way, since a process died
between the two, ends by its time.
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TypedDict

from cachetools import LRUCache

from shared.broker import Broker
from shared.domain.clock.occurrences import Occurrence, once
from shared.domain.errors import Unavailable
from shared.domain.instants import LATEST, from_ms, ms
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.jobs import Job
from shared.domain.messages import places
from shared.domain.messages.credentials import SendOrder, Traffic
from shared.domain.messages.owners import credential_owner, read_credential_owner
from shared.domain.messages.pacing import earliest_us
from shared.domain.messages.places import Places, Rank
from shared.domain.messages.shares import Share, join
from shared.domain.messages.tasks import SendMessages
from shared.domain.tasks import encode
from shared.runtime.faults import fault
from shared.runtime.metrics import ACCOUNT_PLACES
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.store.messages.jobs import RunningJob

FIRST_IN_LINE: Rank = (-1.0, 0, "")
"""The rank of single messages."""

QUEUED_FOR = timedelta(seconds=60)
"""For how long a batch keeps its place while it waits for a worker."""


class _Room(TypedDict):
    until_us: int
    most: int


_TRIES = 20
_JOBS_LOOKED_AT = 200
_DRY_RUN_BATCHES = 2
_REMEMBERED = 1_000


class CredentialFeed:
    """Feeds credentials. To feed one once too often does no harm. All raise `Unavailable`."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker
        # A job's lowest batch that may still be planned, as far as we know: a plan is not read from its beginning.
        self._lowest: LRUCache[str, int] = LRUCache(_REMEMBERED)

    async def feed_credential(self, credential_id: str) -> None:
        """Queue batches as long as there are places and batches that may be sent now."""
        while await self._feed_one(credential_id):
            pass
        for job in await self._store.message_jobs.find_dry_runs(credential_id, limit=_JOBS_LOOKED_AT):
            await self._feed_dry_run(job)

    async def drain(self, job: Job) -> None:
        """Queue all planned batches of a stopped job, without places: their workers send nothing, and end them."""
        while (batch := await self._store.message_batches.find_planned(job.key, since=0, now=LATEST)) is not None:
            await self._publish(batch)

    async def feed_due(self, occurrence: Occurrence) -> None:
        """Feed the credential that waited for this instant."""
        await self.feed_credential(read_credential_owner(occurrence.owner))

    async def feed_at(self, credential_id: str, due: datetime) -> None:
        """Have the clock feed the credential then."""
        entry = once(credential_owner(credential_id), str(ms(due)), due, accepted_at=await self._store.now())
        await self._store.occurrences.add([entry])

    async def keep_place(self, credential_id: str, batch: Batch, rank: Rank) -> bool:
        """Renew the place of a batch that a worker has; `False` where it has none any more, and none is free."""
        return await self._keep_place(credential_id, batch.id, rank, beside=0)

    async def enter_first(self, credential_id: str, holder: str) -> bool:
        """Take a place before all batches, beside the places that these may have; `False` where nothing is sent now or
        somebody else has it."""
        return await self._keep_place(credential_id, holder, FIRST_IN_LINE, beside=1)

    async def _keep_place(self, credential_id: str, holder: str, rank: Rank, *, beside: int) -> bool:
        for _ in range(_TRIES):
            traffic = await self._store.credentials.get_traffic(credential_id)
            if traffic is None or not traffic.flows:
                return False
            now = await self._store.now()
            known, room = places.leave(_without_expired(traffic, now, keep=holder), holder), _room(traffic, now)
            mine = places.place_of(traffic.places, holder)
            is_mine = mine is not None and mine.until_us > ms(now) * 1_000
            most = max(room["most"], places.count(known)) + (1 if is_mine else beside)
            kept = places.enter(
                known, holder, rank if mine is None else mine.rank, until_us=room["until_us"], most=most
            )
            if kept is None:
                return False
            if await self._change(credential_id, traffic, kept):
                return True
        raise Unavailable("too many others change the places of this credential")

    async def leave(self, credential_id: str, holder: str) -> None:
        """Let go of a place."""
        for _ in range(_TRIES):
            traffic = await self._store.credentials.get_traffic(credential_id)
            if traffic is None or places.place_of(traffic.places, holder) is None:
                return
            if await self._change(credential_id, traffic, places.leave(traffic.places, holder)):
                return
        raise Unavailable("too many others change the places of this credential")

    async def _feed_one(self, credential_id: str) -> bool:
        """Whether there may be more to feed."""
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
        # Where no place is free, only who comes before a holder makes a difference.
        last = max((place.rank for place in known), default=None) if places.count(known) >= room["most"] else None
        found = await self._find_next(credential_id, traffic.order, now, before=last)
        if found is None:
            return False
        job, batch = found
        rank = job.rank(by_age=traffic.order is SendOrder.AGE)
        entered = places.enter(known, batch.id, rank, **room)
        if entered is None:
            ACCOUNT_PLACES.labels("waited").inc()
            yielding = places.have_one_yield(known, rank)
            # Lost to somebody faster, who feeds or sends: whose place ends next makes us come again.
            if yielding != known:
                await self._change(credential_id, traffic, yielding)
            return False
        if await self._change(credential_id, traffic, entered):
            ACCOUNT_PLACES.labels("taken").inc()
            await fault("feed.after_place")
            await self._queue(credential_id, traffic.order, job, batch)
        return True

    async def _end_jobs(self, credential_id: str) -> bool:
        """Have jobs ended whose credential is gone: the worker of a batch stops its job."""
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
            await self._store.message_jobs.count_share(job.key, batch.size / job.share)

    async def _publish(self, found: Batch) -> Batch | None:
        """The batch, on its way to a worker; `None` where somebody else was faster. Raises `Unavailable`: then it is in
        its plan, if the store is there."""
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
            await self.leave(credential_id, found.id)

    async def _feed_dry_run(self, job: RunningJob) -> None:
        """Queue batches of a job that calls nobody: it needs no place, and has a few on their way at a time, so that it
        keeps no worker from sending."""
        on_their_way = sum(map(len, (await self._store.batches.find_on_their_way(job.key)).values()))
        for _ in range(on_their_way, _DRY_RUN_BATCHES):
            found = await self._find_planned(job.key, await self._store.now())
            if found is None or await self._publish(found) is None:
                return

    async def _find_next(
        self, credential_id: str, order: SendOrder, now: datetime, *, before: Rank | None
    ) -> tuple[RunningJob, Batch] | None:
        """The first job in order, of those before this rank, that has a batch which may be sent now, and that batch."""
        by_age = order is SendOrder.AGE
        async for running in self._find_running(credential_id, by_age=by_age):
            for job in sorted(running, key=lambda job: job.rank(by_age=by_age)):
                if before is not None and job.rank(by_age=by_age) >= before:
                    return None
                batch = await self._find_planned(job.key, now)
                if batch is not None:
                    return job, batch
        return None

    async def _find_running(self, credential_id: str, *, by_age: bool) -> AsyncIterator[list[RunningJob]]:
        """The jobs in portions, each of which comes before the next one: by shares all are in one."""
        pages = self._page_running(credential_id)
        if not by_age:
            yield await self._let_join([job async for page in pages for job in page])
            return
        async for page in pages:
            yield page

    async def _page_running(self, credential_id: str) -> AsyncIterator[list[RunningJob]]:
        seen, since, jobs = set[str](), 0, self._store.message_jobs
        while page := await jobs.find_running(credential_id, since=since, limit=_JOBS_LOOKED_AT):
            if not (fresh := [job for job in page if job.key not in seen]):
                return
            yield fresh
            seen.update(job.key for job in fresh)
            since = page[-1].created_at

    async def _find_planned(self, job_key: str, now: datetime) -> Batch | None:
        since = self._lowest.get(job_key, 0)
        batch = await self._store.message_batches.find_planned(job_key, since=since, now=now)
        if batch is None and since:
            batch = await self._store.message_batches.find_planned(job_key, since=0, now=now)
        self._lowest[job_key] = 0 if batch is None else batch.ordinal
        return batch

    async def _let_join(self, running: list[RunningJob]) -> list[RunningJob]:
        """The same jobs, all with a place in the order of shares."""
        begun = [Share(job.had, job.share) for job in running if job.had is not None]
        joined = []
        for job in running:
            had = job.had
            if had is None:
                had = join(begun, job.share).had
                await self._store.message_jobs.join(job.key, had)
            joined.append(RunningJob(job.key, job.created_at, job.share, had))
        return joined

    async def _change(self, credential_id: str, traffic: Traffic, kept: Places) -> bool:
        pace = traffic.pace.next_seq()
        return await self._store.credentials.change_traffic(credential_id, traffic.pace.seq, pace, kept)


def _without_expired(traffic: Traffic, now: datetime, *, keep: str = "") -> Places:
    return places.drop_expired(traffic.places, ms(now) * 1_000, keep=keep)


def _room(traffic: Traffic, now: datetime) -> "_Room":
    until_us = ms(now + QUEUED_FOR) * 1_000
    beside = sum(place.rank == FIRST_IN_LINE for place in traffic.places)
    return {"until_us": until_us, "most": places.capacity(traffic.rate, traffic.max_in_flight) + beside}
