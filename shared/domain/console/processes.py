"""Processes: what runs now, what it does, and since when nothing is heard of it.

    alive ──15 s without a sign──> silent ──60 s──> gone ──1 h──> forgotten
      └──a clean end──> forgotten

A process that is silent may be frozen, cut off or dead: nobody but itself could say which.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

SILENT_AFTER = timedelta(seconds=15)
GONE_AFTER = timedelta(seconds=60)
FORGOTTEN_AFTER = timedelta(hours=1)
THINGS_SHOWN = 20
"""The most things in hand that a process tells of, the oldest first."""


class ProcessState(StrEnum):
    """Whether a process is heard of."""

    ALIVE = "alive"
    SILENT = "silent"
    GONE = "gone"


class ThingInHand(Struct, frozen=True):
    """Something that a process works on: the queue it came from, the id of what it is about, and since when."""

    what: str
    id: str
    since: datetime


class RunningProcess(Struct, frozen=True, kw_only=True):
    """A process as it tells of itself, at `seen_at` by the database's clock.

    `phase` is where it stands in its life, `failing` the names of its checks that fail. `settings_digest` is the same
    for processes with the same settings, their ports and secrets aside. `in_hand` shows the oldest of the things that
    it works on, of which there are `in_hand_count`. `lanes` are counted by their state. A scheduler tells how many
    occurrences there are, for how long the oldest has waited to be claimed, and for how long the oldest batch waits.
    """

    id: str
    roles: tuple[str, ...]
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    phase: str
    settings_digest: str
    failing: tuple[str, ...] = ()
    in_hand: tuple[ThingInHand, ...] = ()
    in_hand_count: int = 0
    lanes: dict[str, int] = {}
    loop_lag_seconds: float = 0.0
    memory_bytes: int = 0
    clock_skew_seconds: float = 0.0
    feedback_lag_records: int = 0
    oldest_visible_seconds: float = 0.0
    oldest_batch_seconds: float = 0.0
    occurrences_pending: int = 0

    def state_at(self, now: datetime) -> ProcessState:
        """Whether it is heard of at that moment."""
        silence = now - self.seen_at
        if silence <= SILENT_AFTER:
            return ProcessState.ALIVE
        return ProcessState.SILENT if silence <= GONE_AFTER else ProcessState.GONE
