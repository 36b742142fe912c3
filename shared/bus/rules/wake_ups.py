"""Wake-ups: the one occurrence of a subscription's queue. It becomes due when there is something to deliver.

    resting ──wake──> handed ──take──> busy ──rest──> resting
       │ due: the clock hands it over      │ its worker died: the lease ends, and the clock hands it over again
       └────────────> handed <─────────────┘

`waiting` counts the events that were added and not yet looked at. At `full` of them it is due at once, otherwise after
the first has waited for long enough, and never before `not_before` (its receiver's pause). Without waiting events it
lies `FAR_AHEAD`. While it is handed or busy, `wake` only adds: before its worker rests it, the worker compares
`waiting` with its value before the look, and looks again if it has changed. So no event is forgotten.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from shared.core.tasks import Task

FAR_AHEAD = datetime(9000, 1, 1, tzinfo=UTC)
QUEUE_OWNER = "bus"
"""The kind of owner of wake-ups: `bus/<queue>`."""
_PARTING_DEATHS = 3
_LONGEST_PARTING, _DOUBLINGS = timedelta(minutes=10), 10


class WakeStage(StrEnum):
    """The stage of a wake-up: free, handed to a worker, or taken by one."""

    RESTING = "resting"
    HANDED = "handed"
    BUSY = "busy"


class WakeUp(Struct, frozen=True, kw_only=True):
    """The fields of a wake-up beside its occurrence, as the document's `of`. `slow`: its receiver is slow or fails, so
    its work goes apart. `deaths` counts the workers in a row that never came back, `faults` Carillon's faults in a row;
    `parted` is the number of deaths at its last pause. `sessions` are those of its present worker, and `left` those of
    the previous one, which has not laid it down and may hold locks. `version` is that of its subscription at the last
    update."""

    stage: WakeStage = WakeStage.RESTING
    waiting: int = 0
    full: int
    not_before: datetime | None = None
    slow: bool = False
    deaths: int = 0
    parted: int = 0
    faults: int = 0
    sessions: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    version: int = 0

    @property
    def has_to_part(self) -> bool:
        """Whether it must rest before the next handover, because workers have died with it three times."""
        return self.deaths >= _PARTING_DEATHS and self.parted < self.deaths


class Wake(Struct, frozen=True):
    """News for a queue: `events` more wait in it, and the first of them is due at `due`."""

    queue: str
    due: datetime
    events: int


class TakenWakeUp(Struct, frozen=True, kw_only=True):
    id: str
    queue: str
    token: str
    of: WakeUp

    @property
    def claim(self) -> tuple[str, str]:
        """The id and the token: another worker may have or have had the same wake-up."""
        return self.id, self.token


class Rest(Struct, frozen=True, kw_only=True):
    """The rest of a taken wake-up: `left` events wait, the next look is at `fires_at`, and no event makes it earlier
    than `not_before`."""

    taken: TakenWakeUp
    left: int = 0
    fires_at: datetime = FAR_AHEAD
    not_before: datetime | None = None
    slow: bool = False


def parting_pause(deaths: int, *, noise: float) -> timedelta:
    """The rest of a wake-up after several deaths in a row. `noise`, from 0 to 1, differs for each: a worker that dies
    of one takes down all others in hand, so they must part."""
    return min(timedelta(seconds=1 << min(deaths, _DOUBLINGS)), _LONGEST_PARTING) * noise


def merge_wakes(wakes: Iterable[Wake]) -> list[Wake]:
    """One for each queue: the earliest moment, and all events."""
    merged: dict[str, Wake] = {}
    for wake in wakes:
        known = merged.get(wake.queue)
        due, events = (wake.due, 0) if known is None else (known.due, known.events)
        merged[wake.queue] = Wake(wake.queue, min(due, wake.due), events + wake.events)
    return list(merged.values())


def queue_owner(queue: str) -> str:
    return f"{QUEUE_OWNER}/{queue}"


def queue_of_owner(owner: str) -> str:
    return owner.removeprefix(f"{QUEUE_OWNER}/")


DELIVER_QUEUE = "bus.deliver"
SLOW_QUEUE = "bus.slow"
REPLAY_QUEUE = "bus.replay"


class DeliverQueue(Task, frozen=True, tag="deliver"):
    """Look at this wake-up, if it still has this token. Its occurrence counts the tries."""

    queue: ClassVar[str] = DELIVER_QUEUE
    wake_up_id: str
    token: str

    @property
    def about(self) -> str:
        return self.wake_up_id


class DeliverSlowly(DeliverQueue, frozen=True, tag="deliver-slowly"):
    """The same for a slow or failing receiver, whose work waits in a separate queue."""

    queue: ClassVar[str] = SLOW_QUEUE


class RunReplay(Task, frozen=True, tag="replay"):
    """Continue a replay from its present state, which its document describes."""

    queue: ClassVar[str] = REPLAY_QUEUE
    replay_id: str
