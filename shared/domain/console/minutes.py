"""Minutes: the counts of all processes together, minute by minute, for charts that need only the database.

A process adds its counts every ten seconds, so a killed one loses up to ten seconds of them. A reader that needs exact
counts reads the jobs, the schedules' outcomes and the dead letters.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

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
