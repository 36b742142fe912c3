"""How Carillon creates its topics, and checks of the keys of published records."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from msgspec import Struct


class TopicSpec(Struct, frozen=True):
    """How Carillon creates a topic. Records are kept for at least `retention`; `None` leaves that to the server."""

    partitions: int
    retention: timedelta | None = None


NO_TOPICS: Mapping[str, TopicSpec] = MappingProxyType({})


def as_spec(topic: int | TopicSpec) -> TopicSpec:
    """A bare number of partitions becomes a specification."""
    return topic if isinstance(topic, TopicSpec) else TopicSpec(topic)


class LateRecords(Struct, frozen=True):
    """Records that are not acknowledged yet; `places` are their indexes in the call. `done` ends after the
    acknowledgement; if it raises `Unavailable`, the outcome is unknown."""

    places: Sequence[int]
    done: asyncio.Future[None]


def check_keys(values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
    """Raise `ValueError` if there are keys, but not one per value."""
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
