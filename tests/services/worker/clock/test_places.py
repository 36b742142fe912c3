"""Places for calls: fair between namespaces and hosts, and who waits comes in turn."""

import asyncio
from contextlib import suppress
from typing import cast

import pytest

from services.worker.clock.call import WorkerCallbacks
from services.worker.clock.places import FairCalls, NoRoom, Places
from shared.clock.rules.callbacks import CallTarget
from shared.core.errors import Unavailable
from shared.core.tasks import Task


class Calls:
    """Calls that last until they are ended."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._ends: dict[asyncio.Task[None], asyncio.Event] = {}
        self.under_way: list[tuple[str, str]] = []

    async def begin(self, namespace: str, host: str = "h", times: int = 1) -> list[asyncio.Task[None]]:
        begun = []
        for _ in range(times):
            end = asyncio.Event()
            task = asyncio.create_task(self._call(namespace, host, end))
            self._ends[task] = end
            begun.append(task)
        await settle()
        return begun

    async def end(self, task: "asyncio.Task[None]") -> None:
        self._ends[task].set()
        await settle()

    async def _call(self, namespace: str, host: str, end: asyncio.Event) -> None:
        async with self._places.place(namespace, host):
            self.under_way.append((namespace, host))
            try:
                await end.wait()
            finally:
                self.under_way.remove((namespace, host))


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_namespace_leaves_places_for_the_others() -> None:
    calls = Calls(Places(at_once=8, per_host=8, waiting=100))
    await calls.begin("worst", times=20)
    assert calls.under_way == [("worst", "h")] * 6
    [other] = await calls.begin("other")
    assert calls.under_way.count(("other", "h")) == 1
    await calls.end(other)
    assert len(calls.under_way) == 6


async def test_many_hosts_do_not_get_more() -> None:
    calls = Calls(Places(at_once=8, per_host=8, waiting=100))
    for host in "abcdefghij":
        await calls.begin("worst", host)
    assert len(calls.under_way) == 6
    await calls.begin("other", "a")
    assert ("other", "a") in calls.under_way


async def test_a_host_gets_a_share_and_nobody_gets_all_of_it() -> None:
    calls = Calls(Places(at_once=80, per_host=8, waiting=100))
    await calls.begin("worst", "slow", times=20)
    assert calls.under_way == [("worst", "slow")] * 6
    await calls.begin("worst", "quick")
    await calls.begin("other", "slow")
    assert calls.under_way[6:] == [("worst", "quick"), ("other", "slow")]


async def test_those_who_wait_come_in_turn() -> None:
    calls = Calls(Places(at_once=2, per_host=2, waiting=100))
    first = await calls.begin("a", times=4) + await calls.begin("b", times=2)
    assert calls.under_way == [("a", "h")] * 2
    admitted = []
    for task in (first[0], first[1], first[2], first[4]):
        await calls.end(task)
        admitted.append(calls.under_way[-1][0])
    assert admitted == ["a", "b", "a", "b"]
    for task in first:
        await calls.end(task)
    await asyncio.gather(*first)
    assert calls.under_way == []


async def test_nobody_is_forgotten_whatever_is_cancelled() -> None:
    places = Places(at_once=4, per_host=4, waiting=100)
    calls = Calls(places)
    begun = await calls.begin("a", times=10)
    for task in (begun[0], begun[4], begun[5]):
        task.cancel()
    await settle()
    assert len(calls.under_way) == 3
    for task in begun:
        await calls.end(task)
    await asyncio.gather(*begun, return_exceptions=True)
    await calls.begin("a", times=3)
    assert len(calls.under_way) == 3


async def test_what_finds_no_room_is_let_go_at_once() -> None:
    places = Places(at_once=4, per_host=4, waiting=10)
    calls = Calls(places)
    begun = await calls.begin("worst", times=20)
    refused = [task for task in begun if task.done() and isinstance(task.exception(), NoRoom)]
    assert len(refused) == 20 - 3 - 5
    others = await calls.begin("other", times=3)
    assert not any(task.done() for task in others)


class Calling:
    def __init__(self) -> None:
        self.made: list[Task] = []
        self.go = asyncio.Event()

    async def run(self, task: Task) -> None:
        self.made.append(task)
        await self.go.wait()

    async def put_off(self, task: Task) -> None: ...

    async def give_up(self, task: Task, reason: str) -> None: ...


async def test_a_process_that_stops_gives_back_what_waits() -> None:
    caller = Calling()
    stage = FairCalls(cast(WorkerCallbacks, caller), Places(at_once=4, per_host=4, waiting=10))
    tasks = [asyncio.create_task(stage.run(CallTarget(str(n), "t", namespace="a", host="h"))) for n in range(6)]
    await settle()
    assert len(caller.made) == 3
    stage.stop()
    await settle()
    for waiting in tasks[3:]:
        with pytest.raises(Unavailable):
            await waiting
    with pytest.raises(Unavailable):
        await stage.run(CallTarget("later", "t", namespace="a", host="h"))
    caller.go.set()
    with suppress(Unavailable):
        await asyncio.gather(*tasks[:3])
    assert len(caller.made) == 3
