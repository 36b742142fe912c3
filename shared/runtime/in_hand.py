"""The work that this process is doing now, for display."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

from msgspec import Struct

_serials = count()
_held: dict[int, "HeldThing"] = {}


class HeldThing(Struct, frozen=True):
    """Work in hand: its queue, the id of its subject, and the monotonic second at which it began."""

    what: str
    id: str
    began: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


@contextmanager
def hold(what: str, id: str) -> Iterator[None]:
    """Show this as in hand while the block runs."""
    serial = next(_serials)
    _held[serial] = HeldThing(what, id, time.monotonic())
    try:
        yield
    finally:
        del _held[serial]


def oldest(most: int) -> list[HeldThing]:
    return list(islice(_held.values(), most))


def held_count() -> int:
    return len(_held)
