"""Devices in columns: rows of a push table, a list for each column.

A step on a batch treats nearly all its devices alike, so a step over a column costs a fraction of the same step over
rows.
"""

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Keys = NDArray[np.int64]
"""Keys (`seq_id`) of devices in ascending order; a key that several rows share is repeated."""

NO_KEYS: Keys = np.empty(0, np.int64)

Device = tuple[int, str | None, str | None, str | None]
"""A single device: seq_id, user_id, token, locale."""


class Devices(Struct, frozen=True):
    """Devices in the order of their keys. The values at one place of all columns are one device.

    Texts are UTF-8. NULL is empty, because a push treats both alike. `zones` exist only if they were asked for.
    """

    keys: Keys
    users: Sequence[bytes]
    tokens: Sequence[bytes]
    locales: Sequence[bytes]
    zones: Sequence[bytes] = ()

    @classmethod
    def of(cls, devices: Iterable[Device]) -> Self:
        keys, users, tokens, locales = [], [], [], []
        for key, user, token, locale in devices:
            keys.append(key)
            users.append(_utf8(user))
            tokens.append(_utf8(token))
            locales.append(_utf8(locale))
        return cls(np.array(keys, np.int64), users, tokens, locales)

    def __len__(self) -> int:
        return len(self.keys)

    def pick(self, kept: NDArray[np.bool_] | Sequence[bool]) -> "Devices":
        chosen = np.asarray(kept, np.bool_)
        flags = chosen.tolist()
        texts: tuple[Any, ...] = (self.users, self.tokens, self.locales, self.zones)
        return Devices(self.keys[chosen], *(list(compress(column, flags)) for column in texts))


NOBODY = Devices(NO_KEYS, (), (), ())


def _utf8(text: str | None) -> bytes:
    return (text or "").encode()
