"""Shares: an account with the order `shares` sends the job with the smallest used share first."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace


class Share(Struct, frozen=True):
    """The recipients that a job has had, for each of its shares (stride scheduling)."""

    had: float = 0.0
    share: int = 1

    def after(self, size: int) -> "Share":
        return replace(self, had=self.had + size / self.share)


def join(running: Sequence[Share]) -> float:
    """The used share of a job that begins now: the smallest of the others, so that it has nothing to catch up."""
    return min((one.had for one in running), default=0.0)
