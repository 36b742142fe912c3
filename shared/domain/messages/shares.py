"""Shares: of the jobs of an account whose order is `shares`, the one that has had least for its share comes first."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace


class Share(Struct, frozen=True):
    """The recipients that a job has had, for each of its shares (stride scheduling)."""

    had: float = 0.0
    share: int = 1

    def after(self, size: int) -> "Share":
        """After a batch of so many recipients was given a place."""
        return replace(self, had=self.had + size / self.share)


def join(running: Sequence[Share]) -> float:
    """The amount that a job that begins now counts as having had: the least that any other job has had. So it has
    nothing to catch up."""
    return min((one.had for one in running), default=0.0)
