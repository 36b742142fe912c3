"""How topics of ours are made, and the keys of what is published on them."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from msgspec import Struct


class TopicSpec(Struct, frozen=True):
    """How a topic of ours is made. `retention` is how long it keeps its records at least, by their age; `None` leaves
    that to the server."""

    partitions: int
    retention: timedelta | None = None


NO_TOPICS: Mapping[str, TopicSpec] = MappingProxyType({})


def as_spec(topic: int | TopicSpec) -> TopicSpec:
    """The specification of a topic, also where its number of partitions is all that is given."""
    return topic if isinstance(topic, TopicSpec) else TopicSpec(topic)


class LateRecords(Struct, frozen=True):
    """Records that have not been acknowledged yet, by their places among those of their call. `done` ends when they
    are, or raises `Unavailable`: nobody knows."""

    places: Sequence[int]
    done: asyncio.Future[None]


def check_keys(values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
    """Raise `ValueError` where there are keys, and not one for each value."""
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
