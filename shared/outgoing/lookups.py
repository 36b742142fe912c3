"""Looks names up in its own threads: a dead name server holds a thread for up to half a minute, even if no caller
waits any more. So one owner of names gets at most a quarter of the threads, and several owners get equal shares."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar

from cachetools import TTLCache

from shared.domain.errors import Unavailable
from shared.runtime.fair_budget import FairBudget

THREADS = 32
_A_QUARTER = 1 / 3  # the greed with which one owner alone gets a quarter
_REMEMBERED_NAMES = 1_000
_REMEMBERED_SECONDS = 10.0

Lookup = Callable[[str], Sequence[str]]
"""The system's addresses of a name. It may block; raises `OSError`."""

name_owner: ContextVar[str] = ContextVar("name_owner", default="")
"""The owner that name lookups are charged to in this context."""


class NameLookups:
    """Looks each name up once for all callers of one owner, and remembers its addresses for ten seconds. Without an
    owner, each name is its own owner."""

    def __init__(self, lookup: Lookup, *, patience_seconds: float) -> None:
        self._lookup = lookup
        self._patience = patience_seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="names")
        self._free = FairBudget(THREADS, greed=_A_QUARTER)
        self._known: TTLCache[str, deque[str]] = TTLCache(_REMEMBERED_NAMES, _REMEMBERED_SECONDS)
        self._asked: dict[tuple[str, str], asyncio.Task[Sequence[str]]] = {}

    async def find(self, host: str) -> Sequence[str]:
        """The addresses of a name, rotated each time. Raises `OSError` for an unknown name, `Unavailable` if no
        thread was free in time."""
        if (known := self._known.get(host)) is not None:
            known.rotate(-1)
            return tuple(known)
        key = (name_owner.get() or host, host)
        if (asked := self._asked.get(key)) is None:
            asked = self._asked[key] = asyncio.create_task(self._ask(*key))
            asked.add_done_callback(lambda task: self._note_end(key, task))
        return await asyncio.shield(asked)

    def forget(self, host: str) -> None:
        self._known.pop(host, None)

    def close(self) -> None:
        for asked in list(self._asked.values()):
            asked.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, owner: str, host: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._patience):
                await self._free.take(owner)
        except TimeoutError:
            raise Unavailable(f"{host} was not looked up: too many other names give no answer") from None
        loop = asyncio.get_running_loop()

        def give_back(_: "Future[Sequence[str]]") -> None:
            with suppress(RuntimeError):  # the loop may have ended before the name server's time-out
                loop.call_soon_threadsafe(self._free.give_back, owner)

        running = self._threads.submit(self._lookup, host)
        running.add_done_callback(give_back)
        found = await asyncio.wrap_future(running)
        self._known[host] = deque(found)
        return found

    def _note_end(self, key: tuple[str, str], task: "asyncio.Task[Sequence[str]]") -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # the callers may be gone
