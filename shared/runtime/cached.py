"""Callers share a result (`Cached` for a moment, `Coalescer` for one round trip), or a connection that is opened at
its first use (`Late`), because most processes never use it and its driver is large.
"""

import asyncio
import time
from asyncio import Lock
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar, cast

from cachetools import LRUCache

from shared.core.errors import Unavailable

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
LINGER_SECONDS = 0.001
"""The shortest time of the loop's timers. With it, a quarter to a half more calls share a publish."""
_SEVERAL = 4  # one or two callers that ask again and again never wait


class Coalescer(Generic[Asked, Answered]):
    """Turns concurrent calls into one call of `work` for at most `most` of them, one call after the other.

    `work` answers each in order; an error goes to every caller. If calls differ in `size`, their sum is at most `most`,
    unless one call alone is larger.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Asked]], Awaitable[Sequence[Answered]]],
        *,
        most: int = 500,
        size: Callable[[Asked], int] = lambda _: 1,
        linger_seconds: float = 0,
    ) -> None:
        self._work = work
        self._most = most
        self._size = size
        self._linger_seconds = linger_seconds
        self._went_together = 0  # in the last round
        self._waiting: list[tuple[Asked, asyncio.Future[Answered]]] = []
        self._round: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._round is not None

    async def __call__(self, asked: Asked) -> Answered:
        return await self.ask(asked)

    def ask(self, asked: Asked) -> "asyncio.Future[Answered]":
        """Return the answer as a future. A call whose future is done before its turn is dropped."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._round is None:
            # In an empty context: the first caller's bound log fields are not for the others.
            self._round = asyncio.create_task(self._rounds(), context=Context())
        return future

    async def _rounds(self) -> None:
        try:
            while self._waiting:
                if self._linger_seconds and self._went_together >= _SEVERAL:
                    await asyncio.sleep(self._linger_seconds)
                self._went_together = count = self._count_next()
                calls = self._waiting[:count]
                del self._waiting[:count]
                if still_wanted := [(asked, future) for asked, future in calls if not future.done()]:
                    await self._answer(still_wanted)
        finally:
            self._round = None

    def _count_next(self) -> int:
        total = 0
        for number, (asked, _) in enumerate(self._waiting):
            total += self._size(asked)
            if total > self._most:
                return max(number, 1)
        return len(self._waiting)

    async def _answer(self, calls: Sequence[tuple[Asked, "asyncio.Future[Answered]"]]) -> None:
        try:
            answers = await self._work([asked for asked, _ in calls])
        except Exception as error:  # noqa: BLE001 - the error goes to the waiting callers
            for _, future in calls:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(calls, answers, strict=True):
            if not future.done():
                future.set_result(answer)


T = TypeVar("T")


def is_unavailable(error: Exception) -> bool:
    """Whether a server is away; the error is then the same for every caller."""
    return isinstance(error, Unavailable)


class CachedByKey(Generic[T]):
    """Results by key, at most `seconds` old. A key names everything that its result depends on.

    Callers that come during a read wait for it and share the next one, and its error if `shares` says so. After another
    error, each caller reads again. No caller may change a result.
    """

    def __init__(
        self,
        *,
        seconds: float = 1.0,
        most: int = 1_000,
        shares: Callable[[Exception], bool] = is_unavailable,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._shares = shares
        self._monotonic = monotonic
        self._turns = count()
        self._kept: LRUCache[Hashable, _Kept[T]] = LRUCache(most)

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
        """Return a result of `read`, at most `seconds` old. With 0 its read began after this call."""
        seconds = self._seconds if seconds is None else seconds
        asked, kept = next(self._turns), self._kept.setdefault(key, _Kept())
        if self._is_fresh(kept, seconds):
            return cast(T, kept.value)
        async with kept.lock:
            if not self._is_fresh(kept, seconds) and kept.turn < asked:
                await self._read(kept, read)
            if kept.error is not None:
                raise kept.error.with_traceback(None)
            return cast(T, kept.value)

    async def _read(self, kept: "_Kept[T]", read: Callable[[], Awaitable[T]]) -> None:
        turn, began_at = next(self._turns), self._monotonic()
        try:
            kept.value, kept.error, kept.began_at = await read(), None, began_at
        except Exception as error:
            if not self._shares(error):
                raise
            kept.error, kept.began_at = error, -inf
        kept.turn = turn

    def _is_fresh(self, kept: "_Kept[T]", seconds: float) -> bool:
        return self._monotonic() - kept.began_at < seconds


class _Kept(Generic[T]):
    def __init__(self) -> None:
        self.lock = Lock()
        self.turn = -1
        self.began_at = -inf
        self.value: T | None = None
        self.error: Exception | None = None


class Cached(Generic[T]):
    """The result of `read`, at most `seconds` old."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._kept = CachedByKey[T](seconds=seconds, most=1, monotonic=monotonic)

    async def get(self) -> T:
        return await self._kept.get("", self._read)


class Connected(Protocol):
    async def close(self) -> None: ...


AnyConnected = TypeVar("AnyConnected", bound=Connected)


class Late(Generic[AnyConnected]):
    """Holds a connection that is opened once. `load` imports the driver in a thread, so that the event loop goes on,
    and returns the function that opens the connection, which runs in the loop.

    The first caller gets an error of opening, so settings are better checked before.
    """

    def __init__(self, name: str, load: Callable[[], Callable[[], AnyConnected]]) -> None:
        self._name = name
        self._load = load
        self._opened: AnyConnected | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self) -> AnyConnected:
        if self._opened is None or self._closed:
            async with self._opening:
                if self._closed:
                    raise Unavailable(f"{self._name} is closed")
                if self._opened is None:
                    self._opened = (await asyncio.to_thread(self._load))()
        return self._opened

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._opened is not None:
                await self._opened.close()
