"""The time zones of devices in a push table: keys by the text of `tz`."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from shared.domain.audience.devices import Keys


class Divided(Struct, frozen=True):
    """Ascending keys by the first 64 characters of `tz`, up to the key `edge`. `last`: no rows follow."""

    keys: list[tuple[str | None, Keys]]
    edge: int
    last: bool


class DividedUsers(Struct, frozen=True):
    keys: list[tuple[str | None, Keys]]
    users: int


def keys_of(content: bytes) -> Keys:
    """Keys as the server sends them (big-endian, 8 bytes each), sorted."""
    return np.sort(np.frombuffer(content, ">i8").astype(np.int64), kind="stable")


def divided_users(rows: Sequence[Any]) -> DividedUsers:
    found: defaultdict[str | None, list[int]] = defaultdict(list)
    for key, _, text in rows:
        found[text].append(key)
    keys: list[tuple[str | None, Keys]] = [
        (text, np.sort(np.array(values, np.int64))) for text, values in found.items()
    ]
    return DividedUsers(keys, len({row[1] for row in rows}))
