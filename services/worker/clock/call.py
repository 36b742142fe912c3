"""Callbacks that a worker does: it makes an HTTP call, or starts a job (`start`).

    take ──> schedule ──> judge ──> call ──> settle

The scheduler has extended the occurrence's lease past the call and passed on its token. Taking renews the lease; a
worker that comes too late, or finds the schedule gone, replaced or paused, does nothing. A call whose answer was lost
is repeated with the same `webhook-id`. Before a suspect is called, the begin of its call is stored; the scheduler makes
poisonous occurrences dead letters.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from services.worker.clock.start import JobStarts
from services.worker.consumer import Stage
from shared.accounts.removal import Signing
from shared.clock.rules.callbacks import ByWorker, CallTarget, HttpCallback, Undeliverable
from shared.clock.rules.occurrences import Occurrence, read_owner
from shared.clock.rules.schedules import Schedule, carillon_headers
from shared.clock.rules.verdicts import Verdict, verdict_of
from shared.clock.settlement import Attempt, Settlement
from shared.core.errors import CarillonError, Unavailable
from shared.core.rates import Shares
from shared.drivers.http import Blocked, Call, Outgoing, Unreachable
from shared.runtime.faults import fault
from shared.runtime.metrics import CALLS_LET_GO
from shared.runtime.tracing import current_span, with_header
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_SETTLING = timedelta(seconds=10)


class WorkerCallbacks:
    """Does and settles callbacks for the stage `FairCalls`."""

    def __init__(
        self,
        store: Store,
        time: DatabaseTime,
        outgoing: Outgoing,
        starts: JobStarts,
        settlement: Settlement,
        *,
        call_timeout: timedelta,
        signing: Signing,
    ) -> None:
        self._store = store
        self._time = time
        self._outgoing = outgoing
        self._starts = starts
        self._settlement = settlement
        self._lease = call_timeout + _SETTLING
        self._signing = signing
        self._one_suspect = asyncio.Lock()

    async def run(self, task: CallTarget) -> None:
        leased_until = await self._time.now() + self._lease
        occurrence = await self._store.occurrences.take(task.occurrence_id, task.token, leased_until=leased_until)
        if occurrence is None:
            return
        schedule = await self._schedule(occurrence)
        if schedule is None or not isinstance(schedule.definition.callback, ByWorker):
            return
        if not occurrence.is_suspect:
            await self._call_and_settle(occurrence, schedule, schedule.definition.callback)
        else:
            await self._call_suspect(occurrence, schedule, schedule.definition.callback)

    async def _call_suspect(self, occurrence: Occurrence, schedule: Schedule, callback: ByWorker) -> None:
        """Call one suspect at a time, so that a call which ends this process does not count against another
        occurrence."""
        async with self._one_suspect:
            if not await self._store.occurrences.begin(occurrence):
                return
            try:
                await self._call_and_settle(occurrence, schedule, callback)
            except Unavailable:
                await self._store.occurrences.acquit([occurrence])
                raise

    async def _call_and_settle(self, occurrence: Occurrence, schedule: Schedule, callback: ByWorker) -> None:
        await fault("call.before_call")
        if isinstance(callback, HttpCallback):
            attempt = await self._call(occurrence, schedule, callback)
        else:
            attempt = await self._starts.attempt(Attempt(occurrence, schedule, await self._time.now()), callback)
        await fault("call.after_call")
        await self._settlement.settle([attempt])

    async def _schedule(self, occurrence: Occurrence) -> Schedule | None:
        """The occurrence's schedule, if it may fire; otherwise the clock decides about it when the lease ends."""
        schedule_id = read_owner(occurrence.owner).id
        schedule = (await self._store.schedules.many([schedule_id])).get(schedule_id)
        # The scheduler has decided whether it is late, when it handed it over.
        match verdict_of(schedule, occurrence, self._time.reckon()):
            case Verdict.FIRE:
                return schedule
            case Verdict.VOID:
                await self._store.occurrences.complete([occurrence])
            case Verdict.HOLD:
                await self._settlement.hold_back([occurrence], [schedule_id])
            case Verdict.MOVE:
                await self._settlement.follow([(occurrence, schedule)] if schedule is not None else [])
            case Verdict.WAIT | Verdict.SKIP:
                pass
        return None

    async def _call(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> Attempt:
        at = await self._time.now()
        # Measured from here, so that the time for the secrets counts before a retry that the receiver asked for.
        began = time.monotonic()
        # A callback's own secret is known only to its caller and the receiver.
        secrets = (callback.secret,) if callback.secret else await self._signing.get_secrets(schedule.namespace, at)
        call = Call(
            url=callback.url,
            method=callback.method,
            headers={**with_header(callback.headers, current_span()), **carillon_headers(occurrence, schedule)},
            body=callback.payload.encode(),
            message_id=occurrence.message_id,
            timestamp=int(at.timestamp()),
            secrets=secrets,
            owner=schedule.namespace,
        )
        refusal: Undeliverable | None
        try:
            answer = await self._outgoing.call(call)
        except (Unreachable, Blocked) as error:
            refusal, retry_after = Undeliverable(str(error)), None
        else:
            refused = Undeliverable(f"HTTP {answer.status}: {answer.excerpt}".rstrip(": "))
            refusal, retry_after = None if answer.accepted else refused, answer.retry_after_seconds
        lasted = timedelta(seconds=time.monotonic() - began)
        return Attempt(occurrence, schedule, at, refusal, lasted, retry_after)


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
