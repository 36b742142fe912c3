"""Answers to the doctor's questions, and commands to type."""

import shlex
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

INIT = "carillon init"


class Level(StrEnum):
    """How bad an answer is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Finding(Struct, frozen=True):
    """An answer to the question `check` of the subject `of`. `remedy` is a command to type; the reader fills in its
    <angle brackets>."""

    level: Level
    of: str
    check: str
    sentence: str
    remedy: str


Answer = Sequence[Finding]
"""The findings of one question, which it makes by `well`, `warn` and `fault`."""


def well(sentence: str) -> Answer:
    """All is as it should be."""
    return (Finding(Level.OK, "", "", sentence, ""),)


def warn(sentence: str, remedy: str = "") -> Answer:
    """It works, and an operator should look at it."""
    return (Finding(Level.WARNING, "", "", sentence, remedy),)


def fault(sentence: str, remedy: str = "") -> Answer:
    """It does not work, or a promise is not kept."""
    return (Finding(Level.FAULT, "", "", sentence, remedy),)


def name_some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def command(*words: str) -> str:
    """A command with every word quoted for a POSIX shell."""
    return shlex.join(words)


def export(setting: str, value: str) -> str:
    """The command that gives a setting, such as `stream.url`, another value."""
    return f"export CARILLON_{setting.replace('.', '_').upper()}={shlex.quote(value)}"
