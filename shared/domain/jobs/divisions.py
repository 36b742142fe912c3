"""Divisions: which device belongs to which zone of a localized push.

A group's division is made once, when the first of its zones starts, and all zones refer to it: whoever moves to another
zone between two of their starts still belongs to one of them. A device is told by its key (`seq_id`).

A division is made in steps. Each covers the next part of the audience, up to its `edge`. The devices that it finds for
a zone are cut into lists as long as a batch; what is left over goes on to the next step, and the last step leaves
nothing. A step's lists are stored first, under ids with an `attempt` that nobody else uses, then the step itself. If
several work at one step, the one whose step is stored first decides which lists count. So anybody may go on with a
division, from its last step, and no device is ever in two lists.
"""

from msgspec import Struct

from shared.domain.audience.ranges import DeviceList
from shared.domain.audience.sources import Source


class Division(Struct, frozen=True, kw_only=True):
    """The basis of a division, fixed before its first step: the source, and how many devices a list has."""

    id: str
    source: Source
    size: int


class Step(Struct, frozen=True, kw_only=True):
    """A step that counts. `edge` is where the next one begins: behind this key of the table, or at this cut of the
    file.

    `sizes` are those of its lists, and `left` the packed keys that are left over, both by zone. `unknown` counts the
    users of the file so far who have no device, and `rest_values` are some values of `tz` in the zone `REST`. After the
    `last` step the division is complete.
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
        """Unique, and in the order of a division's steps."""
        return f"{self.division}/{self.number:08d}"

    def lists(self, zone: str) -> list[tuple[DeviceList, int]]:
        """The lists of a zone, each with its size."""
        sizes = self.sizes.get(zone, [])
        return [(DeviceList(f"{self.id}/{self.attempt}/{zone}/{n}"), size) for n, size in enumerate(sizes)]
