"""What a deployment knows of its processes: those that run, that stand still, that were killed, and that have ended."""

import asyncio
import signal

import pytest

from shared.domain.console.processes import ProcessState
from tests.domain.console.test_processes import a_process
from tests.e2e.house import House
from tests.waiting import until

# As tests/chaos/test_processes.py does in each run.
pytestmark = [pytest.mark.native, pytest.mark.slow]

ALIVE = {ProcessState.ALIVE}
SILENT = {ProcessState.SILENT, ProcessState.GONE}  # on a busy machine a minute may pass meanwhile
ENDED: set[ProcessState] = set()


async def states(house: House) -> dict[int, ProcessState]:
    """The state of each process by its number on this machine."""
    store = house.capabilities.store
    processes, now = await store.processes.list(), await store.now()
    return {int(process.id.split("/")[-2]): process.state_at(now) for process in processes}


async def test_one_that_is_killed_or_frozen_falls_silent_and_one_that_ends_is_gone(house: House) -> None:
    killed, frozen, ended, other = [await house.start(role) for role in ("worker", "worker", "scheduler", "feedback")]
    pids = [process.pid for process in (killed, frozen, ended, other)]

    async def are(*wanted: set[ProcessState]) -> bool:
        seen = await states(house)
        return all(seen[pid] in states if pid in seen else not states for pid, states in zip(pids, wanted, strict=True))

    await until(lambda: are(ALIVE, ALIVE, ALIVE, ALIVE), "all to be heard of")
    killed.send(signal.SIGKILL)
    frozen.send(signal.SIGSTOP)
    ended.send(signal.SIGTERM)
    await until(lambda: are(SILENT, SILENT, ENDED, ALIVE), "two to fall silent")
    frozen.send(signal.SIGCONT)
    await until(lambda: are(SILENT, ALIVE, ENDED, ALIVE), "the frozen one to be heard of again")


async def test_each_of_two_hundred_at_once_is_told(house: House) -> None:
    store = house.capabilities.store
    await asyncio.gather(*(store.processes.tell(a_process(id=f"host/{number}/x")) for number in range(200)))
    assert await states(house) == dict.fromkeys(range(200), ProcessState.ALIVE)
