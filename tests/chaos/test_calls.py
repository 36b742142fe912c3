"""SIGKILL around an HTTP call, and a queue of calls that loses what waits in it."""

import signal
from datetime import timedelta

import pytest

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import CALL_QUEUE
from shared.clock.rules.outcomes import OutcomeResult
from shared.clock.rules.recurrence import Every
from tests.e2e import callees
from tests.e2e.callees import callee, calls, settled, waiting
from tests.e2e.house import House

pytestmark = [pytest.mark.chaos, pytest.mark.native]

# The tests wait for the leases of dead processes, and for the time that a call may take.
QUICK = {**callees.QUICK, "CARILLON_SCHEDULER_LEASE_SECONDS": "6"}
OPEN = {**callees.OPEN, "CARILLON_CALLBACKS_CALL_TIMEOUT_SECONDS": "3"}


@pytest.mark.parametrize(
    ("point", "times"), [pytest.param("call.before_call", 1, marks=pytest.mark.slow), ("call.after_call", 2)]
)
async def test_a_worker_dies_around_its_call(house: House, point: str, times: int) -> None:
    """Another one makes the call, again if its answer died with the first."""
    await house.start("scheduler", **QUICK)
    doomed = await house.start("worker", fault=f"{point}=kill", **OPEN)
    async with callee() as server:
        accepted = await calls(house, "once", server.url, 0.5)
        assert await doomed.gone() == -signal.SIGKILL
        assert len(server.all) == times - 1
        await house.start("worker", **OPEN)
        outcomes = await settled(house, accepted)
    assert list(server.times.values()) == [times]
    assert {each.attempt for each in server.all} == {1}
    assert [(each.result, each.attempt) for each in outcomes] == [(OutcomeResult.FIRED, 1)]


@pytest.mark.slow
async def test_workers_die_among_many_calls(house: House) -> None:
    await house.start("scheduler", **QUICK)
    doomed = await house.start("worker", fault="call.after_call@20=kill", **OPEN)
    async with callee() as server:
        all_ = [await calls(house, f"one-of-{number}", server.url, 1, 2, 3) for number in range(20)]
        assert await doomed.gone() == -signal.SIGKILL
        await house.start("worker", **OPEN)
        for accepted in all_:
            outcomes = await settled(house, accepted)
            assert [(each.result, each.attempt) for each in outcomes] == [(OutcomeResult.FIRED, 1)] * 3
    assert len(server.times) == 60
    assert set(server.times.values()) <= {1, 2}


async def test_a_scheduler_dies_between_a_hand_over_and_its_tasks(house: House) -> None:
    """Nobody is told of the calls: when their lease ends they are handed out again, each made once."""
    lease = {"CARILLON_SCHEDULER_CALL_LEASE_SECONDS": "3", **QUICK}
    doomed = await house.start("scheduler", fault="clock.after_hand_over=kill", **lease)
    async with callee() as server:
        single = await calls(house, "single", server.url, 0.5, 0.6)
        beat = await calls(house, "beat", server.url, recurrence=await every_second(house), max_occurrences=3)
        assert await doomed.gone() == -signal.SIGKILL
        await house.start("scheduler", **lease)
        await house.start("worker", **OPEN)
        for accepted, count in ((single, 2), (beat, 3)):
            outcomes = await settled(house, accepted)
            assert [(each.result, each.attempt) for each in outcomes] == [(OutcomeResult.FIRED, 1)] * count
    assert list(server.times.values()) == [1] * 5


async def test_a_call_that_waits_for_many_leases_is_made_in_the_end(house: House) -> None:
    """No worker is there for longer than claims that kill their processes are counted."""
    await house.start("scheduler", CARILLON_SCHEDULER_CALL_LEASE_SECONDS="1", **QUICK)
    async with callee() as server:
        accepted = await calls(house, "patient", server.url, 0.5, retry=Retry(attempts=1))
        await house.servers.store.occurrences._occurrences.update_many({}, {"$set": {"claims": 19}})
        await waiting(house, 4)
        await house.start("worker", **OPEN)
        [outcome] = await settled(house, accepted)
    assert (outcome.result, outcome.attempt) == (OutcomeResult.FIRED, 1)
    assert list(server.times.values()) == [1]


async def every_second(house: House) -> Every:
    return Every(1, await house.servers.time.now())


async def test_calls_that_the_queue_lost_are_handed_out_again(house: House) -> None:
    await house.start("scheduler", CARILLON_SCHEDULER_CALL_LEASE_SECONDS="3", **QUICK)
    async with callee() as server:
        all_ = [await calls(house, f"lost-{number}", server.url, 0.5) for number in range(5)]
        await waiting(house, 5)
        await house.servers.broker.purge(CALL_QUEUE)
        await house.start("worker", **OPEN)
        for accepted in all_:
            [outcome] = await settled(house, accepted)
            assert (outcome.result, outcome.attempt) == (OutcomeResult.FIRED, 1)
    # It was the end of the lease, less the clock's look-ahead, that brought them back.
    assert all(each.at - each.due >= timedelta(seconds=2.5) for each in server.all)
    assert list(server.times.values()) == [1] * 5
