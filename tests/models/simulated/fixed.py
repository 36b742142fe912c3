"""What the product takes from its process: chance, time and constants. A world has its own."""

import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import ModuleType
from typing import Any

import structlog


@contextmanager
def fixed(seed: int, slots: int, monotonic: Callable[[], float], log: Callable[..., str]) -> Iterator[None]:
    """Chance, time, logs and the number of chains are those of a world."""
    tokens = Random(seed)
    with ExitStack() as stack:
        for target, name, value in (
            *((module, "SLOTS", slots) for module in _counting_slots()),
            (time, "monotonic", monotonic),
            (secrets, "token_hex", lambda count=32: tokens.randbytes(count).hex()),
        ):
            stack.enter_context(replaced(target, name, value))
        random.seed(seed)
        stack.callback(structlog.configure, **structlog.get_config())
        structlog.configure(processors=[log], wrapper_class=structlog.make_filtering_bound_logger(40))
        yield


def _counting_slots() -> list[ModuleType]:
    """The modules of the product that know how many chains a job has."""
    product = [module for name, module in sys.modules.items() if name.startswith(("services.", "shared."))]
    return [module for module in product if "SLOTS" in vars(module)]


@contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Another value for a while."""
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)
