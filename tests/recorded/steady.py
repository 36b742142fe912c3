"""A steady clock for the whole product: time only moves when the recorder moves it.

Most of the product takes its clock as an argument. The rest asks `datetime.now`, `time.time`, `time.monotonic` or the
database; here each module of the product gets these from the recorder's clock, whatever the module is called.
"""

import importlib
import pkgutil
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from functools import cache
from inspect import isclass, isfunction
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.clocks import ManualClock

START = datetime(2050, 1, 1, tzinfo=UTC)
"""Far from any real time: so what a server dates is seen to be real, and becomes `<now>`."""
_PRODUCT = ("services", "shared", "carillon")


class SteadyClock(ManualClock):
    """The product's clock. `step` moves it on by a second, and makes all that is cached old."""

    def __init__(self) -> None:
        super().__init__(int(START.timestamp()) * 10**9)
        self._skipped = 0.0

    def step(self, seconds: float = 1.0) -> None:
        self.advance(seconds)
        self._skipped += max(seconds, 100.0)

    def monotonic(self) -> float:
        return 1e6 + self._skipped

    def time(self) -> float:
        return self.now_ns() / 1e9


class SteadyTime:
    """The database's time, by the same clock."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock

    async def now(self) -> datetime:
        return self._clock.now()

    async def measure(self) -> None: ...

    def reckon(self) -> datetime:
        return self._clock.now()


class _AnyDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class _Random:
    """The module `random`, whose noise is always in the middle."""

    @staticmethod
    def random() -> float:
        return 0.5

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)


class _Time:
    """The module `time`, by a steady clock."""

    def __init__(self, clock: SteadyClock) -> None:
        self.monotonic, self.perf_counter, self.time = clock.monotonic, clock.monotonic, clock.time

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def _datetime_of(clock: SteadyClock) -> type:
    class Datetime(datetime, metaclass=_AnyDatetime):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return datetime(*args, **kwargs)  # noqa: DTZ001

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return clock.now().astimezone(tz) if tz else clock.now().replace(tzinfo=None)

    return Datetime


@contextmanager
def keep_steady(clock: SteadyClock) -> Iterator[None]:
    """Have the whole product live by this clock."""
    replaced: dict[Any, Any] = {time: _Time(clock), datetime: _datetime_of(clock), random: _Random()}
    with pytest.MonkeyPatch.context() as patch:
        for module in _modules():
            for name, value in list(vars(module).items()):
                if name == "time_of" and isfunction(value):  # of the database's greeting
                    patch.setattr(module, name, lambda _: clock.now())
                elif any(value is each for each in replaced):
                    patch.setattr(module, name, replaced[value])
            for function in _functions(module):
                for place in ("__defaults__", "__kwdefaults__"):
                    if (given := getattr(function, place)) is not None and time.monotonic in _values(given):
                        patch.setattr(function, place, _steadied(given, clock))
        yield


@cache
def _load_all() -> None:
    """Load all modules of the product, so that none comes later with a clock of its own."""
    for root in _PRODUCT:
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if not found.name.endswith("__main__"):
                with suppress(ImportError):  # of an extra that is not installed
                    importlib.import_module(found.name)


def _modules() -> list[ModuleType]:
    _load_all()
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in _PRODUCT]


def _values(given: Any) -> tuple[Any, ...]:
    return tuple(given.values() if isinstance(given, dict) else given)


def _steadied(given: Any, clock: SteadyClock) -> Any:
    """Default values of a function, with the steady clock in the place of the real one."""
    steady = [clock.monotonic if each is time.monotonic else each for each in _values(given)]
    return dict(zip(given, steady, strict=True)) if isinstance(given, dict) else tuple(steady)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(module).values()):
        if isfunction(value):
            yield value
        elif isclass(value) and value.__module__ == module.__name__:
            yield from (each for each in vars(value).values() if isfunction(each))
