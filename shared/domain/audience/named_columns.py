"""Audiences whose columns have names."""

from collections.abc import Callable

from msgspec import Struct

from shared.domain.audience.csv_header import Chosen, Header
from shared.domain.audience.user_ids import Normalize


class NamedColumns(Struct, frozen=True):
    """How a file is cut whose columns have names: which of them holds the ids (others are not needed for that), the
    normal form of ids, and whether one that stands in the file again is a repeat, and no recipient."""

    choose: Callable[[Header], Chosen]
    normalize: Normalize | None = None
    once: bool = True
