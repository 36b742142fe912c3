"""Devices in columns, their keys, and the pages of an audience, each of which is a batch's range.

A step on a batch treats nearly all its devices alike, so a step over a column costs a fraction of the same step
over rows.
"""

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.core.errors import Invalid

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


def check_unshared(table: str, keys: Keys) -> None:
    """Raise `Invalid` if rows share a key. Their order could change with other rows, so that one recipient would get
    two messages, and another none. The keys ascend."""
    shared = keys[1:][keys[1:] == keys[:-1]]
    if len(shared):
        rule = "a job of messages needs one for each row, to tell whom it has written to"
        raise Invalid(f'several rows of table "{table}" have the seq_id {shared[0]}: {rule}', field="seq_id")


class Cut(Struct, frozen=True):
    """One page of an audience: the range up to and including `upto` has `size` rows that the filters keep."""

    upto: int
    size: int


def cut_keys(keys: Keys, size: int) -> list[Cut]:
    """These keys as neighbouring cuts of `size`; rows that share a key are in one cut."""
    cuts, start = [], 0
    while start < len(keys):
        upto = keys[min(start + size, len(keys)) - 1]
        end = int(keys.searchsorted(upto, side="right"))
        cuts.append(Cut(int(upto), end - start))
        start = end
    return cuts


def merge_cuts(cuts: Sequence[Cut], more: Sequence[Cut], size: int) -> list[Cut]:
    """Neighbouring cuts in a row; the two at the seam are merged if their sum is at most `size`."""
    if cuts and more and cuts[-1].size + more[0].size <= size:
        return [*cuts[:-1], Cut(more[0].upto, cuts[-1].size + more[0].size), *more[1:]]
    return [*cuts, *more]
