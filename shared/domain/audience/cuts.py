"""Cuts: the pages of an audience, each of which is a batch's range."""

from collections.abc import Sequence

from msgspec import Struct

from shared.domain.audience.devices import Keys


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
