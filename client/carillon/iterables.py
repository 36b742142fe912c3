"""What a caller gives one by one, be it asynchronously or not."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T]:
    """The items, in their order."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
