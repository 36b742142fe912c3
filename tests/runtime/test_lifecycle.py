"""Processes start in order, drain in reverse order, and say by their exit code how it went."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shared.runtime.health import Phase, ProcessHealth
from shared.runtime.lifecycle import (
    EXIT_CUT_OFF,
    EXIT_DRAINED,
    EXIT_FAILED,
    Background,
    Closing,
    Component,
    run,
)
from shared.runtime.settings import ShutdownSettings
from tests.waiting import until

QUICK = ShutdownSettings(readiness_seconds=0, grace_seconds=50)


class Recorded:
    """A component that writes down what happens to it."""

    def __init__(self, name: str, story: list[str]) -> None:
        self.name = name
        self.story = story
        self.serving = asyncio.Event()
        self.failure: asyncio.Future[None] = asyncio.Future()

    async def start(self) -> None:
        self.story.append(f"start {self.name}")
        self.serving.set()

    async def stop(self) -> None:
        self.story.append(f"stop {self.name}")

    async def wait(self) -> None:
        await self.failure


async def until_serving(health: ProcessHealth) -> None:
    await until(lambda: health.phase is Phase.SERVING, "all to be started")


async def test_starts_in_order_and_stops_in_reverse_order() -> None:
    story: list[str] = []
    health, ending = ProcessHealth(), asyncio.Event()
    parts = [Recorded("one", story), Recorded("two", story)]
    running = asyncio.create_task(run(parts, health=health, shutdown=QUICK, ending=ending, signals=False))
    await until_serving(health)
    ending.set()
    assert await running == EXIT_DRAINED
    assert story == ["start one", "start two", "stop two", "stop one"]
    assert health.phase is Phase.DRAINING


async def test_readiness_fails_for_a_while_before_anything_stops() -> None:
    health, ending = ProcessHealth(), asyncio.Event()
    stopped: list[tuple[Phase, float]] = []

    async def close() -> None:
        stopped.append((health.phase, time.monotonic()))

    shutdown = ShutdownSettings(readiness_seconds=0.05, grace_seconds=50)
    running = asyncio.create_task(
        run([Closing("pool", close)], health=health, shutdown=shutdown, ending=ending, signals=False)
    )
    await until_serving(health)
    began = time.monotonic()
    ending.set()
    assert await running == EXIT_DRAINED
    ((phase, instant),) = stopped
    assert phase is Phase.DRAINING
    assert instant - began >= 0.05


async def test_a_component_that_cannot_start_stops_what_was_started() -> None:
    story: list[str] = []

    class Broken(Recorded):
        async def start(self) -> None:
            raise OSError("port in use")

    parts = [Recorded("one", story), Broken("two", story), Recorded("three", story)]
    assert await run(parts, health=ProcessHealth(), shutdown=QUICK, signals=False) == EXIT_FAILED
    assert story == ["start one", "stop one"]


@pytest.mark.parametrize("how", ["raises", "returns", "is cancelled"])
async def test_a_component_that_ends_by_itself_ends_the_process(how: str) -> None:
    story: list[str] = []
    health = ProcessHealth()
    one, two = Recorded("one", story), Recorded("two", story)
    running = asyncio.create_task(run([one, two], health=health, shutdown=QUICK, signals=False))
    await until_serving(health)
    match how:
        case "raises":
            two.failure.set_exception(RuntimeError("broken"))
        case "returns":
            two.failure.set_result(None)
        case _:
            two.failure.cancel()
    assert await asyncio.wait_for(running, 50) == EXIT_FAILED
    assert story[-2:] == ["stop two", "stop one"]
    assert list(health.dead) == ["two"]


async def test_work_in_hand_is_finished_within_the_grace_period() -> None:
    health, ending = ProcessHealth(), asyncio.Event()
    done: list[str] = []

    async def work(stopping: asyncio.Event) -> None:
        await stopping.wait()
        await asyncio.sleep(0.05)
        done.append("batch")

    part = Background("sender", work)
    running = asyncio.create_task(run([part], health=health, shutdown=QUICK, ending=ending, signals=False))
    await until_serving(health)
    ending.set()
    assert await running == EXIT_DRAINED
    assert done == ["batch"]


async def test_work_that_outlives_the_grace_period_is_cancelled_and_the_rest_still_closes() -> None:
    health, ending = ProcessHealth(), asyncio.Event()
    story: list[str] = []

    async def endless(stopping: asyncio.Event) -> None:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            story.append("cancelled")
            raise

    async def close() -> None:
        story.append("closed")

    shutdown = ShutdownSettings(readiness_seconds=0, grace_seconds=0.05)
    parts: list[Component] = [Closing("pool", close), Background("endless", endless)]
    running = asyncio.create_task(run(parts, health=health, shutdown=shutdown, ending=ending, signals=False))
    await until_serving(health)
    ending.set()
    assert await asyncio.wait_for(running, 50) == EXIT_CUT_OFF
    assert story == ["cancelled", "closed"]


async def test_a_failing_stop_is_told_and_the_rest_still_closes() -> None:
    health, ending = ProcessHealth(), asyncio.Event()
    story: list[str] = []

    class Stubborn(Recorded):
        async def stop(self) -> None:
            raise RuntimeError("no")

    parts = [Recorded("one", story), Stubborn("two", story)]
    running = asyncio.create_task(run(parts, health=health, shutdown=QUICK, ending=ending, signals=False))
    await until_serving(health)
    ending.set()
    assert await running == EXIT_FAILED
    assert story[-1] == "stop one"


async def test_ending_during_a_start_cancels_it() -> None:
    story: list[str] = []
    health, ending = ProcessHealth(), asyncio.Event()

    class Waiting(Recorded):
        async def start(self) -> None:
            ending.set()
            await asyncio.Future()

    parts = [Recorded("one", story), Waiting("two", story), Recorded("three", story)]
    code = await asyncio.wait_for(run(parts, health=health, shutdown=QUICK, ending=ending, signals=False), 50)
    assert code == EXIT_DRAINED
    assert story == ["start one", "stop one"]


PROCESS = """
import asyncio, sys
from shared.runtime import logs
from shared.runtime.health import ProcessHealth, server
from shared.runtime.lifecycle import Background, run
from shared.runtime.settings import HealthSettings, LogSettings, ShutdownSettings

async def work(stopping):
    print("port", pages.port, flush=True)
    await stopping.wait()
    print("stopping", flush=True)
    if sys.argv[1] == "hangs":
        await asyncio.Future()
    await asyncio.to_thread(sys.stdin.readline)
    print("finished the work in hand", flush=True)

async def main():
    global pages
    health = ProcessHealth()
    pages = server(health, HealthSettings(port=0))
    shutdown = ShutdownSettings(readiness_seconds=float(sys.argv[2]), grace_seconds=60)
    return await run([pages, Background("work", work)], health=health, shutdown=shutdown)

logs.set_up(LogSettings(format="json"))
sys.exit(asyncio.run(main()))
"""


class Process:
    """A real process with health pages."""

    def __init__(self, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._guard = threading.Timer(45, self.popen.kill)
        self._guard.start()
        self.port = int(self.line().split()[1])

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def go_on(self) -> None:
        """Let the work in hand end."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def ready(self) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def until_ready_is(self, status: int) -> Any:
        deadline = time.monotonic() + 30
        while (answer := self.ready())[0] != status:
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)
        return answer[1]

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        _, stderr = self.popen.communicate(timeout=30)
        return self.popen.returncode, [json.loads(line) for line in stderr.splitlines()]

    def close(self) -> None:
        self._guard.cancel()
        self.popen.kill()
        self.popen.communicate(timeout=30)


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    started = Process(*request.param)
    yield started
    started.close()


@pytest.mark.parametrize("process", [("ends", "0.5")], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_fails_readiness_first_and_then_drains(process: Process, number: signal.Signals) -> None:
    process.until_ready_is(200)
    os.kill(process.popen.pid, number)
    assert process.until_ready_is(503) == {"ready": False, "phase": "draining", "failing": {}}
    assert process.line() == "stopping"
    process.go_on()
    assert process.line() == "finished the work in hand"
    code, lines = process.end()
    assert code == EXIT_DRAINED
    assert [line["event"] for line in lines] == ["listening", "ready", "stopping", "ended"]


@pytest.mark.parametrize("process", [("hangs", "0")], indirect=True)
def test_a_second_signal_ends_the_process_at_once(process: Process) -> None:
    process.until_ready_is(200)
    os.kill(process.popen.pid, signal.SIGTERM)
    assert process.line() == "stopping"
    os.kill(process.popen.pid, signal.SIGTERM)
    code, _ = process.end()
    assert code == 128 + signal.SIGTERM


def test_a_process_opens_as_many_files_as_the_machine_lets_it() -> None:
    program = (
        "import resource; from shared.runtime.lifecycle import FILES, raise_file_limit\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); raise_file_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE) == (min(FILES, hard if hard > 0 else FILES), hard))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "True\n"
