"""Both clients for one test: `connect` opens the one at hand, which the fixture `each_client` chooses.

`Carillon` has here the face of `AsyncCarillon`: each of its calls runs in a thread, so that the servers of the test can
answer, which live on the event loop.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self, cast

from carillon import AsyncCarillon, Carillon
from carillon.calls import Resource, Sync, listing

OVER = object()
FAR_SECONDS = 50.0


class ResourceInThreads:
    """A resource of `Carillon`, awaited."""

    def __init__(self, resource: Resource[Sync]) -> None:
        self._resource = resource

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._resource, name)
        if isinstance(found, Resource):
            return ResourceInThreads(found)
        return listed(found) if isinstance(getattr(type(self._resource), name), listing) else awaited(found)


class InThreads(ResourceInThreads):
    """`Carillon`, awaited."""

    def __init__(self, base_url: str, **options: Any) -> None:
        self._client = Carillon(base_url, **options)
        self._transport = self._client._transport
        super().__init__(self._client)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def awaited(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call_in_thread(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(method, *map(blocking, args), **kwargs)

    return call_in_thread


def listed(method: Callable[..., Iterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def list_in_thread(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        items = await asyncio.to_thread(method, *map(blocking, args), **kwargs)
        while (item := await asyncio.to_thread(next, items, OVER)) is not OVER:
            yield item

    return list_in_thread


def blocking(argument: Any) -> Any:
    """What a synchronous program would give in the place of an asynchronous iterable."""
    return items_of(argument, asyncio.get_running_loop()) if isinstance(argument, AsyncIterable) else argument


def items_of(items: AsyncIterable[Any], loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    iterator = aiter(items)

    async def take_next() -> Any:
        return await anext(iterator, OVER)

    while (item := asyncio.run_coroutine_threadsafe(take_next(), loop).result()) is not OVER:
        yield item


Kind = type[AsyncCarillon] | type[InThreads]
KINDS: tuple[Kind, ...] = (AsyncCarillon, InThreads)


class Chosen:
    """The client that tests open."""

    kind: Kind = AsyncCarillon


def connect(base_url: str, **options: Any) -> AsyncCarillon:
    return cast(AsyncCarillon, Chosen.kind(base_url, **options))


class Limits:
    """Counts the time limits that a client sets, one for each attempt, and how often it begins one anew.

    Only the limit with the number `short` is the client's own. The others are far away, so no machine is too slow.
    """

    def __init__(self, client: AsyncCarillon, *, short: int = 0) -> None:
        self.begun = self.restarted = 0
        self._short = short
        runtime = client._transport.runtime
        self._limit = runtime.limit
        vars(runtime)["limit"] = self._next

    def _next(self, seconds: float) -> Any:
        self.begun += 1
        limit: Any = self._limit(seconds if self.begun == self._short else FAR_SECONDS)
        restart = limit.restart

        def counted() -> None:
            self.restarted += 1
            restart()

        limit.restart = counted
        return limit
