"""Verdicts on the things of a source, by the thing here and the note of its import. Pure.

here       noted      then
nothing    nothing    it is imported
nothing    a note     it was deleted here: it does not come back
the same   any        nothing to do
another    nothing    another thing has its name or id: skipped
another    as here    it was not changed here: it is updated
another    as there   it was changed here only: nothing to do
another    another    it was changed here and there: it stays as here
"""

import hashlib
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

STARTS_HERE = "starts here"
"""The note of a job that was imported to start here: from then on it belongs to Carillon."""


class Fate(StrEnum):
    """The fate of a thing."""

    BROUGHT = "brought"
    UPDATED = "updated"
    AS_BEFORE = "as before"
    LEFT = "left"
    SKIPPED = "skipped"


class ImportVerdict(Struct, frozen=True):
    """The fate of a thing, with a reason if people should know it or have to act."""

    fate: Fate
    reason: str = ""


_TWICE = "unless they are stopped there before their time, both systems send them"

BROUGHT = ImportVerdict(Fate.BROUGHT)
BROUGHT_TO_START = ImportVerdict(Fate.BROUGHT, f"start here now; {_TWICE}")
STARTS_TWICE = ImportVerdict(Fate.LEFT, f"were brought to start here and are not stopped there; {_TWICE}")
UPDATED = ImportVerdict(Fate.UPDATED)
AS_BEFORE = ImportVerdict(Fate.AS_BEFORE)
DELETED_HERE = ImportVerdict(Fate.LEFT, "was deleted here since it was brought: it does not come back")
CHANGED_BOTH = ImportVerdict(Fate.LEFT, "was changed here and there since it was brought: what is here stays")
CHANGED_MEANWHILE = ImportVerdict(Fate.LEFT, "was changed here during the import: import again")
NOT_OURS = ImportVerdict(Fate.SKIPPED, "another one of this name or id is here already, and no import brought it")


def digest(value: object, *, without: tuple[str, ...] = ()) -> str:
    """The digest of a thing, which differs for a later version. Empty fields do not count, so a new field of a later
    release changes nothing."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    present = {name: field for name, field in fields.items() if field and name not in without}
    return hashlib.sha256(msgspec.json.encode(present, order="deterministic")).hexdigest()


def verdict(there: str, here: str | None, noted: str | None, *, behind: bool = False) -> ImportVerdict:
    """Decide by the digests of the thing at the source, here, and as imported. `behind`: it has the digest of the
    source and still lacks something."""
    if here is None:
        return BROUGHT if noted is None else DELETED_HERE
    if here == there:
        return UPDATED if behind else AS_BEFORE
    if noted is None:
        return NOT_OURS
    if here == noted:
        return UPDATED
    return AS_BEFORE if there == noted else CHANGED_BOTH
