"""How one implementation serves both clients.

Whatever asks and waits is written once, as coroutines. `AsyncCarillon` hands them to its caller, whose event loop runs
them. `Carillon` runs them itself: its runtime blocks the thread where the other one suspends, so a coroutine comes to
its end in one step, and there is no event loop.

A method of a resource is a `call` or a `listing`, and type checkers see what the client at hand makes of it.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property, update_wrapper, wraps
from types import GenericAlias, MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, overload

from carillon.transport import Transport


class Sync:
    """Marks what belongs to `Carillon`: a call returns what was answered."""


class Async:
    """Marks what belongs to `AsyncCarillon`: a call is awaited."""


M = TypeVar("M", bound=Sync | Async)
P = ParamSpec("P")
T = TypeVar("T")


class Resource(Generic[M]):
    """A part of the API, `Resource[Sync]` or `Resource[Async]`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def blocking(self) -> bool:
        """Whether its calls block the thread."""
        return self._transport.runtime.blocking


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
