"""Measures and traces the calls of servers from outside: the servers do not know it."""

import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

from shared.core.errors import Unavailable
from shared.runtime.metrics import CALL_ERRORS, CALL_SECONDS
from shared.runtime.tracing import span

T = TypeVar("T")


def measure_calls(capability: T, name: str, *, opens: frozenset[str] = frozenset()) -> T:
    """Wrap a capability: `CALL_SECONDS` and `CALL_ERRORS` measure every `async def` method, and an `Unavailable` is
    marked with the capability's name.

    Methods in `opens` return async context managers; entering one is measured under the method's name, and its value is
    wrapped in turn. Other attributes are passed on. Calls among a capability's own methods are not seen.
    """
    return cast(T, _Observed(capability, name, opens))


class _Observed:
    def __init__(self, capability: Any, name: str, opens: frozenset[str]) -> None:
        self._capability = capability
        self._name = name
        self._opens = opens

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._capability, attribute)
        if attribute in self._opens:
            return _measure_opening(value, self._name, attribute)
        if not inspect.iscoroutinefunction(value):
            return value  # read anew each time: the value may change
        measured = _measure(value, self._name, attribute)
        self.__dict__[attribute] = measured  # the next access finds it without `__getattr__`
        return measured


def _measure(method: Callable[..., Awaitable[Any]], capability: str, operation: str) -> Callable[..., Awaitable[Any]]:
    seconds, span_name = CALL_SECONDS.labels(capability, operation), f"{capability}.{operation}"

    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            with span(span_name):
                return await method(*args, **kwargs)
        except Exception as error:
            CALL_ERRORS.labels(capability, operation, type(error).__name__).inc()
            if isinstance(error, Unavailable):
                error.server = error.server or capability.partition(".")[0]
            raise
        finally:
            seconds.observe(time.perf_counter() - began)

    return call


def _measure_opening(method: Callable[..., Any], capability: str, operation: str) -> Callable[..., Any]:
    """The same context manager, whose entering is measured and whose value is wrapped."""

    @asynccontextmanager
    async def open_measured(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            enter = _measure(stack.enter_async_context, capability, operation)
            yield measure_calls(await enter(method(*args, **kwargs)), capability)

    return open_measured
