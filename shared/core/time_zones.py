"""Time zones by the rules of the package tzdata alone.

`ZoneInfo(name)` would read the machine's files first (PEP 615), whose rules are often older, and two machines could
disagree about an instant.
"""

from functools import cache
from importlib.resources import files
from io import BytesIO
from zoneinfo import ZoneInfo

import tzdata

RELEASE: str = tzdata.IANA_VERSION
"""The release of the IANA database in use, such as 2026f."""

_PACKAGE = files("tzdata")


@cache
def zone_names() -> frozenset[str]:
    return frozenset(_PACKAGE.joinpath("zones").read_text().split())


@cache
def time_zone(name: str) -> ZoneInfo:
    """The zone of a name in `zone_names`; any other never becomes a path."""
    if name not in zone_names():
        raise KeyError(name)
    return ZoneInfo.from_file(BytesIO(read_rules(name)), key=name)


def read_rules(name: str) -> bytes:
    """The file of a zone in the format of RFC 9636; many names share one content."""
    return _PACKAGE.joinpath("zoneinfo", *name.split("/")).read_bytes()
