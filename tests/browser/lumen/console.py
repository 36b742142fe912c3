"""What Lumen's deployment has done in the last hour, and the processes that did it."""

from datetime import datetime, timedelta
from math import sin

from shared.domain.console.processes import RunningProcess
from shared.store import Store

_PROCESSES = {"api": 3, "fanout": 2, "feedback": 1, "scheduler": 2, "worker": 6}
_PUSHES = ((0, 560_000), (23, 410_000), (46, 770_000))
"""The large ones: how many minutes ago each was at its highest, and how high that was."""
_LATE = {"5000": 0.5, "10000": 0.28, "25000": 0.15, "50000": 0.06, "100000": 0.01}
"""The share of what fired, by the ends of the buckets in microseconds."""


async def add_hour(store: Store, now: datetime) -> None:
    """An hour of counts, minute by minute."""
    for ago in range(-1, 60):  # the minute to come too: the pictures may be taken in it
        sent = int(90_000 + 40_000 * sin(ago / 3) + sum(_bump(ago, *push) for push in _PUSHES))
        fired = int(5_200 + 1_400 * sin(ago / 7) + (2_600 if ago % 15 == 0 else 0))
        late = {end: int(fired * share) for end, share in _LATE.items()}
        counts: dict[str, int | dict[str, int]] = {
            "recipients": {"sent": sent, "skipped": sent // 250, "failed": 2 if ago % 9 == 0 else 0},
            "fired": {"http/fired": fired, "rabbitmq/fired": fired // 3},
            "lateness": late,
            "requests": 4_000,
        }
        await store.minutes.add(now - timedelta(minutes=ago), counts)


def _bump(ago: int, middle: int, height: int) -> float:
    return height * max(0.0, 1 - ((ago - middle) / 6) ** 2)


async def tell_of_processes(store: Store, now: datetime) -> None:
    """Each tells of itself, as it does every few seconds."""
    for role, count in _PROCESSES.items():
        for number in range(count):
            await store.processes.tell(
                RunningProcess(
                    id=f"{role}-{number}", roles=(role,), host=f"{role}-{number}", version="0.3.0", phase="running",
                    started_at=now - timedelta(days=3), seen_at=now, settings_digest="1", memory_bytes=180_000_000,
                )
            )  # fmt: skip
