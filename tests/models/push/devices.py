"""The push tables of the model, in memory: as much of an audience as pushes to everybody need.

`test_devices.py` holds it to the real push database.
"""

from bisect import insort
from collections.abc import Mapping
from typing import Any, cast

from shared.audience.rules.audiences import KeyRange
from shared.audience.rules.devices import Cut, Devices
from shared.drivers.postgres import Audience

MOST_RECORD_BYTES = 2_000
_ALL = 2**63 - 1


class PoisonedError(Exception):
    """A fault that comes again however often somebody reads."""


class PushTable:
    """One table for all apps, services and zones; a device is its key, and its token says no more.

    The token of a `broken` one is so long that its record is too large. A `poisoned` one cannot be read."""

    connections: Any = None
    scan_rows = 0

    def __init__(self, keys: list[int]) -> None:
        self.keys = sorted(keys)
        self.broken: set[int] = set()
        self.poisoned: set[int] = set()

    def add(self, key: int) -> None:
        """One more device, unless it is there."""
        if key not in self.keys:
            insort(self.keys, key)

    async def highest(self, table: str) -> int:
        return max(self.keys, default=0)

    async def cut(
        self,
        table: str,
        filters: Mapping[str, str],
        *,
        after: int,
        upto: int,
        size: int,
        batches: int,
    ) -> list[Cut]:
        rows = self._between(after, upto)
        pages = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [Cut(page[-1], len(page)) for page in pages[:batches]]

    async def read(self, table: str, filters: Mapping[str, str], keys: KeyRange, *, limit: int = _ALL) -> Devices:
        found = self._between(keys.after, keys.upto)[:limit]
        if poisoned := self.poisoned.intersection(found):
            raise PoisonedError(poisoned)
        return Devices.of((key, f"u{key}", self._token(key), "en") for key in found)

    def _token(self, key: int) -> str:
        return f"{key}{'x' * MOST_RECORD_BYTES if key in self.broken else ''}"

    def _between(self, after: int, upto: int) -> list[int]:
        return [key for key in self.keys if after < key <= upto]


def as_audience(table: PushTable) -> Audience:
    """What does not matter here is not there."""
    return cast("Audience", table)
