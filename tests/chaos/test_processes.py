"""What is known of processes that are killed, frozen or ended."""

import asyncio
import signal
from datetime import timedelta
from functools import partial

import pytest

from shared.console.rules.processes import ProcessState, RunningProcess
from shared.core.documents import VERSION
from tests.console.rules.test_processes import a_process
from tests.e2e.house import House, Process
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]


async def told_of(house: House, process: Process) -> RunningProcess | None:
    found = [each for each in await house.servers.store.processes.list() if f"/{process.pid}/" in each.id]
    return found[0] if found else None


async def state_of(house: House, process: Process, *, later: float = 0) -> ProcessState:
    """Its state when so many seconds more have passed."""
    told = await told_of(house, process)
    assert told is not None
    return told.state_at(await house.servers.store.now() + timedelta(seconds=later))


async def test_a_killed_process_falls_silent_a_frozen_one_comes_back_and_an_ended_one_is_forgotten(
    house: House,
) -> None:
    killed, frozen, ended = [await house.start(service) for service in ("scheduler", "worker", "feedback-answers")]
    for process in (killed, frozen, ended):
        await until(partial(told_of, house, process), "a sign of life")
    await house.kill(killed)
    frozen.send(signal.SIGSTOP)
    ended.send(signal.SIGTERM)
    assert await ended.gone() == 0
    assert await told_of(house, ended) is None
    for process in (killed, frozen):
        assert await state_of(house, process) is ProcessState.ALIVE
        assert await state_of(house, process, later=20) is ProcessState.SILENT
        assert await state_of(house, process, later=70) is ProcessState.GONE
    told = await told_of(house, frozen)
    frozen.send(signal.SIGCONT)

    async def is_heard_of_again() -> bool:
        again = await told_of(house, frozen)
        return told is not None and again is not None and again.seen_at > told.seen_at

    await until(is_heard_of_again, "the frozen process to be heard of")


async def test_a_worker_tells_which_batches_it_has_in_hand(house: House) -> None:
    await house.devices(3_000)
    await house.start("scheduler")
    worker = await house.start("worker", fault="send.after_take@1=delay:12")
    job_key = await house.post()

    async def shows_batch() -> bool:
        told = await told_of(house, worker)
        return told is not None and any(
            thing.what == "push.batch" and thing.id.startswith(f"{job_key}/") for thing in told.in_hand
        )

    await until(shows_batch, "the batch to be shown")
    await house.exactly_once(job_key, 3_000)

    async def shows_nothing() -> bool:
        told = await told_of(house, worker)
        return told is not None and told.in_hand_count == 0

    await until(shows_nothing, "nothing to be in hand")


async def test_what_is_sent_is_counted_by_the_minute_and_at_the_end_too(house: House) -> None:
    await house.devices(3_000)
    await house.start("scheduler")
    worker = await house.start("worker")
    await house.exactly_once(await house.post(), 3_000)
    worker.send(signal.SIGTERM)
    assert await worker.gone() == 0
    since = await house.servers.store.now() - timedelta(minutes=5)
    minutes = await house.servers.store.minutes.since(since)
    assert sum(minute.recipients.get("sent", 0) for minute in minutes) == 3_000


async def test_two_hundred_processes_are_told_apart(house: House) -> None:
    crowd = [a_process(id=f"host-{n:03}/{n}/x") for n in range(200)]
    for _ in range(3):
        await asyncio.gather(*(house.servers.store.processes.tell(process) for process in crowd))
    assert [each.id for each in await house.servers.store.processes.list()] == [each.id for each in crowd]


async def test_a_process_that_is_too_old_does_not_start(house: House) -> None:
    meta = house.servers.store._database["meta"]
    await meta.update_one({"_id": "schema"}, {"$set": {"oldest": VERSION + 1}})
    for service in ("init", "api", "worker", "scheduler", "feedback-answers", "feedback-bus"):
        process = await house.spawn(service)
        assert await process.gone() == 1
        assert "run a newer release" in process.log
        assert '"ready"' not in process.log
