"""Room for callbacks, of which strangers can send any number: nobody who reads slowly or comes often takes it all.

A body is read before anything else is spent on it. Many are read at once; where there is no room for another one, the
oldest of whoever has most of them is told to come again. So slow bodies shut out nobody: they go, and others get in.
Bodies that have been read are worked on, so many at once, half of them for one app.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from shared.domain.errors import Unavailable


class SlowBodies:
    """Bodies on their way, so many at `most`, each for so many `seconds`."""

    def __init__(self, *, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._reading: dict[asyncio.Timeout, str] = {}

    async def read(self, app_id: str, body: Awaitable[bytes]) -> bytes:
        """The body of a request to this app. Raises `Unavailable` where it takes too long to come."""
        if len(self._reading) >= self._most:
            self._end_one()
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                self._reading[limit] = app_id
                return await body
        except TimeoutError:
            raise Unavailable("the body did not come soon enough") from None
        finally:
            self._reading.pop(limit, None)

    def _end_one(self) -> None:
        """Drop the oldest body of the app with the most."""
        (app_id, _), *_ = Counter(self._reading.values()).most_common(1)
        oldest = next(limit for limit, owner in self._reading.items() if owner == app_id)
        del self._reading[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())


class AppPlaces:
    """Work that goes on for apps, so much at `most`, half of it for one app."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, app_id: str) -> Iterator[None]:
        """A place for one more. Raises `Unavailable` where there is none."""
        if self._taken.total() >= self._most or self._taken[app_id] >= self._most // 2:
            raise Unavailable("callbacks come faster than they can be stored")
        self._taken[app_id] += 1
        try:
            yield
        finally:
            self._taken[app_id] -= 1
            self._taken += Counter()  # forgets who has none
