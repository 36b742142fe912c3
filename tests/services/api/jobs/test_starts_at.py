"""Jobs with a start that lies ahead: what is stored when, and what becomes of them in every order of events.

Starts are told by the database's clock; the API's own stands still and far ahead of it, which must not matter.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.clock.rules.occurrences import Occurrence
from shared.core.errors import Unavailable
from shared.core.ids import Idempotency
from shared.core.instants import ms, ns
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.moves import GroupFlow, start_of
from shared.jobs.rules.jobs import SPLIT_QUEUE, Job, JobStatus
from shared.jobs.upkeep import Found, Upkeep, UpkeepPatience
from shared.push.rules.records import APNS
from tests.jobs.kinds import KINDS
from tests.services.api.conftest import House
from tests.services.api.jobs.test_jobs import JOB

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _ns(instant: datetime) -> int:
    return ms(instant) * 1_000_000


async def _starting(house: House, *, seconds: float, **fields: object) -> Job:
    """A stored job, with its occurrence, that starts so many seconds from now."""
    now = await house.store.now()
    standard = {
        "id": str(uuid.uuid4()),
        "app_id": "app",
        "app_name": "app",
        "service": APNS,
        "template_names": ("like",),
        "created_by": "a@example.com",
        "group_id": "g",
        "status": JobStatus.SCHEDULED,
        "starts_at": _ns(now + timedelta(seconds=seconds)),
    }
    job, fresh = await house.flow.start(Job(**(standard | fields)))  # type: ignore[arg-type]
    assert fresh
    return job


async def _occurrences(house: House, job_id: str) -> list[Occurrence]:
    return await house.store.occurrences.find_upcoming(await _start(house, job_id), 5)


async def _start(house: House, job_id: str) -> str:
    """The owner of the occurrence that begins the job."""
    job = await house.store.jobs.view(job_id)
    assert job is not None
    return start_of(job.key)


async def _status(house: House, job_id: str) -> JobStatus:
    job = await house.store.jobs.view(job_id)
    assert job is not None
    return job.status


async def _plans(house: House, steps: Callable[[], Awaitable[object]]) -> int:
    """How many plan tasks the steps publish."""
    before = await house.broker.depth(SPLIT_QUEUE)
    await steps()
    return await house.broker.depth(SPLIT_QUEUE) - before


async def _look(house: House, *, patience: timedelta = timedelta(hours=1)) -> Found:
    await house.store._database["jobs"].delete_many({"app_id": {"$ne": "app"}})
    feed = Feed(house.store, house.broker, KINDS)
    breaker = Breaker(house.store, house.clock, role="worker", max_failed_share=0.05, mails=False)
    groups = GroupFlow(house.store, house.flow)
    limits = UpkeepPatience(patience, patience, patience)
    return await Upkeep(house.store, house.broker, feed, house.flow, groups, breaker, KINDS, limits).run_once()


async def test_a_job_that_starts_later_waits_for_its_occurrence(house: House) -> None:
    app_id = await house.app_with_template()
    starts_at = house.clock.now_ns() + 60_000_000_001
    before = await house.broker.depth(SPLIT_QUEUE)
    reply = await house.admin.post(
        f"/apps/{app_id}/jobs?template=like", JOB | {"startsAt": starts_at, "expiresAt": starts_at + 1}
    )
    assert (reply.status, reply.json["startsAt"], reply.json["status"]) == (201, starts_at, ""), reply.body
    assert (reply.json["expiresAt"], reply.json["completedAt"]) == (starts_at + 1, 0)
    job_id = reply.json["id"]
    assert await _status(house, job_id) is JobStatus.SCHEDULED
    (occurrence,) = await _occurrences(house, job_id)
    assert _ns(occurrence.due) == -(-starts_at // 1_000_000) * 1_000_000
    assert abs(await house.store.now() - occurrence.accepted_at) < timedelta(seconds=10)
    assert await house.broker.depth(SPLIT_QUEUE) == before
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["startsAt"] == starts_at
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 409


async def test_instants_may_be_texts_and_are_answered_in_nanoseconds(house: House) -> None:
    app_id = await house.app_with_template()
    ask = {"startsAt": "2126-12-24T09:00:00.25Z", "expiresAt": "2126-12-24T11:00+01:00"}
    plain = await house.admin.post(f"/apps/{app_id}/jobs?template=like", JOB | ask)
    assert plain.status == 201, plain.body
    start, hour = ns(datetime(2126, 12, 24, 9, tzinfo=UTC)), 3_600 * 10**9
    assert (plain.json["startsAt"], plain.json["expiresAt"]) == (start + hour // 3600 // 4, start + hour)
    everywhere = JOB | {"localized": True, "startsAt": "2126-12-24T09:00:00"}
    localized = await house.admin.post(f"/apps/{app_id}/jobs?template=like", everywhere)
    assert localized.status == 201, localized.body
    starts = {zone["zone"]: zone["startsAt"] for zone in localized.json["zones"]}
    assert (starts["+0000"], starts["-0300"], starts["+0100"]) == (start, start + 3 * hour, start - hour)


async def test_pause_resume_and_stop_before_the_start_answer_as_marathon_does(house: House) -> None:
    app_id = await house.app_with_template()
    ask = JOB | {"startsAt": house.clock.now_ns() + 10**12}
    job_id = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", ask)).json["id"]
    path = f"/apps/{app_id}/jobs/{job_id}"

    async def move(verb: str) -> tuple[int, str]:
        reply = await house.admin.put(f"{path}/{verb}")
        return reply.status, reply.json.get("reason", reply.json["status"])

    assert await move("resume") == (403, "cannot resume job with status other than paused/circuitbreak")
    assert await move("pause") == (200, "paused")
    assert await move("resume") == (200, "")
    assert await _status(house, job_id) is JobStatus.SCHEDULED
    assert len(await _occurrences(house, job_id)) == 1
    assert await move("stop") == (200, "stopped")
    assert await _occurrences(house, job_id) == []
    assert await move("resume") == (403, "cannot resume job with status other than paused/circuitbreak")


async def test_a_repeated_request_makes_good_the_occurrence_that_is_missing(house: House) -> None:
    app_id = await house.app_with_template()
    ask = JOB | {"startsAt": house.clock.now_ns() + 10**12}
    replies = []
    for _ in range(2):
        replies.append(await house.admin.post(f"/apps/{app_id}/jobs?template=like", ask, Idempotency_Key="later"))
        job_id = replies[0].json["id"]
        assert len(await _occurrences(house, job_id)) == 1
        await house.store.occurrences.remove_of(await _start(house, job_id))
    assert [reply.status for reply in replies] == [201, 200]


async def test_a_job_is_begun_once(house: House) -> None:
    job = await _starting(house, seconds=-1)

    async def begin() -> None:
        await asyncio.gather(*(house.flow.begin(job.id) for _ in range(4)))

    assert await _plans(house, begin) == 1
    assert await _status(house, job.id) is JobStatus.RUNNING


async def test_a_job_that_is_begun_while_the_broker_is_away_is_planned_by_upkeep(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await _starting(house, seconds=-1)

    async def away(*_: object) -> None:
        raise Unavailable("no broker")

    monkeypatch.setattr(house.broker, "publish", away)
    await house.flow.begin(job.id)
    monkeypatch.undo()
    assert await _status(house, job.id) is JobStatus.RUNNING
    await house.broker.purge(SPLIT_QUEUE)
    assert await _plans(house, lambda: _look(house, patience=timedelta(0))) >= 1


async def test_a_paused_job_is_not_begun_and_starts_at_resume_once_its_start_has_passed(house: House) -> None:
    job = await _starting(house, seconds=-1)
    assert await house.flow.pause(job.id)
    assert await _plans(house, lambda: house.flow.begin(job.id)) == 0
    assert await _status(house, job.id) is JobStatus.PAUSED
    await house.store._database["jobs"].delete_many({"_id": {"$ne": job.id}})
    assert await _look(house, patience=timedelta(0)) == Found(jobs=1)
    assert await _plans(house, lambda: house.flow.resume(job.id)) == 1
    assert await _status(house, job.id) is JobStatus.RUNNING


async def test_a_job_that_is_resumed_before_its_start_waits_again(house: House) -> None:
    job = await _starting(house, seconds=3600)
    (before,) = await _occurrences(house, job.id)
    assert await house.flow.pause(job.id)
    for there in (True, False):
        if not there:
            await house.store.occurrences.remove_of(before.owner)
        assert await _plans(house, lambda: house.flow.resume(job.id)) == 0
        assert await _status(house, job.id) is JobStatus.SCHEDULED
        (again,) = await _occurrences(house, job.id)
        assert (again.id, again.due) == (before.id, before.due)
        assert await house.flow.pause(job.id)


async def test_an_occurrence_that_comes_in_vain_while_the_job_is_resumed_loses_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resume finds the start ahead; then the start passes and is fired in vain, and only then the job waits again."""
    job = await _starting(house, seconds=3600)
    assert await house.flow.pause(job.id)
    move = house.store.jobs.move

    async def at_its_start() -> datetime:
        return job.starts

    async def late(job_id: str, **asked: object) -> Job | None:
        if asked["to"] is JobStatus.SCHEDULED:
            monkeypatch.setattr(house.store, "now", at_its_start)
            await house.flow.begin(job_id)
            assert await _status(house, job_id) is JobStatus.PAUSED
        return await move(job_id, **asked)  # type: ignore[arg-type]

    monkeypatch.setattr(house.store.jobs, "move", late)
    assert await _plans(house, lambda: house.flow.resume(job.id)) == 1
    assert await _status(house, job.id) is JobStatus.RUNNING


@pytest.mark.parametrize("seconds", [-1, 3600])
@pytest.mark.parametrize("begins_first", [True, False])
async def test_resume_against_begin(house: House, seconds: float, begins_first: bool) -> None:
    job = await _starting(house, seconds=seconds)
    assert await house.flow.pause(job.id)
    steps: list[Callable[[], Awaitable[object]]] = [lambda: house.flow.begin(job.id), lambda: house.flow.resume(job.id)]

    async def in_order() -> None:
        for step in steps if begins_first else reversed(steps):
            await step()

    planned = await _plans(house, in_order)
    # A job that waits again is begun by what comes after its resume, and by nothing before.
    begun = seconds < 0 or not begins_first
    assert planned == (1 if begun else 0)
    assert await _status(house, job.id) is (JobStatus.RUNNING if begun else JobStatus.SCHEDULED)


@pytest.mark.parametrize("begins_first", [True, False])
async def test_stop_against_begin(house: House, begins_first: bool) -> None:
    job = await _starting(house, seconds=-1)
    steps: list[Callable[[], Awaitable[object]]] = [lambda: house.flow.begin(job.id), lambda: house.flow.stop(job.id)]

    async def in_order() -> None:
        for step in steps if begins_first else reversed(steps):
            await step()

    assert await _plans(house, in_order) == (1 if begins_first else 0)
    assert await _status(house, job.id) is JobStatus.STOPPED
    assert await _occurrences(house, job.id) == []


async def test_moves_that_truly_race_leave_every_job_in_one_of_its_lawful_ends(house: House) -> None:
    async def one(stops: bool) -> tuple[JobStatus, int]:
        job = await _starting(house, seconds=-1)
        assert await house.flow.pause(job.id)
        last = house.flow.stop if stops else house.flow.resume
        await asyncio.gather(house.flow.begin(job.id), house.flow.resume(job.id), last(job.id))
        return await _status(house, job.id), len(await _occurrences(house, job.id))

    outcomes = await asyncio.gather(*(one(stops) for stops in [True, False] * 15))
    assert set(outcomes[::2]) == {(JobStatus.STOPPED, 0)}
    assert set(outcomes[1::2]) == {(JobStatus.RUNNING, 1)}


async def test_upkeep_begins_what_the_clock_has_missed_and_leaves_the_rest(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await house.store.now()

    async def stand_still() -> datetime:
        return now

    monkeypatch.setattr(house.store, "now", stand_still)
    missed, due, ahead = [await _starting(house, seconds=seconds) for seconds in (-4, -0.5, 3600)]
    found = await _look(house)
    assert found.starts >= 1
    assert await _status(house, missed.id) is JobStatus.RUNNING
    assert [await _status(house, job.id) for job in (due, ahead)] == [JobStatus.SCHEDULED] * 2


async def test_upkeep_does_not_look_at_jobs_that_wait(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.store._database["jobs"].delete_many({})
    job = await _starting(house, seconds=3600)
    for number in range(50):
        await house.store.jobs.add(replace(job, id=f"waiting-{number}"))
    looked: list[str] = []
    view = house.store.jobs.view

    async def counted(job_id: str) -> Job | None:
        looked.append(job_id)
        return await view(job_id)

    monkeypatch.setattr(house.store.jobs, "view", counted)
    assert await _look(house) == Found()
    assert looked == []


async def test_a_job_taken_back_takes_its_occurrence_with_it(house: House) -> None:
    job = await _starting(house, seconds=3600)
    assert await house.flow.withdraw(job.key)
    assert await house.store.occurrences.find_upcoming(start_of(job.key), 5) == []
    assert not await house.flow.withdraw(job.key)


async def test_a_job_without_its_occurrence_is_accepted_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("no store")

    monkeypatch.setattr(house.store.occurrences, "add", away)
    job = await _starting(house, seconds=-3, idempotency=Idempotency(f"me/{uuid.uuid4()}", "d"))
    monkeypatch.undo()
    await _look(house)
    assert await _status(house, job.id) is JobStatus.RUNNING
