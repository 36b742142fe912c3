"""Methods of resources, for both clients: one implementation, written as coroutines.

`AsyncCarillon` hands the coroutines to its caller, whose event loop runs them. `Carillon` runs them itself: its runtime
blocks the thread where the other one suspends, so a coroutine comes to its end in one step, and there is no event loop.

A method of a resource is a `call` or a `listing`, and type checkers see what the client at hand makes of it.
"""

import inspect
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from functools import cached_property, update_wrapper, wraps
from types import GenericAlias, MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, get_args, overload
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from carillon.attempts import Query, path_of
from carillon.errors import CarillonError, error_of
from carillon.files import each
from carillon.transport import NDJSON, Answer, CallOptions, Transport
from carillon.values import encode
from carillon.wire import Result

PAGE_SIZE = 100  # a schedule may be 256 KiB
T = TypeVar("T")
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


async def items(
    transport: Transport,
    path: str,
    query: Query | None,
    page: type[list[T]],
    *,
    limit: int | None = None,
    page_size: int = PAGE_SIZE,
    floats: Callable[[str], Any] = float,
) -> AsyncGenerator[T]:
    """All items of a list, or the first `limit`; those that are added behind the current position meanwhile are among
    them. Raises `CarillonError` where a page leads to itself."""
    left = sys.maxsize if limit is None else limit
    following: Query | None = {**(query or {}), "limit": str(min(page_size, left))}
    while following is not None and left > 0:
        answer = await transport.call("GET", path, query=following)
        for item in answer.read(page, floats)[:left]:
            yield item
            left -= 1
        present, following = following, next_query(answer.headers.get("Link", ""))
        if following == present and left > 0:
            raise CarillonError("the list goes round: its next page is the present one", status=answer.status)


def next_query(link: str) -> Query | None:
    """The query of the next page, `None` on the last. Only the query is read: the path is known, and a proxy may have
    moved it."""
    match = _NEXT.search(link)
    return dict(parse_qsl(urlsplit(match[1]).query, keep_blank_values=True)) if match else None


class Sync:
    """Marks what belongs to `Carillon`: a call returns what was answered."""


class Async:
    """Marks what belongs to `AsyncCarillon`: a call is awaited."""


M = TypeVar("M", bound=Sync | Async)
P = ParamSpec("P")
R = TypeVar("R", bound=Result)
GONE = frozenset({404})
CONFLICT = frozenset({409})
BODY_BYTES = 8 * 2**20  # half of what the server takes


class Resource(Generic[M]):
    """A part of the API, `Resource[Sync]` or `Resource[Async]`."""

    _floats: Callable[[str], Any] = float
    """Reads the numbers of values that have no type of their own. `float` makes those infinite that no float holds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def blocking(self) -> bool:
        """Whether its calls block the thread."""
        return self._transport.runtime.blocking

    async def _call(self, method: str, *path: str, **how: Unpack[CallOptions]) -> Answer:
        return await self._transport.call(method, path_of(*path), **how)

    async def _get(self, kind: type[T], *path: str, query: Query | None = None) -> T:
        return (await self._call("GET", *path, query=query)).read(kind, self._floats)

    async def _post(self, kind: type[T], *path: str, **how: Unpack[CallOptions]) -> T:
        return (await self._call("POST", *path, **how)).read(kind, self._floats)

    async def _put(self, kind: type[T], *path: str, **how: Unpack[CallOptions]) -> T:
        return (await self._call("PUT", *path, **how)).read(kind, self._floats)

    async def _patch(self, kind: type[T], *path: str, **how: Unpack[CallOptions]) -> T:
        return (await self._call("PATCH", *path, **how)).read(kind, self._floats)

    async def _delete(self, *path: str, query: Query | None = None, reason: str = "") -> None:
        await self._call("DELETE", *path, query=query, reason=reason, done_before=GONE)

    def _list(
        self, page: type[list[T]], *path: str, query: Query | None = None, limit: int | None, page_size: int
    ) -> AsyncGenerator[T]:
        return items(
            self._transport, path_of(*path), query, page, limit=limit, page_size=page_size, floats=self._floats
        )

    async def _create(
        self,
        kind: type[T],
        page: type[list[T]],
        *path: str,
        content: bytes,
        reason: str,
        is_wanted: Callable[[T], bool],
    ) -> T:
        """Create a thing with a unique name. A conflict after an attempt whose answer was lost may be with what that
        attempt created, so the thing of the list that is wanted is taken for it."""
        answer = await self._call("POST", *path, content=content, reason=reason, done_before=CONFLICT)
        if answer.status not in CONFLICT:
            return answer.read(kind)
        return await self._find(page, *path, is_wanted=is_wanted, conflict=answer)

    async def _find(self, page: type[list[T]], *path: str, is_wanted: Callable[[T], bool], conflict: Answer) -> T:
        """The wanted thing of a list. Raises the conflict if it is not there."""
        async with aclosing(self._list(page, *path, limit=None, page_size=PAGE_SIZE)) as found:
            async for item in found:
                if is_wanted(item):
                    return item
        raise error_of(conflict.status, conflict.content)

    async def _settle_move(self, kind: type[T], *path: str, answer: Answer, is_moved: Callable[[T], bool]) -> T:
        """The thing after a move. A refusal after an attempt whose answer was lost is none if that attempt moved it."""
        if answer.status < 400:
            return answer.read(kind)
        present = await self._get(kind, *path)
        if not is_moved(present):
            raise error_of(answer.status, answer.content)
        return present

    async def _send_all(
        self,
        kind: type[R],
        things: Iterable[Any] | AsyncIterable[Any],
        *path: str,
        at_once: int,
        idempotency_key: str = "",
        reason: str = "",
        once: bool = False,
    ) -> AsyncGenerator[R]:
        index = 0
        async for chunk in _chunks(each(things, self._transport.runtime), at_once):
            key = f"{idempotency_key}/{index}" if idempotency_key else ""
            answer = await self._call(
                "POST",
                *path,
                content=b"\n".join(chunk),
                content_type=NDJSON,
                idempotency_key=key,
                reason=reason,
                once=once,
            )
            for result in answer.read_lines(kind, len(chunk)):
                yield replace(result, index=index + result.index)
            index += len(chunk)


async def _chunks(things: AsyncIterable[Any], at_once: int) -> AsyncGenerator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    async for thing in things:
        line = encode(thing)
        if chunk and size + len(line) >= BODY_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line) + 1
        if len(chunk) == at_once:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class _Method:
    """A method whose name and signature are those of the function that it is written as: `help` shows them."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        update_wrapper(self, method)

    def __call__(self, resource: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(resource, self._method.__name__)(*args, **kwargs)


class call(_Method, Generic[P, T]):  # noqa: N801 - a decorator
    """A method that gives one answer. It is written as a coroutine."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, resource: None, owner: type) -> Self: ...
    @overload
    def __get__(self, resource: Resource[Sync], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: type) -> Any:
        if resource is None:
            return self
        return _attach(self._method, resource, run)


class listing(_Method, Generic[P, T]):  # noqa: N801 - a decorator
    """A method that gives items one after another. It is written as, or returns, an asynchronous generator."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncGenerator[T]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, resource: None, owner: type) -> Self: ...
    @overload
    def __get__(self, resource: Resource[Sync], owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[Async], owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: type) -> Any:
        if resource is None:
            return self
        method = _attach(self._method, resource, iterate)
        if resource.blocking:
            vars(method)["__signature__"] = self._blocking_signature
        return method

    @cached_property
    def _blocking_signature(self) -> inspect.Signature:
        signature = inspect.signature(self._method)
        own = [*signature.parameters.values()][1:]
        items = GenericAlias(Iterator, get_args(signature.return_annotation)[:1])
        return signature.replace(parameters=own, return_annotation=items)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that blocks where others suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of a blocking client has suspended")


def iterate(items: AsyncGenerator[T]) -> Iterator[T]:
    """The items of an asynchronous generator that blocks where others suspend."""
    try:
        while True:
            try:
                item = run(items.asend(None))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def _attach(method: Callable[..., Any], resource: Resource[Any], finish: Callable[[Any], Any]) -> Callable[..., Any]:
    """The method of this resource; what it returns is finished at once where the client blocks."""
    bound = MethodType(method, resource)
    if not resource.blocking:
        return bound

    @wraps(bound)
    def finished(*args: Any, **kwargs: Any) -> Any:
        return finish(bound(*args, **kwargs))

    return finished
