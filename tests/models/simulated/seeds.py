"""Looking through seeds of a simulation."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, TypeVar

from tests.models.simulated.fixed import replaced

AnyFailure = TypeVar("AnyFailure", bound=Exception)


def seeds_until(first: int, ends: float) -> Iterator[int]:
    """From this one on, for as long as there is time."""
    for seed in count(first):
        if time.monotonic() >= ends:
            return
        yield seed


def find_failing(
    seeds: Iterable[int],
    changes: Sequence[tuple[Any, str, Any]],
    run: Callable[[int], object],
    failure: type[AnyFailure],
) -> tuple[int, AnyFailure] | None:
    """The first of these seeds that fails, and how, with these things (target, name, other value) changed."""
    with ExitStack() as stack:
        for target, name, value in changes:
            stack.enter_context(replaced(target, name, value))
        for seed in seeds:
            try:
                run(seed)
            except failure as found:
                return seed, found
    return None
