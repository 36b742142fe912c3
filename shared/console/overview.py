"""The whole deployment at a glance: gauges for `/metrics`, and the overview.

The overview reads all parts at once, each by itself, so that a missing part hides no other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from shared.clock.rules.schedules import owners_of
from shared.console.rules.overview import AttentionKind, Overview, UnknownPart, find_attention
from shared.console.rules.processes import MinuteCounts
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import Broker
from shared.messages.figures import find_blocked
from shared.runtime.cached import Cached
from shared.runtime.metrics import JOBS_OPEN, QUEUE_MESSAGES
from shared.runtime.private import without_secrets
from shared.store import Store
from shared.time import DatabaseTime

INTERVAL_SECONDS = 15.0
"""The usual interval of Prometheus."""


class Gauges:
    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def read_once(self) -> None:
        """Read each gauge once. A gauge that cannot be read is empty rather than old."""
        await asyncio.gather(self._show_jobs(), self._show_queues())

    async def _show_jobs(self) -> None:
        try:
            counts = await self._store.job_lists.count_open()
        finally:
            JOBS_OPEN.clear()
        for status, count in counts.items():
            JOBS_OPEN.labels(status).set(count)

    async def _show_queues(self) -> None:
        try:
            queues = await self._broker.list_queues()
        finally:
            QUEUE_MESSAGES.clear()
        for queue in queues:
            for state in ("ready", "unacked"):
                QUEUE_MESSAGES.labels(queue.name, state).set(getattr(queue, state))


SECONDS = 1.0
_COUNTED_SECONDS = 5.0
"""The age that counts from the database may have."""
_DEADLINE = 3.0
_GLANCE_SECONDS = 0.03
_MINUTES = timedelta(minutes=59)
_Read = Callable[[], Awaitable[Any]]


class OverviewReader:
    """The overview of the deployment, at most a second old, its counts five seconds, however many callers read it."""

    def __init__(self, store: Store, broker: Broker, time: DatabaseTime, roles: tuple[str, ...]) -> None:
        self._store = store
        self._time = time
        self._roles = roles
        self.queues = Cached(broker.list_queues, seconds=2 * SECONDS)
        self._minutes = Cached(self._read_minutes, seconds=_COUNTED_SECONDS)
        self._open_jobs = Cached(store.job_lists.count_open, seconds=_COUNTED_SECONDS)
        self._dead_letters = Cached(store.dead_letters.estimate_count, seconds=_COUNTED_SECONDS)
        self._troubles = Cached(self._count_troubles, seconds=_COUNTED_SECONDS)
        self._overview = Cached(self._look, seconds=SECONDS)
        self._glancing: asyncio.Future[Overview] | None = None
        self._unknown_since: dict[str, datetime] = {}

    async def read(self) -> Overview:
        """Read the present state. Raises `Unavailable` only if the database does not tell the time."""
        return await self._overview.get()

    async def glance(self) -> Mapping[str, int]:
        """The counts of things that need attention; empty if they are not known at once, because a page does not
        wait."""
        if self._glancing is None or self._glancing.done():
            self._glancing = asyncio.ensure_future(self.read())
        await asyncio.wait({self._glancing}, timeout=_GLANCE_SECONDS)
        if not self._glancing.done() or self._glancing.exception() is not None:
            return {}
        return {each.kind.value: each.count for each in find_attention(self._glancing.result())}

    async def _look(self) -> Overview:
        now, store = await self._time.now(), self._store
        parts: dict[str, _Read] = {
            "processes": store.processes.list,
            "queues": self.queues.get,
            "minutes": self._minutes.get,
            "open_jobs": self._open_jobs.get,
            "dead_letters": self._dead_letters.get,
            "troubles": self._troubles.get,
        }
        found = dict(zip(parts, await asyncio.gather(*(_ask(read) for read in parts.values())), strict=True))
        away = {what: each.reason for what, each in found.items() if isinstance(each, _Away)}
        self._unknown_since = {what: self._unknown_since.get(what, now) for what in away}
        unknown = tuple(UnknownPart(what, reason, self._unknown_since[what]) for what, reason in away.items())
        known = {what: each for what, each in found.items() if not isinstance(each, _Away)}
        return Overview(as_of=now, roles=self._roles, unknown=unknown, **known)

    async def _count_troubles(self) -> Mapping[AttentionKind, int]:
        store = self._store
        return {
            AttentionKind.ACCOUNTS: len(await find_blocked(store)),
            AttentionKind.CALLBACKS: await store.occurrences.count_retries(owners_of("")),
            AttentionKind.RECEIVERS: await store.bus_cursors.count_failing(),
            AttentionKind.SUBSCRIPTIONS: await store.bus_subscriptions.count_suspended(),
            AttentionKind.DEAD_EVENTS: await store.bus_dead_letters.estimate_count(),
        }

    async def _read_minutes(self) -> Sequence[MinuteCounts]:
        return await self._store.minutes.since(await self._time.now() - _MINUTES)


class _Away:
    def __init__(self, reason: str) -> None:
        self.reason = reason


async def _ask(read: _Read) -> Any:
    try:
        async with asyncio.timeout(_DEADLINE):
            return await read()
    except TimeoutError:
        return _Away(f"no answer within {_DEADLINE:g} s")
    except Unavailable as error:
        return _Away(without_secrets(str(error)))
