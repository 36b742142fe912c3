"""What tells a table's rows apart at every reading: their keys, and which of those that share a key they are."""

from collections.abc import Iterable, Iterator, Sequence

_SAME_KEY = 1 << 40

RowName = tuple[int, int]
"""A row's seq_id, and which of the rows it is that share it, from 0 on."""


def name_rows(keys: Iterable[int]) -> Iterator[RowName]:
    """A name for each row of these keys, which ascend."""
    previous, same = None, 0
    for key in keys:
        same = same + 1 if key == previous else 0
        previous = key
        yield key, same


def number_rows(names: Sequence[RowName], after: int) -> list[int]:
    """A number for each row: how far its key lies behind the beginning. Rows that share a key have numbers far
    apart."""
    return [key - after - 1 + same * _SAME_KEY for key, same in names]
