"""Reads the overview: all of its parts at once, each on its own, so that one that is away hides no other."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from shared.broker import Broker
from shared.domain.console.overview import Overview, UnknownPart
from shared.domain.errors import Unavailable
from shared.flow.time import DatabaseTime
from shared.runtime.masking import without_secrets
from shared.runtime.shared_reading import SharedReading
from shared.store import Store

SECONDS = 1.0
_DEADLINE = 3.0
_MINUTES = timedelta(minutes=59)

_Read = Callable[[], Awaitable[Any]]


class OverviewReader:
    """The overview of the deployment, at most a second old, however many look at it."""

    def __init__(self, store: Store, broker: Broker, time: DatabaseTime, roles: tuple[str, ...]) -> None:
        self._store = store
        self._time = time
        self._roles = roles
        self.queues = SharedReading(broker.list_queues, seconds=2 * SECONDS)
        self._overview = SharedReading(self._look, seconds=SECONDS)

    async def read(self) -> Overview:
        """What is known now. Raises `Unavailable` where not even the time is: the database is away."""
        return await self._overview.get()

    async def _look(self) -> Overview:
        now, store = await self._time.now(), self._store
        parts: dict[str, _Read] = {
            "processes": store.processes.list,
            "queues": self.queues.get,
            "minutes": lambda: store.minutes.since(now - _MINUTES),
            "open_jobs": store.job_lists.count_open,
            "dead_letters": store.dead_letters.estimate_count,
        }
        found = dict(zip(parts, await asyncio.gather(*(_ask(read) for read in parts.values())), strict=True))
        unknown = tuple(UnknownPart(what, each.reason) for what, each in found.items() if isinstance(each, _Away))
        known = {what: each for what, each in found.items() if not isinstance(each, _Away)}
        return Overview(as_of=now, roles=self._roles, unknown=unknown, **known)


class _Away:
    """In the place of what could not be read."""

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
