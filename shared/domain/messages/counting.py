"""Counting the recipients of an audience before anybody writes to them, as far as there is time."""

from msgspec import Struct
from msgspec.structs import replace


class RecipientCount(Struct, frozen=True, kw_only=True):
    """What was found of an audience: so many `recipients` would be called. The others are `malformed` ones, those who
    are `suppressed`, and rows that are `repeated`. `scanned` of `total` was looked at, in bytes of a file or keys of a
    table; `exact` says that this was all. `columns` are its names, once known."""

    recipients: int = 0
    malformed: int = 0
    suppressed: int = 0
    repeated: int = 0
    scanned: int = 0
    total: int = 0
    exact: bool = False
    columns: tuple[str, ...] = ()

    @property
    def planned(self) -> int:
        """How many messages were counted: those who are never called count as messages, too."""
        return self.recipients + self.malformed + self.suppressed

    def with_part(self, *, rows: int, malformed: int, suppressed: int, repeated: int, scanned: int) -> "RecipientCount":
        """This and what was found in the next rows, which end there."""
        return replace(
            self,
            recipients=self.recipients + rows - malformed - suppressed - repeated,
            malformed=self.malformed + malformed,
            suppressed=self.suppressed + suppressed,
            repeated=self.repeated + repeated,
            scanned=scanned,
        )

    def estimate(self, found: int) -> int | None:
        """How many there are in all if `found` are in the part that was scanned, taking the rest to be like it."""
        if self.exact:
            return found
        return round(found * max(self.total, self.scanned) / self.scanned) if self.scanned else None
