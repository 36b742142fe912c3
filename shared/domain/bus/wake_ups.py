"""Wake-ups: the one occurrence of a subscription's queue. It comes due when something is to be delivered.

    resting ──wake──> handed ──take──> busy ──rest──> resting
       │ due: the clock hands it over      │ its worker died: the lease ends, and the clock hands it over again
       └────────────> handed <─────────────┘

`waiting` counts the events that were told to it and not yet looked at. At `full` of them it is due at once, else when
the first has waited for long enough, and never before `not_before` (its receiver's pause). With nothing waiting it lies
`FAR_AHEAD`. `wake` only adds while it is handed or busy: whoever works on it finds, when it is about to rest, that
`waiting` is not what it was before the look, and looks again. So no event is forgotten.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct

FAR_AHEAD = datetime(9000, 1, 1, tzinfo=UTC)
QUEUE_OWNER = "bus"
"""The kind of owner of the occurrences that are wake-ups: `bus/<queue>`."""

_PARTING_DEATHS = 3
_LONGEST_PARTING, _DOUBLINGS = timedelta(minutes=10), 10


class WakeStage(StrEnum):
    """The stage of a wake-up: nobody has it, it is handed to a worker, or a worker is busy with it."""

    RESTING = "resting"
    HANDED = "handed"
    BUSY = "busy"


class WakeUp(Struct, frozen=True, kw_only=True):
    """The fields of a wake-up beside its occurrence, as the document's `of`. `slow`: its receiver takes long or fails,
    so its work goes apart from the others'. `deaths` counts how often in a row nobody came back who worked on it,
    `faults` how often in a row that failed by a fault of ours; `parted` is after how many of the deaths it rested last.
    `sessions` are those in which whoever has it writes, and `left` those of the one before, who has not laid it down:
    they may have locked what is written next. `version` is that of its subscription which it has followed.
    """

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
        """Whether it is to rest before it is handed over again: workers have died of it, or beside it, three times."""
        return self.deaths >= _PARTING_DEATHS and self.parted < self.deaths


class Wake(Struct, frozen=True):
    """News for a queue: so many `events` more wait in it, and the first of them asks to go out at `due`."""

    queue: str
    due: datetime
    events: int


class TakenWakeUp(Struct, frozen=True, kw_only=True):
    """A wake-up in the hands of whoever knows its token, as it was then."""

    id: str
    queue: str
    token: str
    of: WakeUp

    @property
    def claim(self) -> tuple[str, str]:
        """Its id and the token: another one may have had the same wake-up, or has it now."""
        return self.id, self.token


class Rest(Struct, frozen=True, kw_only=True):
    """How a taken wake-up is to rest: `left` events wait, the next look is at `fires_at`, and no event makes it earlier
    than `not_before`."""

    taken: TakenWakeUp
    left: int = 0
    fires_at: datetime = FAR_AHEAD
    not_before: datetime | None = None
    slow: bool = False


def parting_pause(deaths: int, *, noise: float) -> timedelta:
    """How long a wake-up rests before it is handed over again, after so many deaths in a row. `noise`, from 0 to 1, is
    another one for each: a worker that dies of one takes along whatever else it has in hand, and so they part."""
    return min(timedelta(seconds=1 << min(deaths, _DOUBLINGS)), _LONGEST_PARTING) * noise


def merge_wakes(wakes: Iterable[Wake]) -> list[Wake]:
    """One for each queue: the earliest moment, and all events."""
    merged: dict[str, Wake] = {}
    for wake in wakes:
        known = merged.get(wake.queue)
        merged[wake.queue] = wake if known is None else _merge_two(known, wake)
    return list(merged.values())


def _merge_two(one: Wake, other: Wake) -> Wake:
    return Wake(one.queue, min(one.due, other.due), one.events + other.events)


def queue_owner(queue: str) -> str:
    """The owner of a queue's wake-up."""
    return f"{QUEUE_OWNER}/{queue}"


def queue_of_owner(owner: str) -> str:
    """The queue whose wake-up has this owner."""
    return owner.removeprefix(f"{QUEUE_OWNER}/")
