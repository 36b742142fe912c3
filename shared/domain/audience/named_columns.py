"""Audiences with named columns."""

from collections.abc import Callable

from msgspec import Struct

from shared.domain.audience.csv_header import Chosen, Header
from shared.domain.audience.user_ids import Normalize
from shared.domain.errors import Invalid


class NamedColumns(Struct, frozen=True):
    """The cuts of a file with named columns: the choice of the column of ids (called `ids` in a table; cuts need no
    others), the normal form of ids, and whether a repeated id is no recipient (`once`). There must be at most `most`
    recipients, unless it is 0."""

    choose: Callable[[Header], Chosen]
    normalize: Normalize | None = None
    once: bool = True
    most: int = 0
    ids: str = ""

    def check(self, recipients: int) -> None:
        check_count(recipients, self.most)


def check_count(recipients: int, most: int) -> None:
    """Raise `Invalid` if there are more than `most`; 0: no limit."""
    if 0 < most < recipients:
        reason = f"the audience has more than the {most:,} recipients that maxRecipients allows"
        raise Invalid(reason, field="maxRecipients", value=most)
