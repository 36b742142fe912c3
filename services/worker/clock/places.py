"""The places of a worker for calls, fair between namespaces and hosts, and the stage that gives each call one."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from services.worker.clock.call import WorkerCallbacks
from services.worker.consumer import Stage
from shared.clock.rules.callbacks import CallTarget
from shared.core.errors import CarillonError, Unavailable
from shared.core.rates import Shares
from shared.runtime.metrics import CALLS_LET_GO

log = structlog.get_logger(__name__)

# A namespace gets at most three quarters of the places and half of the room; others have the rest at once.
_GREED_FOR_PLACES = 3.0
_GREED_FOR_ROOM = 1.0


class NoRoom(CarillonError):
    """Too many calls of one namespace wait."""


class Places:
    """Places for `at_once` calls, at most `per_host` of them to one host; `waiting` more may wait."""

    def __init__(self, *, at_once: int, per_host: int, waiting: int) -> None:
        self.capacity = at_once + waiting
        self._per_host = per_host
        self._places: Shares[str] = Shares(at_once, greed=_GREED_FOR_PLACES)
        self._hosts: dict[str, Shares[str]] = {}
        self._room: Shares[str] = Shares(waiting, greed=_GREED_FOR_ROOM)
        self._waiting: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}
        self._closed = False

    @asynccontextmanager
    async def place(self, namespace: str, host: str) -> AsyncIterator[None]:
        """Hold a place for one call. Raises `NoRoom` if too many calls of this namespace wait, `Unavailable` if the
        process stops before a place is free."""
        if host not in self._waiting.get(namespace, ()) and self._is_free(namespace, host):
            self._take(namespace, host)
        else:
            await self._wait(namespace, host)
        try:
            yield
        finally:
            self._give_back(namespace, host)
            self._admit_waiting()

    def close(self) -> None:
        self._closed = True
        futures = [future for hosts in self._waiting.values() for waiting in hosts.values() for future in waiting]
        for future in futures:
            if not future.done():
                future.set_exception(Unavailable("this process stops"))

    async def _wait(self, namespace: str, host: str) -> None:
        if self._closed:
            raise Unavailable("this process stops")
        if not self._room.admits(namespace):
            raise NoRoom(f"too many calls of {namespace} wait")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, {}).setdefault(host, deque()).append(future)
        self._room.take(namespace)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None:
                self._give_back(namespace, host)
            self._admit_waiting()
            raise
        finally:
            self._room.give_back(namespace)

    def _admit_waiting(self) -> None:
        """Give free places to waiting calls, one to each namespace in turn."""
        while any(self._admit_one_of(namespace) for namespace in list(self._waiting)):
            pass

    def _admit_one_of(self, namespace: str) -> bool:
        if not self._places.admits(namespace):
            return False
        hosts = self._waiting.pop(namespace)
        admitted = any(self._admit_first(namespace, host, hosts) for host in list(hosts))
        if hosts:
            self._waiting[namespace] = hosts  # behind the others
        return admitted

    def _admit_first(self, namespace: str, host: str, hosts: dict[str, deque[asyncio.Future[None]]]) -> bool:
        if not self._is_free(namespace, host):
            return False
        waiting = hosts.pop(host)
        waiting = deque(future for future in waiting if not future.done())  # others were cancelled
        if not waiting:
            return False
        self._take(namespace, host)
        waiting.popleft().set_result(None)
        if waiting:
            hosts[host] = waiting  # behind the others
        return True

    def _is_free(self, namespace: str, host: str) -> bool:
        of_host = self._hosts.get(host)
        return self._places.admits(namespace) and (of_host is None or of_host.admits(namespace))

    def _take(self, namespace: str, host: str) -> None:
        self._places.take(namespace)
        self._hosts.setdefault(host, Shares(self._per_host, greed=_GREED_FOR_PLACES)).take(namespace)

    def _give_back(self, namespace: str, host: str) -> None:
        self._places.give_back(namespace)
        self._hosts[host].give_back(namespace)
        if not len(self._hosts[host]):
            del self._hosts[host]


class FairCalls(Stage[CallTarget]):
    """The stage behind `sched.call`, with a place for each call."""

    task = CallTarget

    def __init__(self, callbacks: WorkerCallbacks, places: Places) -> None:
        self.in_flight = places.capacity
        self._callbacks = callbacks
        self._places = places

    async def run(self, task: CallTarget) -> None:
        try:
            async with self._places.place(task.namespace, task.host):
                await self._callbacks.run(task)
        except NoRoom:
            CALLS_LET_GO.inc()
            log.info("call waits for the end of its lease", occurrence_id=task.occurrence_id, namespace=task.namespace)

    async def put_off(self, task: CallTarget) -> None:
        """Drop the message: when the lease ends, the occurrence is handed out again."""

    async def give_up(self, task: CallTarget, reason: str) -> None:
        """Leave the occurrence to its lease: claims make it a suspect, and a suspect whose calls never end becomes a
        dead letter."""
        log.error("call cannot be made", task=repr(task), reason=reason)

    def stop(self) -> None:
        self._places.close()
