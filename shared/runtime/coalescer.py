"""Coalescing: concurrent calls share one round trip, which costs little more than one of them.

The first caller begins at once; callers that come meanwhile go together in the next round. But callers who were
answered together ask again one by one over a moment: the first would go alone, the others a round later.
`linger_seconds` makes a coalescer wait for that moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

LINGER_SECONDS = 0.001
"""The shortest time of the loop's timers. With it, a quarter to a half more calls share a publish."""
_SEVERAL = 4  # one or two callers that ask again and again never wait


def _one(_: object) -> int:
    return 1


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
        for count, (asked, _) in enumerate(self._waiting):
            total += self._size(asked)
            if total > self._most:
                return max(count, 1)
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
