"""Upkeep: find work that lost its message or its process, and start it again.

Upkeep finds, in every open job (jobs that wait for their start cost nothing):

- a plan without progress for a while: planned again from its end;
- a chain whose next batch was never fed: fed;
- a queued batch, also of a held job, that has waited while its queue is empty, or for very long: its message is lost,
  so it gets another;
- a batch owned for longer than its transaction may last: its worker is dead or stopped; the batch gets a message, and
  the worker that takes it recovers the batch;
- a scheduled job whose start has passed: begun, because its occurrence is missing or late;
- a stopped job with unsent batches: dropped;
- a job with too many failed batches: held;
- a localized job without the jobs of some zones: completed;
- a due mail: sent;
- a job whose batches are all settled: closed.

Work that was put off is not lost: while its occurrence exists, the clock brings it back, with its tries counted. Upkeep
finds it only if the occurrence is lost as well.

The ages spare healthy work; safety does not need them: each of these steps is right at any time.

Schedulers divide the jobs by shard. Each shard has a document, its turn, which schedulers claim as the clock claims
occurrences: a claim moves `visible_at` to the end of a lease, and the end of a look moves it to the next round. So each
job is looked at once a round, however many schedulers run. If a scheduler dies, others claim its shards when the leases
end. A held job is looked at in every fourth round, because its lost work is not urgent.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from msgspec import Struct
from msgspec.structs import replace

from shared.clock.rules.occurrences import SHARDS, Occurrence, series
from shared.clock.store_occurrences import Occurrences, Visible, fresh_token
from shared.core.errors import Unavailable
from shared.core.instants import EPOCH
from shared.drivers.rabbitmq import Broker
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.kinds import JobKinds, UnknownKind
from shared.jobs.moves import GroupFlow, JobFlow
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.groups import Group
from shared.jobs.rules.jobs import SPLIT_QUEUE, Job, JobStage, batch_owner, job_owner
from shared.runtime.loops import Swept
from shared.runtime.metrics import BATCH_OLDEST_QUEUED, UPKEEP_FOUND
from shared.runtime.tracing import carry
from shared.store import Store

log = structlog.get_logger(__name__)

# The clock begins due jobs; upkeep begins only those that it missed.
_START_GRACE = timedelta(seconds=2)
_RARELY = 4
_RARE = SHARDS
_TURNS = [replace(series(f"upkeep/{n}", "", EPOCH, accepted_at=EPOCH), shard=n) for n in range(2 * SHARDS)]


class UpkeepPatience(Struct, frozen=True):
    """Work counts as lost after this long: `owned` by a lane; `queued` while its queue is empty; `at_latest` on the
    broker at all, because a busy queue says nothing about one job's messages."""

    owned: timedelta
    queued: timedelta
    at_latest: timedelta


class Found(Struct, frozen=True):
    """The counts of one look: jobs, plans, batches by kind, jobs with a missed start or due mails, and groups that
    lacked jobs. `oldest_queued` is when the longest-waiting batch of running jobs was queued."""

    jobs: int = 0
    plans: int = 0
    queued: int = 0
    owned: int = 0
    starts: int = 0
    mails: int = 0
    groups: int = 0
    oldest_queued: datetime | None = None


_LOSSES = ("plans", "queued", "owned", "starts", "mails", "groups")


class ShardTurns:
    """The shards that this process looks at. Turns below `SHARDS` are for jobs that are not held. The others are for
    held jobs; the first of them, `_RARE`, also covers rare losses."""

    def __init__(
        self, turns: Occurrences, now: Callable[[], Awaitable[datetime]], *, every: timedelta, lease: timedelta
    ) -> None:
        """A look at a shard ends a round of `every`; claims of a dead process are free after `lease`."""
        self._turns = turns
        self._now = now
        self._every = every
        self._lease = lease
        self._made = False

    async def find(self) -> set[int]:
        if not self._made:
            await self._turns.add(_TURNS)
            self._made = True
        heads = await self._turns.heads(Visible(await self._now()))
        if heads is None:
            return set()
        return set(range(len(_TURNS)) if heads.shards is None else heads.shards)

    async def claim(self, number: int) -> Occurrence | None:
        token, now = fresh_token(), await self._now()
        if not await self._turns.claim(number, token, Visible(now), leased_until=now + self._lease):
            return None
        return replace(_TURNS[number], token=token, due=now)

    async def renew_while_read(self, turn: Occurrence, job_ids: AsyncIterator[str]) -> AsyncIterator[str]:
        """Pass these ids on, and renew the lease of the turn when half of it has passed."""
        renewed = turn.due
        async for job_id in job_ids:
            now = await self._now()
            if now >= renewed + self._lease / 2:
                await self._turns.hand_over([turn], turn.token, leased_until=now + self._lease)
                renewed = now
            yield job_id

    async def end(self, turn: Occurrence) -> None:
        rounds = _RARELY if turn.shard >= SHARDS else 1
        await self._turns.advance([(turn, replace(turn, due=turn.due + rounds * self._every))])

    async def give_back(self, turn: Occurrence) -> None:
        await self._turns.release([turn])


class Upkeep:
    """Looks through the open jobs of its `turns`, or through all if it has none."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        feed: Feed,
        flow: JobFlow,
        groups: GroupFlow,
        breaker: Breaker,
        kinds: JobKinds,
        patience: UpkeepPatience,
        turns: ShardTurns | None = None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._feed = feed
        self._flow = flow
        self._groups = groups
        self._breaker = breaker
        self._kinds = kinds
        self._patience = patience
        self._turns = turns

    async def sweep(self) -> Swept:
        found = await self.run_once()
        kinds = {name: getattr(found, name) for name in _LOSSES}
        for kind, count in kinds.items():
            UPKEEP_FOUND.labels(kind).inc(count)
        oldest = found.oldest_queued
        age = (await self._store.now() - oldest).total_seconds() if oldest is not None else 0.0
        BATCH_OLDEST_QUEUED.set(max(age, 0.0))
        return Swept(claimed=found.jobs, retried=sum(kinds.values()))

    async def run_once(self) -> Found:
        since, jobs = await self._since(), self._store.open_jobs
        if self._turns is None:
            return _sum(await self._look_into_jobs(jobs.open_keys(), since), await self._look_for_rare_losses(since))
        numbers = list((await jobs.find_shards() | {_RARE}) & await self._turns.find())
        random.shuffle(numbers)
        found = Found()
        for number in numbers:
            if (turn := await self._turns.claim(number)) is not None:
                found = _sum(found, await self._take_turn(self._turns, turn, since))
        return found

    async def _take_turn(self, turns: ShardTurns, turn: Occurrence, since: "_Since") -> Found:
        held, shard = divmod(turn.shard, SHARDS)
        try:
            job_ids = self._store.open_jobs.keys_in(shard, held=bool(held))
            found = await self._look_into_jobs(turns.renew_while_read(turn, job_ids), since)
            if turn.shard == _RARE:
                found = _sum(found, await self._look_for_rare_losses(since))
        except Unavailable:
            await turns.give_back(turn)
            raise
        await turns.end(turn)
        return found

    async def _look_into_jobs(self, job_ids: AsyncIterator[str], since: "_Since") -> Found:
        found = Found()
        async for job_id in job_ids:
            found = _sum(found, await self._log_and_continue(self._look_into_job(job_id, since), job_id))
        return found

    async def _look_for_rare_losses(self, since: "_Since") -> Found:
        """Look less often for what only a dead process leaves behind, so that an idle store has little to do."""
        found = Found()
        async for job_id in self._store.open_jobs.overdue_keys(since.starts):
            found = _sum(found, await self._log_and_continue(self._begin_job(job_id), job_id))
        async for job_id in self._store.mails.find_waiting(since.mails):
            found = _sum(found, await self._log_and_continue(self._send_mails(job_id), job_id))
        async for group in self._groups.find_incomplete():
            found = _sum(found, await self._log_and_continue(self._complete_group(group), group.id))
        return found

    async def _log_and_continue(self, look: Awaitable[Found], id_: str) -> Found:
        try:
            return await look
        except UnknownKind as error:
            log.error("a job is left to processes that know its kind", id=id_, reason=str(error))
            return Found()
        except Unavailable:
            raise
        except Exception:
            # The look at other jobs continues.
            log.exception("upkeep cannot look at a job or a group", id=id_)
            return Found()

    async def _since(self) -> "_Since":
        now = await self._store.now()
        at_latest, queued = now - self._patience.at_latest, now - self._patience.queued
        return _Since(
            now=now,
            owned=now - self._patience.owned,
            plans=at_latest if await self._broker.depth(SPLIT_QUEUE) else queued,
            batches={queue: at_latest if await self._is_busy(queue) else queued for queue in self._kinds.queues},
            starts=now - _START_GRACE,
            mails=queued,
            fed=set(),
        )

    async def _is_busy(self, queue: str) -> bool:
        """Whether messages wait in the queue. A missing queue, because `carillon init` was not repeated, must not end
        the look at the others."""
        try:
            return await self._broker.depth(queue) > 0
        except Unavailable as error:
            log.warning("upkeep does not know how many batches wait", queue=queue, reason=str(error))
            return True

    async def _look_into_job(self, job_id: str, since: "_Since") -> Found:
        job = await self._store.jobs.view(job_id)
        if job is None or not job.open:
            return Found()
        with carry(job.trace):
            return await self._set_going(job, since)

    async def _set_going(self, job: Job, since: "_Since") -> Found:
        on_their_way = await self._store.batches.find_on_their_way(job.key)
        owned = 0
        if batches := on_their_way[BatchStatus.SENDING]:
            silence = self._kinds.of(job.service).silence
            moment = since.owned if silence is None else since.silent(silence)
            owned = await self._requeue_stale(job, batches, moment)
        if job.standing.may_finish and await self._is_put_off(job.key, JobStage.FINISH):
            return Found(jobs=1, owned=owned)
        if job.standing.stopped:
            await self._flow.drop_unsent(job.key, job.round)
            await self._kinds.of(job.service).drain(job)
            return Found(jobs=1, owned=owned)
        plans = await self._plan_again(job, since.plans)
        # Held jobs too: the worker that takes the batch puts it back, so that it is fed when the job continues.
        queued = 0
        if batches := on_their_way[BatchStatus.QUEUED]:
            queue = self._kinds.of(job.service).batch_task.queue
            queued = await self._requeue_stale(job, batches, since.batches[queue])
        if not job.standing.feeds:
            return Found(jobs=1, plans=plans, queued=queued, owned=owned)
        if job.reopening:
            await self._kinds.of(job.service).reopen(job)
        await self._breaker.look(job.key)
        await self._feed_once(job, since.fed)
        changed_at = [batch.changed_at for batch in on_their_way[BatchStatus.QUEUED] if batch.changed_at is not None]
        oldest = min(changed_at, default=None)
        return Found(jobs=1, plans=plans, queued=queued, owned=owned, oldest_queued=oldest)

    async def _feed_once(self, job: Job, fed: set[str]) -> None:
        """Feed the job, but only once for all jobs of a credential that feeds them together."""
        if not job.credential_id or job.credential_id not in fed:
            await self._feed.feed_job(job.key)
            fed.add(job.credential_id)
        elif job.standing.may_finish:
            await self._feed.finish_if_done(job.key)

    async def _begin_job(self, job_id: str) -> Found:
        log.info("a start was missed", job_id=job_id)
        job = await self._store.jobs.view(job_id)
        with carry("" if job is None else job.trace):
            await self._flow.begin(job_id)
        return Found(jobs=1, starts=1)

    async def _complete_group(self, group: Group) -> Found:
        log.info("a group is completed", group_id=group.id)
        await self._groups.complete(group)
        return Found(groups=1)

    async def _send_mails(self, job_id: str) -> Found:
        job = await self._store.jobs.view(job_id)
        if job is None or await self._is_put_off(job_id, JobStage.MAIL):
            return Found()
        await self._store.mails.touch(job_id, await self._store.now())
        with carry(job.trace):
            await self._feed.mails(job)
        return Found(mails=len(job.mails))

    async def _plan_again(self, job: Job, since: datetime) -> int:
        worked_at = job.changed_at is not None and job.changed_at >= since
        if job.plan.end is not None or worked_at or job.waits:
            return 0
        if await self._is_put_off(job.key, JobStage.PLAN):
            return 0
        await self._store.jobs.touch(job.key)
        await self._feed.plan(job.key)
        log.info("plan taken up again", job_id=job.id)
        return 1

    async def _is_put_off(self, job_id: str, stage: JobStage) -> bool:
        return bool(await self._store.occurrences.with_any([job_owner(job_id, stage)]))

    async def _requeue_stale(self, job: Job, batches: Sequence[Batch], since: datetime) -> int:
        """Requeue batches unchanged since `since` that the clock will not bring back."""
        silent = [batch for batch in batches if batch.changed_at is None or batch.changed_at < since]
        waiting = {batch_owner(batch.job_id, batch.ordinal): batch for batch in silent}
        put_off = await self._store.occurrences.with_any(list(waiting)) if waiting else set()
        stale = [batch for owner, batch in waiting.items() if owner not in put_off]
        renewed = [batch.ordinal for batch in stale if await self._feed.requeue(batch)]
        if renewed:
            log.info("batches queued again", job_id=job.id, batches=len(renewed))
        return len(renewed)


class _Since(Struct, frozen=True):
    """Work that has been silent since before these moments is lost; `now` is the time of that decision. `fed` contains
    ids of credentials that were fed in this look."""

    now: datetime
    owned: datetime
    plans: datetime
    batches: Mapping[str, datetime]
    starts: datetime
    mails: datetime
    fed: set[str]

    def silent(self, silence: timedelta) -> datetime:
        """The moment before which silence of `silence` means loss, never later than `owned`."""
        return max(self.owned, self.now - silence)


def _sum(one: Found, other: Found) -> Found:
    return Found(
        jobs=one.jobs + other.jobs,
        plans=one.plans + other.plans,
        queued=one.queued + other.queued,
        owned=one.owned + other.owned,
        starts=one.starts + other.starts,
        mails=one.mails + other.mails,
        groups=one.groups + other.groups,
        oldest_queued=min(filter(None, (one.oldest_queued, other.oldest_queued)), default=None),
    )
