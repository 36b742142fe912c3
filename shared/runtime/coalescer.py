"""Coalescing: what many ask for at the same time costs one round trip, which costs little more than one of them.

Nobody waits for others to come: whoever is first begins at once, and those who come meanwhile go together next. But
where many come at a time, those who were answered together ask again together, one by one over a moment: the first of
them would go alone, and the others in the next round. A coalescer may wait for that moment (`linger_seconds`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

LINGER_SECONDS = 0.001
"""The least that the loop's timers know. For it, a quarter to a half more go together on the way of a publish."""
_SEVERAL = 4  # a caller or two who ask again and again never wait


def _one(_: object) -> int:
    return 1


class Coalescer(Generic[Asked, Answered]):
    """Coalesces concurrent calls into one call of `work`, for `most` of them at a time, one call after the other.
    `work` answers each, in their order; an error that it raises is everybody's. If calls differ in `size`, these add up
    to `most`, unless one call alone is larger."""

    def __init__(
        self,
        work: Callable[[Sequence[Asked]], Awaitable[Sequence[Answered]]],
        *,
        most: int = 500,
        size: Callable[[Asked], int] = _one,
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
        """Whether somebody waits here, or `work` is under way."""
        return self._round is not None

    async def __call__(self, asked: Asked) -> Answered:
        """The answer for this one. Raises what `work` raises."""
        return await self.ask(asked)

    def ask(self, asked: Asked) -> "asyncio.Future[Answered]":
        """The same, to be awaited later. One that is done before its turn is not asked any more."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._round is None:
            # In an empty context: what the first caller has bound to its log lines is not for the others.
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
        """How many of those who wait go together next."""
        total = 0
        for count, (asked, _) in enumerate(self._waiting):
            total += self._size(asked)
            if total > self._most:
                return max(count, 1)
        return len(self._waiting)

    async def _answer(self, calls: Sequence[tuple[Asked, "asyncio.Future[Answered]"]]) -> None:
        try:
            answers = await self._work([asked for asked, _ in calls])
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            for _, future in calls:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(calls, answers, strict=True):
            if not future.done():
                future.set_result(answer)
