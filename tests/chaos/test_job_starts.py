"""SIGKILL at every line where it matters while schedules start jobs. Each occurrence gets one job, sent once."""

import signal
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from shared.clock.rules.instants import due_instants
from shared.clock.rules.occurrences import job_id_of, occurrence_id
from shared.clock.rules.outcomes import OutcomeResult
from shared.clock.rules.schedules import Schedule, schedule_id
from shared.core.instants import format_instant
from shared.jobs.rules.jobs import JobStatus
from tests.chaos.test_clock_killed import ADMIN, an_api, end_leases
from tests.e2e.house import House, Process
from tests.e2e.test_over_http import an_app
from tests.tiers import and_rarely
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.usefixtures("hasty")]

DEVICES = 3
# The tests wait for the leases of dead processes.
QUICK = {
    "CARILLON_SCHEDULER_TICK_SECONDS": "0.2",
    "CARILLON_SCHEDULER_LEASE_SECONDS": "6",
    "CARILLON_SCHEDULER_CALL_LEASE_SECONDS": "15",
}
WORKER = ("start.after_note", "call.before_call", "api.after_job_insert", "start.before_confirm", "call.after_call")
SCHEDULER = "clock.after_hand_over"


@pytest.mark.proof
@pytest.mark.parametrize("point", and_rarely(WORKER[0], rarely=[*WORKER[1:], SCHEDULER]))
async def test_a_process_dies_while_schedules_start_jobs(house: House, point: str) -> None:
    dying, other = ("scheduler", "worker") if point == SCHEDULER else ("worker", "scheduler")
    running = [await house.start(other, **QUICK)]
    doomed = await house.start(dying, fault=f"{point}@3=kill", **QUICK)
    all_ = await schedules(house, 8, 5, after=5, within=4)
    await dies(house, doomed)
    await end_leases(house)
    running.append(await house.start(dying, **QUICK))
    await each_once(house, all_, 5, running)


@pytest.mark.slow
async def test_many_processes_die_while_schedules_start_a_thousand_jobs(house: House) -> None:
    """The deaths are all at other points, and a scheduler and a worker survive."""
    running = [await house.start(service, **QUICK) for service in ("scheduler", "worker")]
    doomed = [await house.start("scheduler", fault=f"{SCHEDULER}@5=kill", **QUICK)]
    for number, point in enumerate(WORKER):
        doomed.append(await house.start("worker", fault=f"{point}@{10 + 3 * number}=kill", **QUICK))
    all_ = await schedules(house, 25, 40, after=20, within=30)
    for process in doomed:
        await dies(house, process, seconds=300)
    await each_once(house, all_, 40, running, seconds=600)


async def schedules(house: House, count: int, instants: int, *, after: float, within: float) -> Sequence[Schedule]:
    """Schedules whose instants are evenly spread over these seconds. The last schedule recurs each second."""
    await house.devices(DEVICES)
    customer = await an_api(house)
    data = {"app_id": await an_app(house, customer), "template": "welcome", "overlap": "allow"}
    callback = {"type": "job", "data": {**data, "payload": {"service": "apns"}}}
    start = await house.servers.time.now() + timedelta(seconds=after)
    step = timedelta(seconds=within) / (count * instants)
    bodies: list[dict[str, Any]] = [
        {
            "key": f"list-{number}",
            "schedules": [format_instant(start + step * (number + count * k)) for k in range(instants)],
            "callback": callback,
        }
        for number in range(count - 1)
    ]
    series = {"every": 1, "starts_at": format_instant(start), "max_occurrences": instants}
    bodies.append({"key": "series", **series, "callback": callback})
    status, answers = await customer.call("POST", "/schedules/bulk", bodies)
    assert (status, {answer["status"] for answer in answers}) == (200, {201}), answers
    ids = [schedule_id(f"user:{ADMIN}", body["key"]) for body in bodies]
    return list((await house.servers.store.schedules.many(ids, whole=True)).values())


async def dies(house: House, doomed: Process, *, seconds: float = SECONDS) -> None:
    """Wait until its fault point has killed it, and end the sessions that it had."""
    await until(lambda: "fires" in doomed.log, "a fault point to be reached", seconds)
    assert await doomed.gone() == -signal.SIGKILL
    await house.kill(doomed)


async def each_once(
    house: House, all_: Sequence[Schedule], instants: int, running: Sequence[Process], *, seconds: float = SECONDS
) -> None:
    """Each instant has one job, which is completed, and each device has one record of each job."""
    store, owners = house.servers.store, [schedule.owner for schedule in all_]

    async def is_done() -> bool:
        return not (await store.occurrences.with_any(owners) or await store.jobs._jobs.count_documents({"open": True}))

    try:
        await until(is_done, "all jobs to be done", seconds)
    except TimeoutError as error:
        raise AssertionError(f"{error}\n{house.logs()}") from None
    for process in running:
        process.send(signal.SIGTERM)
    for process in running:
        assert await process.gone() == 0, house.logs()

    expected = {job_id: schedule.id for schedule in all_ for job_id in job_ids(schedule, instants)}
    assert len(expected) == len(all_) * instants, "all of it lies ahead"
    found = {document["_id"]: document async for document in store.jobs._jobs.find()}
    assert {job_id: document["schedule"] for job_id, document in found.items()} == expected
    assert {document["status"] for document in found.values()} == {JobStatus.COMPLETED}
    for owner in owners:
        outcomes = await store.outcomes.latest(owner, 1_000)
        assert Counter(outcome.result for outcome in outcomes) == {OutcomeResult.FIRED: instants}
    records = await house.records(len(expected) * DEVICES)
    times = Counter((record["metadata"]["jobId"], record["DeviceToken"]) for record in records)
    assert set(times.values()) == {1}
    assert Counter(job_id for job_id, _ in times) == dict.fromkeys(expected, DEVICES)


def job_ids(schedule: Schedule, instants: int) -> list[str]:
    """The id of each job is that of its occurrence's messages."""
    dues = islice(due_instants(schedule.definition, schedule.key, schedule.accepted_at), instants)
    return [job_id_of(occurrence_id(schedule.owner, schedule.generation, due)) for due in dues]
