"""The work of this process at this moment, so that people can be told."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

from msgspec import Struct

_serials = count()
_held: dict[int, "HeldThing"] = {}


class HeldThing(Struct, frozen=True):
    """Something in hand: the queue it came from, the id of what it is about, and the monotonic second it began."""

    what: str
    id: str
    began: float

    @property
    def seconds(self) -> float:
        """For how long it has been in hand."""
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
    """The things that have been in hand for longest."""
    return list(islice(_held.values(), most))


def held_count() -> int:
    """How many things are in hand."""
    return len(_held)
