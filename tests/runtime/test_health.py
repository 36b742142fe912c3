"""The health pages over real sockets."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.runtime.health import Phase, ProcessHealth, server
from shared.runtime.serving import HttpServer
from shared.runtime.settings import HealthSettings


class Probe:
    """A check that does what it is told, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def health(seconds: Seconds) -> ProcessHealth:
    health = ProcessHealth(deadline_seconds=0.1, fresh_seconds=1.0, monotonic=seconds)
    health.phase = Phase.SERVING
    return health


@pytest.fixture
async def served(health: ProcessHealth) -> AsyncIterator[HttpServer]:
    pages = server(health, HealthSettings(port=0))
    await pages.start()
    yield pages
    await pages.stop()


async def get(served: HttpServer, path: str) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(served.host, served.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def get_json(served: HttpServer, path: str) -> tuple[int, Any]:
    status, body = await get(served, path)
    return status, json.loads(body)


async def test_a_process_without_checks_is_alive_and_ready(served: HttpServer) -> None:
    assert await get_json(served, "/livez") == (200, {"alive": True, "dead": {}})
    assert await get_json(served, "/readyz") == (200, {"ready": True, "phase": "serving", "failing": {}})


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING])
async def test_not_ready_while_starting_or_draining_but_alive(
    health: ProcessHealth, served: HttpServer, phase: Phase
) -> None:
    health.phase = phase
    assert await get_json(served, "/readyz") == (503, {"ready": False, "phase": phase.value, "failing": {}})
    assert (await get(served, "/livez"))[0] == 200


async def test_each_failing_check_is_named_without_its_password(health: ProcessHealth, served: HttpServer) -> None:
    good, bad = Probe(), Probe()
    bad.error = Unavailable("no answer from amqp://guest:s3cret@host/v")
    health.add("store", good)
    health.add("broker", bad)
    status, body = await get_json(served, "/readyz")
    assert status == 503
    assert body["failing"] == {"broker": "Unavailable: no answer from amqp://guest:***@host/v"}


async def test_a_server_that_only_some_work_needs_is_named_and_leaves_the_process_ready(
    health: ProcessHealth, served: HttpServer, seconds: Seconds
) -> None:
    store, broker = Probe(), Probe()
    broker.error = Unavailable("gone")
    health.add("store", store)
    health.add("broker", broker, needed=False)
    status, body = await get_json(served, "/readyz")
    assert (status, body["ready"], body["failing"]) == (200, True, {"broker": "Unavailable: gone"})
    store.error = Unavailable("gone")
    seconds.now += 1.0
    assert (await get(served, "/readyz"))[0] == 503


async def test_who_needs_a_server_in_a_process_of_several_services_decides(
    health: ProcessHealth, served: HttpServer
) -> None:
    broker = Probe()
    broker.error = Unavailable("gone")
    for needed in (False, True, False):
        health.add("broker", broker, needed=needed)
    assert (await get(served, "/readyz"))[0] == 503


async def test_a_reason_that_is_no_text_is_told_as_far_as_it_is(health: ProcessHealth, served: HttpServer) -> None:
    bad = Probe()
    bad.error = Unavailable("the server said \udcff")
    health.add("store", bad)
    status, body = await get_json(served, "/readyz")
    assert (status, body["failing"]) == (503, {"store": "Unavailable: the server said \udcff"})


async def test_a_check_that_hangs_costs_the_deadline_and_is_not_asked_twice(
    health: ProcessHealth, served: HttpServer, seconds: Seconds
) -> None:
    asked = 0
    release = asyncio.Event()

    async def deaf() -> None:
        nonlocal asked
        asked += 1
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    health.add("stream", deaf)
    for _ in range(2):
        status, body = await get_json(served, "/readyz")
        assert (status, body["failing"]) == (503, {"stream": "no answer within 0.1 s"})
        seconds.now += 1.0
    assert asked == 1
    release.set()
    assert (await get(served, "/readyz"))[0] == 200


async def test_one_look_serves_everybody_for_a_second(
    health: ProcessHealth, served: HttpServer, seconds: Seconds
) -> None:
    probe = Probe()
    health.add("store", probe)
    answers = await asyncio.gather(*(get(served, "/readyz") for _ in range(5)))
    assert [status for status, _ in answers] == [200] * 5
    assert probe.asked == 1
    probe.error = Unavailable("gone")
    assert (await get(served, "/readyz"))[0] == 200
    seconds.now += 1.0
    assert (await get(served, "/readyz"))[0] == 503
    assert probe.asked == 2


async def test_a_dead_component_ends_liveness(health: ProcessHealth, served: HttpServer) -> None:
    health.mark_dead("upkeep", "RuntimeError()")
    assert await get_json(served, "/livez") == (503, {"alive": False, "dead": {"upkeep": "RuntimeError()"}})


async def test_metrics_are_prometheus_text(served: HttpServer) -> None:
    status, body = await get(served, "/metrics")
    assert status == 200
    assert b"# HELP carillon_records_sent_total" in body


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_no_browser_guesses_at_what_a_page_is(served: HttpServer, path: str) -> None:
    def ask() -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse().getheader("x-content-type-options")
        connection.close()
        return answer

    assert await asyncio.to_thread(ask) == "nosniff"


@pytest.mark.parametrize("path", ["/", "/schema", "/docs"])
async def test_nothing_else_is_served(served: HttpServer, path: str) -> None:
    assert (await get(served, path))[0] == 404


async def test_a_taken_port_is_an_error_and_not_an_exit(served: HttpServer, health: ProcessHealth) -> None:
    with pytest.raises(OSError, match="in use"):
        await server(health, HealthSettings(port=served.port)).start()


async def test_an_application_that_does_not_start_is_an_error_and_not_an_exit() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(RuntimeError, match="did not start"):
        await HttpServer("api", broken, host="127.0.0.1", port=0).start()


async def test_stop_lets_a_request_in_hand_be_answered() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        arrived.set()
        await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    served = HttpServer("api", slow, host="127.0.0.1", port=0)
    await served.start()
    answer = asyncio.create_task(get(served, "/"))
    await arrived.wait()
    stopping = asyncio.create_task(served.stop())
    await asyncio.sleep(0)
    release.set()
    assert await answer == (200, b"done")
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await get(served, "/")
