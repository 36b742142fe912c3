"""Figures of what a move of jobs would do."""

from typing import Literal

from msgspec import Struct

Move = Literal["pause", "resume", "stop"]

DRY_RUN = {"dryRun": "true"}


class MoveFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many jobs would be moved. After a stop, `devices_not_reached` devices would get nothing, and `unplanned` jobs
    are not among these; `None` for other moves, and where nobody has counted."""

    jobs: int
    devices_not_reached: int | None = None
    unplanned: int | None = None
