"""Audiences whose columns have names."""

from collections.abc import Callable

from msgspec import Struct

from shared.domain.audience.csv_header import Chosen, Header
from shared.domain.audience.user_ids import Normalize
from shared.domain.errors import Invalid


class NamedColumns(Struct, frozen=True):
    """How a file is cut whose columns have names: which of them holds the ids (others are not needed for that; in a
    table it is the one called `ids`), the
    normal form of ids, and whether one that stands in the file again is a repeat, and no recipient. There must be no
    more than `most` recipients, where it is not 0."""

    choose: Callable[[Header], Chosen]
    normalize: Normalize | None = None
    once: bool = True
    most: int = 0
    ids: str = ""

    def check(self, recipients: int) -> None:
        """Raise `Invalid` where these are too many."""
        check_count(recipients, self.most)


def check_count(recipients: int, most: int) -> None:
    """Raise `Invalid` where there are more than so many; 0: no limit."""
    if 0 < most < recipients:
        reason = f"the audience has more than the {most:,} recipients that maxRecipients allows"
        raise Invalid(reason, field="maxRecipients", value=most)
