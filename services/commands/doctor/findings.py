"""Findings of the doctor: one sentence about one thing, how bad it is, and what to type."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # it works, and somebody should look at it
    FAULT = "fault"  # something does not work, or promises are not kept


class Opinion(Struct, frozen=True):
    """An answer to one question. `remedy` is a command to type; what stands in <angle brackets> is the reader's."""

    level: Level
    sentence: str
    remedy: str = ""


class Finding(Struct, frozen=True):
    """An opinion with the server that it is of and the name of the question."""

    level: Level
    of: str
    check: str
    sentence: str
    remedy: str


Opinions = Sequence[Opinion]


def well(sentence: str) -> Opinions:
    """All is as it should be."""
    return (Opinion(Level.OK, sentence),)


def warn(sentence: str, remedy: str = "") -> Opinions:
    """It works, and somebody should look at it."""
    return (Opinion(Level.WARNING, sentence, remedy),)


def fault(sentence: str, remedy: str = "") -> Opinions:
    """It does not work, or a promise is not kept."""
    return (Opinion(Level.FAULT, sentence, remedy),)


def name_some(names: Sequence[str], most: int = 5) -> str:
    """The names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
