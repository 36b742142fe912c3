"""Items that a caller gives one by one, asynchronously or not."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TypeVar

from carillon.runtimes import Runtime

T = TypeVar("T")


async def each(items: Iterable[T] | AsyncIterable[T], runtime: Runtime) -> AsyncGenerator[T]:
    """The items, in their order. Raises `TypeError` for asynchronous ones where there is no event loop."""
    if isinstance(items, AsyncIterable):
        if runtime.blocking:
            raise TypeError("an asynchronous iterable needs AsyncCarillon")
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
