"""Processes: their life and their work.

    alive ──15 s without a sign──> silent ──60 s──> gone ──1 h──> forgotten
      └──a clean end──> forgotten

A silent process may be frozen, cut off or dead: the others cannot distinguish these.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

SILENT_AFTER = timedelta(seconds=15)
GONE_AFTER = timedelta(seconds=60)
FORGOTTEN_AFTER = timedelta(hours=1)
THINGS_SHOWN = 20
"""Maximum things in hand that a process reports, the oldest first."""


class ProcessState(StrEnum):
    """The age of a process's last sign."""

    ALIVE = "alive"
    SILENT = "silent"
    GONE = "gone"


class ThingInHand(Struct, frozen=True):
    what: str
    id: str
    since: datetime


class RunningProcess(Struct, frozen=True, kw_only=True):
    """A process's own report, at `seen_at` by the database's clock.

    `phase` is the phase of its life, `failing` the names of its failing checks. `settings_digest` is equal for
    processes with the same settings, without ports and secrets. `in_hand` has the oldest of the `in_hand_count` things
    that it works on. `lanes` are counted by their state. A scheduler reports the number of occurrences, the wait of the
    oldest to be claimed, and that of the oldest batch.
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
        silence = now - self.seen_at
        if silence <= SILENT_AFTER:
            return ProcessState.ALIVE
        return ProcessState.SILENT if silence <= GONE_AFTER else ProcessState.GONE
