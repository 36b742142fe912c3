"""Capabilities whose calls are measured and traced, from outside: they know nothing of it."""

import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar, cast

from shared.domain.errors import Unavailable
from shared.runtime.metrics import CALL_ERRORS, CALL_SECONDS
from shared.runtime.tracing import span

T = TypeVar("T")


def measure_calls(capability: T, name: str, *, opens: frozenset[str] = frozenset()) -> T:
    """The same capability, with the time and the errors of every `async def` method in `CALL_SECONDS` and
    `CALL_ERRORS`. An `Unavailable` that passes is told whose it is.

    Methods in `opens` return async context managers; entering one is measured too (as that method), and what comes out
    of it is observed in turn under the same name. Everything else is passed on as it is. Private use among its own
    methods is not seen.
    """
    return cast(T, _Observed(capability, name, opens))


class _Observed:
    """Stands before a capability and hands every attribute on."""

    def __init__(self, capability: Any, name: str, opens: frozenset[str]) -> None:
        self._capability = capability
        self._name = name
        self._opens = opens

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._capability, attribute)
        if attribute in self._opens:
            return _measure_opening(value, self._name, attribute)
        if not inspect.iscoroutinefunction(value):
            return value  # read anew each time: it may change
        measured = _measure(value, self._name, attribute)
        self.__dict__[attribute] = measured  # found there the next time, without coming here
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
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _Opened(method(*args, **kwargs), capability, operation)

    return call


class _Opened:
    """An async context manager whose entering is measured and whose value is observed."""

    def __init__(self, inner: AbstractAsyncContextManager[Any], capability: str, operation: str) -> None:
        self._inner = inner
        self._capability = capability
        self._enter = _measure(inner.__aenter__, capability, operation)

    async def __aenter__(self) -> Any:
        return measure_calls(await self._enter(), self._capability)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)
