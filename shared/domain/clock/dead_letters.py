"""Lists of dead letters: where one stands in them, the newest first, and what they died of."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from shared.domain.clock.outcomes import DeadLetter

LOOKED_AT = 1_000
"""How many letters are grouped by their errors: the last ones."""


class LetterPlace(Struct, frozen=True, array_like=True):
    """The place of a letter in the list."""

    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


class ErrorCount(Struct, frozen=True, kw_only=True):
    """How many letters died of this error, and when the last of them did."""

    error: str
    count: int
    last_died_at: datetime


def place_of(letter: DeadLetter) -> LetterPlace:
    """The place of this letter in the list."""
    return LetterPlace(letter.died_at, letter.id)
