"""Divisions: the zone of each device of a localized push.

A group's division is made once, when the first of its zones starts, and all zones use it: a device that changes its
zone between two starts still belongs to exactly one. A device is identified by its key (`seq_id`).

A division is made in steps. Each covers the next part of the audience, up to its `edge`. The devices of a zone are
cut into lists as long as a batch; the rest goes to the next step, and the last step leaves none. A step's lists are
stored first, under ids with a unique `attempt`, then the step itself. If several workers make one step, the first
stored step decides which lists count. So any worker may continue a division from its last step, and no device is
ever in two lists.
"""

from msgspec import Struct

from shared.domain.audience.ranges import DeviceList
from shared.domain.audience.sources import Source


class Division(Struct, frozen=True, kw_only=True):
    """The basis of a division, fixed before its first step: the source, and the devices of a list."""

    id: str
    source: Source
    size: int


class Step(Struct, frozen=True, kw_only=True):
    """A valid step. The next one begins at `edge`: after this key of the table, or at this cut of the file.

    `sizes` are those of its lists, and `left` the packed remaining keys, both by zone. `unknown` counts the file's
    users without a device so far, and `rest_values` are some values of `tz` in the zone `REST`. The division is
    complete after the `last` step.
    """

    division: str
    number: int
    attempt: str
    edge: int
    sizes: dict[str, list[int]] = {}
    left: dict[str, bytes] = {}
    unknown: int = 0
    rest_values: tuple[str | None, ...] = ()
    last: bool = False

    @property
    def id(self) -> str:
        return f"{self.division}/{self.number:08d}"

    def lists(self, zone: str) -> list[tuple[DeviceList, int]]:
        sizes = self.sizes.get(zone, [])
        return [(DeviceList(f"{self.id}/{self.attempt}/{zone}/{n}"), size) for n, size in enumerate(sizes)]
