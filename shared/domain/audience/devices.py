"""Devices in columns: what a push table tells of many of them, a list for each detail.

A step on a batch treats nearly all its devices alike. So one step over a column costs a fraction of the same step over
as many rows.
"""

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Keys = NDArray[np.int64]
"""Keys (`seq_id`) of devices in ascending order; one that several rows share stands there as often."""

NO_KEYS: Keys = np.empty(0, np.int64)

Device = tuple[int, str | None, str | None, str | None]
"""A device by itself: seq_id, user_id, token, locale."""


class Devices(Struct, frozen=True):
    """Devices in the order of their keys. The values in one place of all columns are one device.

    Texts are UTF-8. NULL is empty: no part of a push tells the two apart. `zones` are there only where they were asked
    for.
    """

    keys: Keys
    users: Sequence[bytes]
    tokens: Sequence[bytes]
    locales: Sequence[bytes]
    zones: Sequence[bytes] = ()

    @classmethod
    def of(cls, devices: Iterable[Device]) -> Self:
        """These devices as columns."""
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
        """Those with a true value in their place."""
        chosen = np.asarray(kept, np.bool_)
        flags = chosen.tolist()
        texts: tuple[Any, ...] = (self.users, self.tokens, self.locales, self.zones)
        return Devices(self.keys[chosen], *(list(compress(column, flags)) for column in texts))


NOBODY = Devices(NO_KEYS, (), (), ())


def _utf8(text: str | None) -> bytes:
    return (text or "").encode()
