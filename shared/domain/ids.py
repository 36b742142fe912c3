"""Ids: callers' UUIDs, and Carillon's own, which sort by their time."""

import re
import uuid

from shared.domain.errors import Invalid

UUID_FORMS = re.compile(
    r"(?:urn:uuid:)?(?P<canonical>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<plain>[0-9a-f]{32})"
    r"|\{(?P<braced>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\}",
    re.IGNORECASE | re.ASCII,
)


def time_ordered_id(now: int, noise: int) -> str:
    """A UUID (version 7) that sorts by its time, to a quarter of a microsecond: `now` in ns, `noise` 62 random bits."""
    milliseconds, rest = divmod(now, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    bits = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | noise & (1 << 62) - 1
    return str(uuid.UUID(int=bits))


def read_uuid(text: str, *, field: str) -> str:
    """The canonical form of a UUID, also from 32 hex digits, braces or a URN."""
    match = UUID_FORMS.fullmatch(text)
    if match is None:
        raise Invalid(f"{field} must be a UUID", field=field, value=text)
    return str(uuid.UUID(hex=next(filter(None, match.groups()))))
