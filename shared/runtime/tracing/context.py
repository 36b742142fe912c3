"""Which trace a line of work belongs to, as text: in a header `traceparent`, and in documents and tasks.

In documents and tasks it stands with the second at which its span began, since a trace is the parent of what follows
for ten minutes only; what comes later is linked to it. Only what is recorded is carried at all: so no text means that
nothing is recorded, and work that is not recorded costs nothing to store.
"""

import re

from msgspec import Struct

YOUNG_SECONDS = 600
TRACEPARENT = "traceparent"

Attribute = str | int | float | bool

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?", re.ASCII)
_LONGEST = 512
_CARRIED = re.compile(r"(00-[0-9a-f]{32}-[0-9a-f]{16}-01)@([0-9]{1,12})", re.ASCII)
_NOTHING = {"0" * 32, "0" * 16}
_SAMPLED = 1


class TraceParent(Struct, frozen=True):
    """A span of somebody: of a caller, or of a process of ours."""

    trace_id: int
    span_id: int
    is_recorded: bool = True

    @property
    def header(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.is_recorded:02x}"


class Carried(Struct, frozen=True):
    """A recorded span that documents and tasks name, and the second since the epoch at which it began."""

    parent: TraceParent
    began: int

    def __str__(self) -> str:
        return f"{self.parent.header}@{self.began}"

    def is_young(self, now: float) -> bool:
        """Whether it is still the parent of what follows."""
        return now - self.began <= YOUNG_SECONDS


def read_header(text: str) -> TraceParent | None:
    """The parent that a caller's header names, by W3C's Trace Context; `None` for a text that is no such header."""
    found = _HEADER.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or {trace_id, span_id} & _NOTHING:
        return None
    return TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))


def read_carried(text: str) -> Carried | None:
    """The trace that a document or a task names; `None` where it names none that can be read."""
    found = _CARRIED.fullmatch(text)
    parent = None if found is None else read_header(found[1])
    return None if found is None or parent is None else Carried(parent, int(found[2]))


def header_of(text: str) -> str:
    """The header in the text of what is carried."""
    return text.partition("@")[0]
