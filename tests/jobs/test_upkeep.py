"""What upkeep finds in a job that is held, and how schedulers divide the jobs."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from shared.clock.rules.occurrences import SHARDS, Occurrence
from shared.core.errors import Unavailable
from shared.core.tasks import decode
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.feed import Feed
from shared.jobs.rules.jobs import PAUSABLE, JobStatus, SendBatch
from shared.jobs.store_jobs import Jobs
from shared.jobs.upkeep import Found, ShardTurns, Upkeep
from shared.store import Store
from tests.jobs.conftest import impatient
from tests.jobs.made import a_job, add_planned
from tests.samples import sample

pytestmark = pytest.mark.native


async def test_a_queued_batch_of_a_paused_job_gets_a_new_message(
    store: Store, broker: MemoryBroker, upkeep: Upkeep
) -> None:
    """Whoever takes it puts it back; without a message it would still be queued when the job is resumed, and wait."""
    job_id = await add_planned(store, 1)
    lost = await store.batches.queue(job_id, 0)
    assert lost is not None
    await store.jobs.move(job_id, to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    assert (await upkeep.run_once()).queued == 1
    (message,) = broker.queue(SendBatch.queue).ready
    assert decode(message.body, SendBatch) == SendBatch(job_id, 0, lost.turn + 1)


async def test_it_tells_how_long_a_batch_of_a_running_job_has_waited(store: Store, upkeep: Upkeep) -> None:
    job_id = await add_planned(store, 2)
    await upkeep.sweep()  # feeds it
    first = await store.batches.queue(job_id, 0) or await store.batches.get(job_id, 0)
    assert first is not None
    assert first.changed_at is not None
    found = await upkeep.run_once()
    assert found.oldest_queued == first.changed_at
    await upkeep.sweep()
    assert 0 < sample("batch_oldest_queued_seconds") < 60
    await store.jobs.move(job_id, to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    await upkeep.sweep()
    assert sample("batch_oldest_queued_seconds") == 0


ROUND, LEASE = timedelta(seconds=4), timedelta(seconds=30)


class Schedulers:
    """Several of them on one database, at a time of their own, and which jobs they have read."""

    def __init__(self, store: Store, broker: MemoryBroker, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.read = Counter[str]()
        turns = [ShardTurns(store.upkeep_turns, self.tell, every=ROUND, lease=LEASE) for _ in range(3)]
        self.all = [impatient(store, broker, feed, each) for each in turns]
        view = Jobs.view

        async def counted(jobs: Jobs, job_id: str) -> object:
            self.read[job_id] += 1
            return await view(jobs, job_id)

        monkeypatch.setattr(Jobs, "view", counted)

    async def tell(self) -> datetime:
        return self.now

    async def look(self, *, after: timedelta, by: Sequence[int] = (0, 1, 2)) -> Counter[str]:
        """All of these at a time; what they have read."""
        self.now += after
        self.read = Counter()
        await asyncio.gather(*(self.all[number].run_once() for number in by))
        return self.read


@pytest.fixture
def schedulers(store: Store, broker: MemoryBroker, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Schedulers:
    return Schedulers(store, broker, feed, monkeypatch)


async def add_many(store: Store, status: JobStatus, count: int = 80) -> set[str]:
    jobs = [a_job(status=status, incarnation=secrets.token_hex(8)) for _ in range(count)]
    await store.jobs.add_missing(jobs)
    return {job.key for job in jobs}


async def test_schedulers_together_read_each_open_job_once_a_round(store: Store, schedulers: Schedulers) -> None:
    running = await add_many(store, JobStatus.RUNNING)
    for after in (timedelta(0), ROUND, ROUND):
        assert await schedulers.look(after=after) == dict.fromkeys(running, 1)
        assert not await schedulers.look(after=timedelta(0))


async def test_one_scheduler_reads_all_of_them(store: Store, schedulers: Schedulers) -> None:
    running = await add_many(store, JobStatus.RUNNING, 5) | await add_many(store, JobStatus.RUNNING)
    assert await schedulers.look(after=timedelta(0), by=[1]) == dict.fromkeys(running, 1)
    first = a_job()  # in the first shard
    await store.jobs.add(first)
    assert await schedulers.look(after=ROUND, by=[2]) == dict.fromkeys({first.key, *running}, 1)


async def test_held_jobs_are_read_in_every_fourth_round(store: Store, schedulers: Schedulers) -> None:
    held = await add_many(store, JobStatus.PAUSED, 20) | await add_many(store, JobStatus.TRIPPED, 20)
    read = [await schedulers.look(after=ROUND) for _ in range(8)]
    assert [set(each) for each in read] == [held, set(), set(), set()] * 2


async def test_the_shards_of_a_dead_scheduler_are_looked_at_when_its_leases_end(
    store: Store, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await add_many(store, JobStatus.RUNNING, 20)  # so few that no empty shard is looked at
    with monkeypatch.context() as patched:
        patched.setattr(Upkeep, "_take_turn", _die)
        with pytest.raises(asyncio.CancelledError):
            await schedulers.look(after=timedelta(0), by=[0])
    read = await schedulers.look(after=ROUND, by=[1, 2])
    lost = running - set(read)
    assert lost
    assert set(await schedulers.look(after=LEASE - ROUND, by=[1, 2])) == running


async def test_a_shard_whose_look_failed_comes_again_at_once(
    store: Store, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await add_many(store, JobStatus.RUNNING)
    with monkeypatch.context() as patched:
        patched.setattr(Upkeep, "_look_into_jobs", _refuse)
        with pytest.raises(Unavailable):
            await schedulers.look(after=timedelta(0), by=[0])
    assert set(await schedulers.look(after=timedelta(0), by=[1])) == running


async def test_a_look_that_takes_longer_than_the_lease_keeps_its_shard(
    store: Store, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_many(store, JobStatus.RUNNING, 3 * SHARDS)
    sizes = {shard: len([key async for key in store.open_jobs.keys_in(shard, held=False)]) for shard in range(SHARDS)}
    shard = max(sizes, key=lambda each: sizes[each])
    turns, others = (ShardTurns(store.upkeep_turns, schedulers.tell, every=ROUND, lease=LEASE) for _ in range(2))
    claimed = Counter[bool]()

    async def take_long(*_: object) -> Found:
        schedulers.now += 0.6 * LEASE
        claimed[await others.claim(shard) is not None] += 1
        return Found()

    monkeypatch.setattr(Upkeep, "_look_into_job", take_long)
    upkeep = schedulers.all[0]
    await turns.find()
    turn = await turns.claim(shard)
    assert turn is not None
    await upkeep._take_turn(turns, turn, await upkeep._since())
    assert claimed == {False: sizes[shard]}
    assert sizes[shard] >= 3
    assert await others.claim(shard) is not None


async def _die(_upkeep: Upkeep, _turns: ShardTurns, turn: Occurrence, _since: object) -> Found:
    if turn.shard < SHARDS:
        raise asyncio.CancelledError
    return Found()


async def _refuse(*_: object) -> None:
    raise Unavailable("the broker is away")
