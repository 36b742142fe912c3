"""Blocks: instants of a fast account, divided among several workers.

A worker that cannot make all of an account's calls takes some of the columns of a block. If there are eight columns,
each is every eighth instant. Other workers take the remaining columns, while their instants are ahead. So several
workers call at the same time, each at different instants, and the intervals between calls stay the same.
"""

from msgspec import Struct
from msgspec.structs import replace

_SECOND = 1_000_000
_COLUMN_RATE = 320
_FEWEST_COLUMNS, _MOST_COLUMNS = 8, 32
# Columns are taken in this order, so that those of one worker are far apart: 0, 16, 8, 24 and so on.
_SPREAD = tuple(sum(1 << (4 - bit) for bit in range(5) if place >> bit & 1) for place in range(_MOST_COLUMNS))


def width_of(interval_us: int) -> int:
    """The number of columns of a block (8, 16 or 32), so that any worker can keep up with one column."""
    width = _FEWEST_COLUMNS
    while width < _MOST_COLUMNS and width * interval_us * _COLUMN_RATE < _SECOND:
        width *= 2
    return width


class Block(Struct, frozen=True, kw_only=True):
    """`rows` of instants, one for each column. The first instant is at `first_us`, and the interval is `interval_us`.
    `taken` has a bit for each column that a worker holds."""

    first_us: int
    interval_us: int
    rows: int
    taken: int = 0

    @property
    def width(self) -> int:
        return width_of(self.interval_us)

    @property
    def row_us(self) -> int:
        """The interval between two instants of one column."""
        return self.width * self.interval_us

    @property
    def last_us(self) -> int:
        return self.first_us + self.rows * self.row_us - self.interval_us

    def take(self, wanted: int, count: int, *, from_us: int) -> tuple["Block", "Columns"] | None:
        """Up to `wanted` free columns, from the first row at or after `from_us`, and no more than `count` instants
        need."""
        free = [column for column in _SPREAD if column < self.width and not self.taken >> column & 1]
        over = max(-(-(from_us - self.first_us) // self.row_us), 0)
        if not free or over >= self.rows:
            return None
        mine = sorted(free[: min(wanted, -(-count // (self.rows - over)))])
        taken = self.taken | sum(1 << column for column in mine)
        return replace(self, taken=taken), Columns(
            self.first_us + over * self.row_us, self.interval_us, self.rows - over, tuple(mine)
        )


class Columns(Struct, frozen=True):
    """Columns of a block, from the row at `first_us` on."""

    first_us: int
    interval_us: int
    rows: int
    columns: tuple[int, ...]

    def instant(self, index: int) -> int:
        row, place = divmod(index, len(self.columns))
        return self.first_us + (row * width_of(self.interval_us) + self.columns[place]) * self.interval_us

    @property
    def spacing_us(self) -> int:
        """The average interval of these instants."""
        return width_of(self.interval_us) * self.interval_us // len(self.columns)

    @property
    def count(self) -> int:
        return self.rows * len(self.columns)
