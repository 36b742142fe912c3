"""Processes, their queues of tasks, and their counts.

    alive ──15 s without a sign──> silent ──60 s──> gone ──1 h──> forgotten
      └──a clean end──> forgotten

A silent process may be frozen, cut off or dead: the others cannot distinguish these.

The counts of all processes together, minute by minute, make charts that need only the database. A process adds its
counts every ten seconds, so a killed one loses up to ten seconds of them. A reader that needs exact counts reads the
jobs, the schedules' outcomes and the dead letters.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of tasks: waiting messages, messages in consumers' hands, and the messages that come and go each second,
    if known."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


KEPT = timedelta(days=8)
MOST = 8 * 24 * 60
"""Maximum stored minutes."""


class MinuteCounts(Struct, frozen=True, kw_only=True):
    """The counts of a minute. `id` is its beginning, by `minute_id`.

    `recipients` of push jobs are counted by outcome, `messages` by the provider's answer (`accepted`), `deliveries`
    of the bus by the receiver's (`success`), attempts of schedules (`fired`) by the kind of callback and its
    outcome, as in `http/fired`. `lateness` counts by the end of the bucket in microseconds (`inf` for the last),
    each bucket alone.
    """

    id: str
    recipients: dict[str, int] = {}
    messages: dict[str, int] = {}
    deliveries: dict[str, int] = {}
    fired: dict[str, int] = {}
    lateness: dict[str, int] = {}
    retries: int = 0
    dead_letters: int = 0
    requests: int = 0
    server_errors: int = 0
    feedback: int = 0

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.id).replace(tzinfo=UTC)


Counts = Mapping[str, int | Mapping[str, int]]
"""Counts by the fields of `MinuteCounts`."""


def minute_id(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def subtract(counts: Counts, earlier: Counts) -> dict[str, int | dict[str, int]]:
    rest: dict[str, int | dict[str, int]] = {}
    for field, value in counts.items():
        before = earlier.get(field)
        if isinstance(value, int):
            grown: int | dict[str, int] = value - (before if isinstance(before, int) else 0)
        else:
            old = before if isinstance(before, Mapping) else {}
            grown = {key: count - old.get(key, 0) for key, count in value.items() if count != old.get(key, 0)}
        if grown:
            rest[field] = grown
    return rest
