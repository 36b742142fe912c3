"""What happened, for people to read."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct

from shared.jobs.rules.batches import Batch, BatchPart
from shared.jobs.rules.jobs import Job, Standing

_SHOWN = 48


class Line(Struct, frozen=True):
    """One choice."""

    at: float
    who: str
    what: str
    about: tuple[object, ...]
    fate: str
    result: Any

    def __str__(self) -> str:
        about = ", ".join(filter(None, map(shown, self.about)))
        said = f" -> {shown(self.result)}" if shown(self.result) else ""
        fate = f"  [{self.fate}]" if self.fate else ""
        return f"{self.at:9.2f}  {self.who:<12} {self.what}({about}){said}{fate}"


class Trace:
    """All of it. The values are kept, and become text only where somebody reads it."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    def add(
        self, at: float, who: str, what: str, about: tuple[object, ...] = (), fate: str = "", result: Any = None
    ) -> None:
        self._lines.append(Line(at, who, what, about, fate, result))

    def __iter__(self) -> Iterator[str]:
        return map(str, self._lines)


def shown(value: object) -> str:
    """A value in few words."""
    match value:
        case Batch():
            owner = f" of {value.owner}" if value.owner else ""
            return f"{value.id} {value.status} turn {value.turn} take {value.attempts} parts {value.parts}{owner}"
        case BatchPart():
            return f"part {value.number}"
        case Job():
            return f"job {value.id} {value.status}"
        case bytes():
            return value.decode()[:100]
        case None | ():
            return ""
        case list() | tuple():
            return f"[{'; '.join(map(shown, value))}]"
        case set() | frozenset():
            return f"[{'; '.join(sorted(map(shown, value)))}]"
        case StrEnum():
            return value.value
        case Standing():
            return value.status.value
        case _:
            return str(value)[:_SHOWN]
