"""The versions of Carillon that may work on one database.

Processes of two neighbouring releases run side by side, in any mixture. So a release ignores unknown fields, and a
larger change comes in two steps: one release reads it, the next one writes it. `VERSION` counts the releases that
changed the stored documents. `OLDEST` is the oldest that still reads everything that this one writes.
"""

from msgspec import Struct

from shared.domain.errors import CarillonError

VERSION = 2  # 0.1.0 wrote 1
OLDEST = 1


class Stamp(Struct, frozen=True):
    """The note of `carillon init` in the database: the newest version, and the oldest that may work there."""

    version: int
    oldest: int


class TooOld(CarillonError):
    """This process is of a release that must not work on this database any more."""


def check_stamp(stamp: Stamp) -> None:
    """Raise `TooOld` if a later release has excluded this one."""
    if stamp.oldest > VERSION:
        raise TooOld(
            f"the database was set up by a release that works with version {stamp.oldest} of its documents or later, "
            f"and this process knows version {VERSION}: run a newer release"
        )
