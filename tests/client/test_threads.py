"""What only the synchronous client promises: it serves threads, survives a fork, and minds no event loop."""

import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from carillon import Carillon, RabbitCallback, Schedule
from tests.deploy.manifests import ROOT

FIRED = b'{"id":"i","due":"2030-01-01T00:00:00Z"}'
SCHEDULE = Schedule(key="k", every_seconds=60, callback=RabbitCallback(queue="q", payload={}))


class Server(ThreadingHTTPServer):
    """Answers each call with how it fired; those that `hold` names wait until `released`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections: list[tuple[str, int]] = []
        self.held = threading.Semaphore(0)
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.server.connections.append(self.client_address)
        if "/hold/" in self.path:
            self.server.held.release()
            self.server.released.wait(30)
        self.send_response(202)
        self.send_header("Content-Length", str(len(FIRED)))
        self.end_headers()
        self.wfile.write(FIRED)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


def test_many_threads_share_a_client_and_its_connections() -> None:
    with serving() as server, Carillon(server.url, connections=3) as client, ThreadPoolExecutor(10) as threads:
        fired = list(threads.map(lambda _: client.schedules.fire("k"), range(60)))
    assert [each.id for each in fired] == ["i"] * 60
    assert len(set(server.connections)) <= 3


def test_closing_waits_for_calls_of_other_threads() -> None:
    with serving() as server, ThreadPoolExecutor(2) as threads:
        client = Carillon(server.url)
        firing = threads.submit(client.schedules.fire, "hold")
        assert server.held.acquire(timeout=30)
        closing = threads.submit(client.close)
        deadline = time.monotonic() + 30
        while not client._transport._closed:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.05)
        assert not closing.done()
        with pytest.raises(RuntimeError, match="closed"):
            client.schedules.fire("k")
        server.released.set()
        closing.result(30)
        assert firing.result(30).id == "i"


async def test_it_works_where_an_event_loop_runs() -> None:
    with serving() as server, Carillon(server.url) as client:
        assert client.schedules.fire("k").id == "i"


def test_what_needs_an_event_loop_is_refused() -> None:
    async def schedules() -> AsyncIterator[Schedule]:
        yield SCHEDULE

    async def lines() -> AsyncIterator[bytes]:
        yield b"id\n"

    with Carillon("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(TypeError, match="needs AsyncCarillon"):
            next(client.schedules.bulk(schedules()))
        with pytest.raises(TypeError, match="needs AsyncCarillon"):
            client.uploads.put(lines())


FORKING = """
import os, sys
sys.path.append(sys.argv[2])
from carillon import Carillon

client = Carillon(sys.argv[1])
client.schedules.fire("k")
child = os.fork()
for _ in range(20):
    client.schedules.fire("k")
if not child:
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.schedules.fire("k")
"""


def test_a_forked_process_has_connections_of_its_own() -> None:
    with serving() as server:
        subprocess.run([sys.executable, "-I", "-c", FORKING, server.url, str(ROOT / "client")], check=True, timeout=60)
        assert len(server.connections) == 42
        assert len(set(server.connections)) == 2
