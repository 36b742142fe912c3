"""One API process that is attacked, and what the attacks cost it.

`Target.attack` is the judge: whatever happens inside it is laid to one caller. Afterwards the process must be alive and
must have answered its probes. Outside the gate, the attack must not have cost more than the bounds (`tolls.py`) allow.
A process that did not pass is replaced before the next attack, which so fails only for its own reason.
"""

import asyncio
import io
import json
import re
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from tests.e2e.house import Process
from tests.security.tolls import NONE, Bounds, Toll

_PATIENCE_SECONDS = 50.0
_PATIENCE_OUTSIDE_THE_GATE_SECONDS = 150.0
_PROBE_SECONDS = 0.05
_PROBE_PATIENCE_SECONDS = 40.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __str__(self) -> str:
        return f"{self.status} {self.body[:200]!r}"


class Probe:
    """Asks `/livez` again and again, from a thread, as an orchestrator does from outside."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/livez"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest = 0.0
        self.refused = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            if not self._asked():
                self.refused += 1
            self.longest = max(self.longest, time.monotonic() - began)
            self._over.wait(_PROBE_SECONDS)

    def _asked(self) -> bool:
        try:
            with urllib.request.urlopen(self._url, timeout=_PROBE_PATIENCE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@dataclass
class Running:
    """A started process and how to reach it."""

    process: Process
    port: int
    health_port: int
    watched: Path
    session: aiohttp.ClientSession
    spent: bool = False

    @property
    def alive(self) -> bool:
        return self.process._child.returncode is None

    def stretches(self, since: float) -> list[tuple[float, float]]:
        """How long the loop's thread was without a turn: processor time and time. The only place that knows how this
        is measured."""
        lines = [tuple(map(float, line.split())) for line in self.watched.read_text().splitlines()]
        return [(processor, passed) for began, processor, passed in lines if began + passed >= since]

    def forget_peak(self) -> None:
        with suppress(OSError):  # where the kernel cannot, the peak is that of the process's whole life
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@dataclass
class Target:
    """The API process of a session."""

    environment: dict[str, str]
    folder: Path
    bounds: Bounds = NONE
    tolls: list[Toll] = field(default_factory=list)
    _running: Running | None = None
    _number: int = 0

    @property
    def running(self) -> Running:
        assert self._running is not None
        return self._running

    @property
    def port(self) -> int:
        return self.running.port

    @property
    def judges(self) -> bool:
        """Whether costs are judged, which the gate does not."""
        return self.bounds != NONE

    async def whole(self) -> None:
        """Have a process that no earlier attack has hurt."""
        if self._running is not None and (self._running.spent or not self._running.alive):
            await self.end()
        if self._running is None:
            self._running = await self._start()

    async def end(self) -> None:
        if self._running is not None:
            await self._running.session.close()
            await self._running.process.end()
            self._running = None

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = _PATIENCE_SECONDS,
    ) -> Answer:
        """One request; `path` is sent as it is. `body` is bytes as they are, or a value to be sent as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with (
            asyncio.timeout(seconds),
            self.running.session.request(
                method, url, data=io.BytesIO(content) if content else None, headers=headers, allow_redirects=False
            ) as reply,
        ):
            return Answer(reply.status, reply.headers, await reply.read())

    @asynccontextmanager
    async def attack(self, name: str, *, seconds: float = 0.0) -> AsyncIterator[None]:
        """Judge the process by what happens inside.

        Raises:
            AssertionError: it did not end in time, or the process died, fell silent or took too much.
        """
        await self.whole()
        seconds = seconds or (_PATIENCE_OUTSIDE_THE_GATE_SECONDS if self.judges else _PATIENCE_SECONDS)
        running = self.running
        running.forget_peak()
        began, probe = time.monotonic(), Probe(running.health_port)
        probe.start()
        try:
            async with asyncio.timeout(seconds):
                yield
            await self._settle()
        except TimeoutError:
            running.spent = True
            raise AssertionError(f"{name}: no answer within {seconds:g} s") from None
        except BaseException:
            running.spent = True
            raise
        finally:
            await asyncio.to_thread(probe.stop)
        self._judge(name, began, probe)

    async def _settle(self) -> None:
        """Let the loop turn, so that what it did last is noted."""
        for _ in range(2):
            await self.call("GET", "/docs")

    def _judge(self, name: str, began: float, probe: Probe) -> None:
        running = self.running
        assert running.alive, f"{name}: the process has ended"
        stretches = running.stretches(began)
        toll = Toll(
            name,
            max((processor for processor, _ in stretches), default=0.0),
            max((passed for _, passed in stretches), default=0.0),
            probe.longest,
            running.peak(),
        )
        self.tolls.append(toll)
        faults = toll.faults(self.bounds)
        if probe.refused:
            faults.append(f"/livez did not answer {probe.refused} times")
        running.spent = bool(faults)
        assert not faults, f"{name}: {'; '.join(faults)} ({toll})"

    async def _start(self) -> Running:
        self._number += 1
        log = self.folder / f"api-{self._number}.log"
        watched = self.folder / f"loop-{self._number}"
        watched.touch()
        command = (sys.executable, "-m", "tests.security.watched", str(watched), "api")
        with log.open("wb") as output:
            child = await asyncio.create_subprocess_exec(*command, env=self.environment, stdout=output, stderr=output)
        process = Process(child, log, self.folder / "faults")
        await process.ready()
        ports = {server: int(port) for server, port in _listening(process.log)}
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, keepalive_timeout=2), timeout=aiohttp.ClientTimeout(total=None)
        )
        return Running(process, ports["api"], ports["health"], watched, session)


def _listening(log: str) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in log.splitlines() if '"listening"' in line]
    return [(line["server"], line["port"]) for line in lines]
