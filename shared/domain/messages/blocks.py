"""Blocks: the instants of a quick account, dealt out to several workers at once.

A worker that cannot make all of an account's calls takes some of the eight columns of a block, each of which is every
eighth instant. Others take the columns that are left, for as long as their instants are ahead. So several workers call
at the same time, each at instants of its own, and all instants are as far apart as ever.
"""

from msgspec import Struct
from msgspec.structs import replace

COLUMNS = 8
_SPREAD = (0, 4, 2, 6, 1, 5, 3, 7)
"""In this order columns are taken, so that those of one worker are far apart."""


class Block(Struct, frozen=True, kw_only=True):
    """`rows` of eight instants. The first is at `first_us`, and each comes `interval_us` behind the one before. `taken`
    has a bit for each column that a worker holds."""

    first_us: int
    interval_us: int
    rows: int
    taken: int = 0

    @property
    def row_us(self) -> int:
        """How far two instants of one column are apart."""
        return COLUMNS * self.interval_us

    @property
    def last_us(self) -> int:
        """Its last instant."""
        return self.first_us + self.rows * self.row_us - self.interval_us

    def take(self, wanted: int, count: int, *, from_us: int) -> tuple["Block", "Columns"] | None:
        """Up to `wanted` of the columns that are left, from the first row that begins then or later, and no more than
        `count` instants need."""
        free = [column for column in _SPREAD if not self.taken >> column & 1]
        over = max(-(-(from_us - self.first_us) // self.row_us), 0)
        if not free or over >= self.rows:
            return None
        mine = sorted(free[: min(wanted, -(-count // (self.rows - over)))])
        taken = self.taken | sum(1 << column for column in mine)
        return replace(self, taken=taken), Columns(
            self.first_us + over * self.row_us, self.interval_us, self.rows - over, tuple(mine)
        )


class Columns(Struct, frozen=True):
    """These columns of a block, from a row that begins at `first_us`."""

    first_us: int
    interval_us: int
    rows: int
    columns: tuple[int, ...]

    def instant(self, index: int) -> int:
        """The instant with this number, from 0."""
        row, place = divmod(index, len(self.columns))
        return self.first_us + (row * COLUMNS + self.columns[place]) * self.interval_us

    @property
    def count(self) -> int:
        """How many instants these are."""
        return self.rows * len(self.columns)
