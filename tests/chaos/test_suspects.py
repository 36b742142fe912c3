"""What processes may die of: claims alone bury nothing, and what kills whoever attempts it is buried in the end."""

import signal
from datetime import timedelta
from functools import partial

import pytest

from carillon.wire.clock import Retry
from shared.clock.rules.outcomes import DeadLetter
from tests.e2e import callees
from tests.e2e.callees import callee, calls, status
from tests.e2e.clocks import NAMESPACE, crowd, receiving
from tests.e2e.house import House
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

QUEUE = "users.queue"
QUICK = {"CARILLON_SCHEDULER_LEASE_SECONDS": "2", "CARILLON_SCHEDULER_TICK_SECONDS": "0.1"}
_CALL = {**callees.OPEN, "CARILLON_CALLBACKS_CALL_TIMEOUT_SECONDS": "3"}


async def test_schedulers_that_die_one_after_the_other_bury_nothing(house: House) -> None:
    """Most of them have died already; the last ones do after they stored that an attempt begins."""
    async with receiving(house, QUEUE) as receiver:
        await crowd(house, 3, 1, after=3, within=0.1)
        await claimed_in_vain(house, 18)
        for _ in range(4):
            doomed = await house.spawn("scheduler", fault="clock.before_publish=kill", **QUICK)
            assert await doomed.gone() == -signal.SIGKILL
        assert max(each["claims"] for each in await documents(house)) > 20
        await house.start("scheduler", **QUICK)
        await receiver.got(3)
        await until(lambda: nothing_pending(house), "nothing to be pending")
        assert await letters(house) == []


async def test_a_store_that_answers_too_late_buries_nothing(house: House) -> None:
    async with receiving(house, QUEUE) as receiver:
        await crowd(house, 1, 1, after=3, within=0.1)
        await claimed_in_vain(house, 19)
        slow = ",".join(f"clock.after_look@{n}=delay:1.3" for n in range(1, 5))
        await house.start("scheduler", fault=slow, **QUICK)
        await receiver.got(1)
        await until(lambda: nothing_pending(house), "nothing to be pending")
        assert await letters(house) == []


async def test_what_kills_each_scheduler_is_buried(house: House) -> None:
    async with receiving(house, QUEUE) as receiver:
        await crowd(house, 1, 1, after=3, within=0.1)
        await claimed_in_vain(house, 20)
        for begun in range(1, 6):
            doomed = await house.spawn("scheduler", fault="clock.before_publish=kill", **QUICK)
            assert await doomed.gone() == -signal.SIGKILL
            assert [each["begun"] for each in await documents(house)] == [begun]
        await house.start("scheduler", **QUICK)
        await until(lambda: nothing_pending(house), "nothing to be pending")
        [letter] = await letters(house)
        assert letter.error.startswith("not attempted any more: 5 attempts began")
        assert not receiver.all


async def test_a_call_that_kills_each_worker_is_buried(house: House) -> None:
    await house.start("scheduler", CARILLON_SCHEDULER_CALL_LEASE_SECONDS="1", **QUICK)
    async with callee() as server:
        await calls(house, "deadly", server.url, 2, retry=Retry(attempts=9))
        await claimed_in_vain(house, 19)
        for begun in range(1, 6):
            doomed = await house.spawn("worker", fault="call.before_call=kill", **_CALL)
            assert await doomed.gone() == -signal.SIGKILL
            assert [each["begun"] for each in await documents(house)] == [begun]
            await end_leases(house)
        await until(lambda: nothing_pending(house), "nothing to be pending")
        [letter] = await letters(house)
        assert letter.attempts == 1
        assert not server.all


async def test_a_call_that_fails_by_a_fault_of_ours_is_buried(house: House) -> None:
    await house.start("scheduler", CARILLON_SCHEDULER_CALL_LEASE_SECONDS="1", **QUICK)
    await house.start("worker", fault=",".join(f"call.before_call@{n}=raise" for n in range(1, 6)), **_CALL)
    async with callee() as server:
        await calls(house, "faulty", server.url, 2, retry=Retry(attempts=9))
        await claimed_in_vain(house, 30)
        for begun in range(1, 6):
            await until(partial(has_begun, house, begun), f"attempt {begun}")
            await end_leases(house)
        await until(lambda: nothing_pending(house), "nothing to be pending")
        assert len(await letters(house)) == 1
        assert not server.all


async def test_a_suspect_that_is_called_well_is_none_any_more(house: House) -> None:
    await house.start("scheduler", **QUICK)
    async with callee(lambda _: status(503)) as server:
        await calls(house, "innocent", server.url, 2, retry=Retry(attempts=9, first_delay_seconds=60))
        await claimed_in_vain(house, 30)
        await house.start("worker", **_CALL)
        await until(lambda: len(server.all) == 1, "the call")

        async def is_cleared() -> bool:
            return [(each["attempts"], each["claims"], "begun" in each) for each in await documents(house)] == [
                (1, 0, False)
            ]

        await until(is_cleared, "the suspect to be cleared")


async def claimed_in_vain(house: House, times: int) -> None:
    """As if all that is pending had been claimed so often by processes that died."""
    await house.servers.store.occurrences._occurrences.update_many({}, {"$set": {"claims": times}})


async def end_leases(house: House) -> None:
    """Nobody waits for the time that a worker has to settle its call."""
    past = await house.servers.time.now() - timedelta(seconds=1)
    await house.servers.store.occurrences._occurrences.update_many({}, {"$set": {"visible_at": past}})


async def documents(house: House) -> list[dict[str, int]]:
    return await house.servers.store.occurrences._occurrences.find({}).to_list()


async def has_begun(house: House, times: int) -> bool:
    return [each.get("begun") for each in await documents(house)] == [times]


async def nothing_pending(house: House) -> bool:
    return not await documents(house)


async def letters(house: House) -> list[DeadLetter]:
    return await house.servers.store.dead_letters.page(NAMESPACE, limit=10)
