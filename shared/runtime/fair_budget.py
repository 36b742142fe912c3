"""A limited resource that owners share fairly (`shared/core/rates.py`)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.core.rates import Shares

THREE_QUARTERS = 3.0
"""The greed with which one owner alone gets three quarters."""

_Waiting = tuple[int, asyncio.Future[None]]


class FairBudget:
    """Shares out `total`. `held` is the amount in use, `most_held` its maximum.

    Waiting owners take turns, and each owner's calls are served in order. An owner with its full share waits for its
    own part, and holds up no other. If an owner with less than its share finds no room, all wait behind it, or it would
    never find any. A size above `total` fits only while nothing else is held.
    """

    def __init__(self, total: int, *, greed: float = THREE_QUARTERS) -> None:
        self.shares: Shares[str] = Shares(total, greed=greed)
        self._waiting: dict[str, deque[_Waiting]] = {}
        self.most_held = 0

    @property
    def held(self) -> int:
        return len(self.shares)

    def has_room(self, owner: str, size: int) -> bool:
        """Whether `take` would not wait."""
        return owner not in self._waiting and self._next is None and self.shares.admits(owner) and self._fits(size)

    async def take(self, owner: str, size: int = 1) -> None:
        if self.has_room(owner, size):
            self._hold(owner, size)
            return
        asked: _Waiting = (size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, deque()).append(asked)
        try:
            await asked[1]
        except asyncio.CancelledError:
            self._withdraw(owner, asked)
            raise

    def give_back(self, owner: str, size: int = 1) -> None:
        self.shares.give_back(owner, size)
        self._admit_waiting()

    @asynccontextmanager
    async def one(self, owner: str) -> AsyncIterator[None]:
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def _withdraw(self, owner: str, asked: _Waiting) -> None:
        size, future = asked
        if future.done() and not future.cancelled():
            self.give_back(owner, size)
            return
        if asked in (waiting := self._waiting.get(owner, deque[_Waiting]())):
            waiting.remove(asked)
            self._forget_idle(owner)
        self._admit_waiting()

    @property
    def _next(self) -> str | None:
        return next((owner for owner in self._waiting if self.shares.admits(owner)), None)

    def _admit_waiting(self) -> None:
        while (owner := self._next) is not None and self._fits(self._waiting[owner][0][0]):
            waiting = self._waiting.pop(owner)
            self._waiting[owner] = waiting  # to the end of the line
            size, future = waiting.popleft()
            self._forget_idle(owner)
            if not future.done():
                self._hold(owner, size)
                future.set_result(None)

    def _forget_idle(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]

    def _hold(self, owner: str, size: int) -> None:
        self.shares.take(owner, size)
        self.most_held = max(self.held, self.most_held)

    def _fits(self, size: int) -> bool:
        return self.held == 0 or self.held + size <= self.shares.capacity
