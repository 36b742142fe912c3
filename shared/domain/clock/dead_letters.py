"""Lists of dead letters: their order, the newest first, and their errors."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from shared.domain.clock.outcomes import DeadLetter

LOOKED_AT = 1_000
"""The number of letters that are grouped by error: the last ones."""


class LetterPlace(Struct, frozen=True, array_like=True):
    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


class ErrorCount(Struct, frozen=True, kw_only=True):
    """The letters with this error, and the time of the last."""

    error: str
    count: int
    last_died_at: datetime


def place_of(letter: DeadLetter) -> LetterPlace:
    return LetterPlace(letter.died_at, letter.id)
