"""Senders of messages are killed and frozen at every line where that matters: nobody is called twice behind anybody's
back, and the ledger adds up. The provider is asked what it has seen."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.credentials import OnUnknown
from shared.messages.rules.jobs import Halt
from shared.messages.rules.ledger import MessageState
from shared.runtime import faults
from shared.runtime.configuration import load
from tests.e2e.house import House
from tests.providers.fakes import FakeProcess, fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.post import BUCKET, Post, add_app
from tests.tiers import and_rarely
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.usefixtures("hasty")]

ANA = Doer("user", "ana@example.com")
CALL_SECONDS = 3
MESSAGES = 60
UNTOUCHED = (
    "feed.after_place",
    "feed.after_queue",
    "message.after_take",
    "message.after_grant",
)
"""Where a death leaves nothing open: every message is sent."""

OPEN = (
    "message.after_write_ahead",
    "message.before_bytes",
    "message.after_call",
    "message.before_record",
)
"""Where it leaves messages of which nobody can tell whether they were sent."""

RECORDED = ("message.after_record", "message.before_settle")

EVER = ("message.after_write_ahead", "message.after_take", "message.after_call", "message.after_record")
RARELY = tuple(point for point in (*UNTOUCHED, *OPEN, *RECORDED) if point not in EVER)


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProcess]:
    async with fake_process("http_fake") as running:
        await running.answer(always=Rule(status=202, delay_seconds=0.1))
        yield running


@pytest_asyncio.fixture
async def post(house: House, fake: FakeProcess, tmp_path: Path) -> AsyncIterator[Post]:
    """Jobs for processes that are started by the house, as `House.start` does."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    house.environment |= {
        "CARILLON_BLOBS_URL": blobs.as_uri(),
        "CARILLON_BLOBS_ALLOWED_BUCKETS": BUCKET,
        "CARILLON_PROVIDERS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CARILLON_PROVIDERS_SANDBOX_FILE": str(tmp_path / "sandbox.ndjson"),
        "CARILLON_PROVIDERS_CALL_SECONDS": str(CALL_SECONDS),
        # Beside other tests a process is late more often than on a machine of its own.
        "CARILLON_PROVIDERS_LATE_MS": "1000",
        "CARILLON_PROVIDERS_CLOCK_MS": "500",
    }
    servers = Servers(load(house.environment), service="test")
    rooms = Rooms(servers)
    yield Post(servers, rooms, fake, blobs, await add_app(servers))
    await servers.close()


async def count_calls(post: Post) -> Counter[str]:
    return Counter(await post.called())


async def add_up(post: Post, job: Job, planned: int) -> dict[MessageState, int]:
    """The states of the job's messages: all are accounted for, by the rows and by the tally alike."""
    states = await post.states(job)
    tally = (await post.store.message_sums.count(job.key)).tally
    assert {name: count for name, count in tally.items() if "." not in name and name != "repeated"} == dict(states)
    assert sum(states.values()) == planned
    return dict(states)


@pytest.mark.parametrize("point", and_rarely(pytest.param(EVER[0], marks=pytest.mark.proof), *EVER[1:], rarely=RARELY))
async def test_a_sender_dies_and_nobody_is_called_twice(house: House, post: Post, point: str) -> None:
    credential = await post.credential(rate=100)
    nth = 1 if point in UNTOUCHED else 3
    doomed = await house.start("worker", fault=f"{point}@{nth}=kill")
    await house.start("scheduler")
    job = await post.job(credential, MESSAGES)
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    closed = await post.closed(job, seconds=SECONDS)
    assert closed.status is JobStatus.COMPLETED
    states, calls = await add_up(post, job, MESSAGES), await count_calls(post)
    assert states.keys() <= {MessageState.SENT, MessageState.UNKNOWN}
    assert max(calls.values()) == 1
    called = {entry.id for entry in await post.entries(job) if entry.state is MessageState.SENT}
    assert called <= calls.keys(), "what counts as sent was sent"
    unknown = states.get(MessageState.UNKNOWN, 0)
    assert unknown == 0 or point not in UNTOUCHED
    assert len(calls) >= MESSAGES - unknown


async def test_who_takes_over_from_the_dead_dies_too(house: House, post: Post) -> None:
    credential = await post.credential(rate=100)
    await house.start("scheduler")
    first = await house.start("worker", fault="message.after_call@3=kill")
    job = await post.job(credential, MESSAGES)
    assert await first.gone() == -signal.SIGKILL
    second = await house.start("worker", fault="message.after_disown=kill")
    assert await second.gone() == -signal.SIGKILL
    await house.start("worker")
    await post.closed(job, seconds=SECONDS)
    states, calls = await add_up(post, job, MESSAGES), await count_calls(post)
    assert states.keys() == {MessageState.SENT, MessageState.UNKNOWN}
    assert max(calls.values()) == 1
    assert len(calls) >= states[MessageState.SENT]


async def test_who_was_to_hold_a_job_dies_and_it_is_held(house: House, post: Post) -> None:
    credential = await post.credential(kind="sandbox", fields={}, rate=20)
    people = [f"r{row}{'+bounce' if row < 15 else ''}@example.com" for row in range(200)]
    doomed = await house.start("worker", fault="halt.before_move=kill")
    await house.start("scheduler")
    job = await post.job(credential, people, halt=Halt(share=0.05, minimum=10))
    assert await doomed.gone() == -signal.SIGKILL
    assert (await post.store.jobs.view(job.key)).status is JobStatus.RUNNING
    await house.start("worker")

    async def is_held() -> bool:
        return (await post.store.jobs.view(job.key)).status is JobStatus.TRIPPED

    await until(is_held)


@pytest.mark.parametrize("point", ["retry.after_job", "retry.after_batches"])
async def test_a_retry_that_was_left_halfway_is_brought_to_its_end(house: House, post: Post, point: str) -> None:
    await house.start("worker")
    await house.start("scheduler")
    credential = await post.credential(rate=100)
    await post.fake.answer(always=Rule(status=400))
    closed = await post.closed(await post.job(credential, MESSAGES), seconds=SECONDS)
    await post.fake.answer(always=Rule(status=202))
    faults.arm(f"{point}=raise")
    try:
        with pytest.raises(faults.FaultInjected):
            await post.rooms.messages.retry.retry(closed, [MessageState.FAILED], by=ANA)
    finally:
        faults.arm("")
    await post.closed(closed, seconds=SECONDS)
    assert await add_up(post, closed, MESSAGES) == {MessageState.SENT: MESSAGES}
    assert set((await count_calls(post)).values()) == {2}


@pytest.mark.parametrize(
    "point", and_rarely("message.after_write_ahead", rarely=("single.after_take", "message.after_call"))
)
async def test_a_sender_of_single_messages_dies_and_nobody_is_called_twice(
    house: House, post: Post, point: str
) -> None:
    credential = await post.credential(rate=50)
    doomed = await house.start("worker", fault=f"{point}=kill")
    await house.start("scheduler")
    ids = await post.accept(credential, [f"s{number}@example.com" for number in range(30)])
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    states, calls = await post.ended(ids, seconds=SECONDS), await count_calls(post)
    assert states.keys() <= {MessageState.SENT, MessageState.UNKNOWN}
    assert (states[MessageState.UNKNOWN] > 0) == (point in OPEN)
    assert max(calls.values()) == 1
    assert len(calls) >= states[MessageState.SENT]


async def test_a_single_message_is_sent_though_nobody_was_told_of_it(house: House, post: Post) -> None:
    credential = await post.credential()
    await post.servers.broker.purge("message.single")
    ids = await post.accept(credential, ["ana@example.com"])
    await post.servers.broker.purge("message.single")
    await house.start("worker")
    await house.start("scheduler")
    assert await post.ended(ids, seconds=SECONDS) == {MessageState.SENT: 1}


@pytest.mark.parametrize("point", and_rarely(OPEN[0], rarely=OPEN[1:]))
async def test_what_nobody_knows_is_sent_again_where_the_policy_says_so(house: House, post: Post, point: str) -> None:
    credential = await post.credential(rate=100)
    doomed = await house.start("worker", fault=f"{point}@2=kill")
    await house.start("scheduler")
    job = await post.job(credential, MESSAGES, on_unknown=OnUnknown.RETRY)
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    await post.closed(job, seconds=SECONDS)
    assert await add_up(post, job, MESSAGES) == {MessageState.SENT: MESSAGES}
    calls = await count_calls(post)
    assert len(calls) == MESSAGES
    repeated = {entry.id for entry in await post.entries(job) if entry.repeated}
    assert {message for message, count in calls.items() if count > 1} <= repeated


@pytest.mark.parametrize("point", and_rarely("message.before_bytes", rarely=("message.after_take", *OPEN, *RECORDED)))
async def test_a_sender_freezes_and_wakes_up_when_others_have_gone_on(house: House, post: Post, point: str) -> None:
    credential = await post.credential(rate=100)
    frozen = await house.start("worker", fault=f"{point}@3=stop")
    await house.start("scheduler")
    job = await post.job(credential, MESSAGES)
    await frozen.reached(point)
    await house.start("worker")
    await post.closed(job, seconds=SECONDS)
    before = await count_calls(post)
    frozen.send(signal.SIGCONT)
    await asyncio.sleep(2 * CALL_SECONDS)  # what it may still do it does by then
    states, calls = await add_up(post, job, MESSAGES), await count_calls(post)
    # A call that came to nothing is told late, too.
    assert states.keys() <= {MessageState.SENT, MessageState.UNKNOWN, MessageState.FAILED}
    assert max(calls.values()) == 1, "a call that was noted before the freeze may begin, and none behind it"
    assert calls.total() <= before.total() + 1


@pytest.mark.slow
async def test_workers_die_again_and_again(house: House, post: Post) -> None:
    credential = await post.credential(rate=200)
    await house.start("scheduler")
    jobs = [await post.job(credential, 80), await post.job(credential, 40, on_unknown=OnUnknown.RETRY)]
    for number, point in enumerate((*OPEN, *RECORDED)):
        doomed = await house.start("worker", fault=f"{point}@{1 + number % 2}=kill")
        assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    for job in jobs:
        await post.closed(job, seconds=120)
    held = await add_up(post, jobs[0], 80)
    assert held.keys() <= {MessageState.SENT, MessageState.UNKNOWN}
    assert await add_up(post, jobs[1], 40) == {MessageState.SENT: 40}
    calls = await count_calls(post)
    assert all(count == 1 for message, count in calls.items() if message.startswith(jobs[0].incarnation))


async def test_a_worker_ends_within_its_grace_and_nothing_is_open(house: House, post: Post) -> None:
    worker = await house.start("worker")
    job = await post.job(await post.credential(rate=50), 200)
    await post.has_calls(20, seconds=SECONDS)
    worker.send(signal.SIGTERM)
    assert await worker.gone() == 0
    states = await post.states(job)
    assert states.keys() <= {MessageState.SENT, MessageState.UNSENT}
    assert states[MessageState.SENT] == len(await post.called())
    await house.start("worker")
    await house.start("scheduler")
    await post.closed(job, seconds=SECONDS)
    assert await add_up(post, job, 200) == {MessageState.SENT: 200}
    assert max((await count_calls(post)).values()) == 1


@pytest.mark.proof
async def test_the_brokers_messages_are_lost(house: House, post: Post) -> None:
    credential = await post.credential(rate=100)
    job = await post.job(credential, MESSAGES)
    await post.rooms.jobs.feed.plan(job.key)
    planner = await house.start("worker", fault="message.after_take=kill")
    assert await planner.gone() == -signal.SIGKILL
    await post.servers.broker.purge("message.batch")
    await house.start("worker", CARILLON_PROVIDERS_CALL_SECONDS="20")
    await house.start("scheduler")
    await post.closed(job, seconds=SECONDS)
    assert await add_up(post, job, MESSAGES) == {MessageState.SENT: MESSAGES}
    assert set((await count_calls(post)).values()) == {1}
