"""What the machine's callers ask for."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from hypothesis import strategies as st

from carillon.wire.clock import Retry
from shared.clock.rules.calendars import Shift
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.instants import with_anchor
from shared.clock.rules.recurrence import Cron, Every
from shared.clock.rules.schedules import Definition, Misfire, MisfireMode
from tests.models.clock.target import Answer
from tests.models.clock.walks import Fate
from tests.models.clock.world import AT_ONCE, CALENDAR, KEYS, SCHEDULERS

AROUND_ANCHOR = -1
HOURS, DAY = 21_600, 86_400


class Shape(NamedTuple):
    """A definition, wherever it is put in time: `offsets` of a list or from an anchor, or `runs` of a series."""

    offsets: tuple[int, ...]
    every: int
    runs: int
    misfire: Misfire
    retry: Retry
    shift: Shift

    def at(self, now: datetime, payload: str) -> Definition:
        """The definition that a caller makes at that time; the payload tells it from all others."""
        second = now.replace(microsecond=0)
        callback = RabbitCallback(payload=payload, queue="q")
        if self.every == AROUND_ANCHOR:
            bare = Definition(callback=callback, offsets_ms=ms_of(self.offsets), misfire=self.misfire, retry=self.retry)
            return with_anchor(bare, second)
        if not self.every:
            instants = tuple(second + timedelta(seconds=offset) for offset in self.offsets)
            return Definition(callback=callback, instants=instants, misfire=self.misfire, retry=self.retry)
        first = second + timedelta(seconds=self.offsets[0])
        return Definition(
            callback=callback,
            recurrence=Cron("* * * * *") if self.every == 60 else Every(self.every, first),
            exclude=(CALENDAR,) if self.every >= HOURS else (),
            shift=self.shift if self.every >= DAY else Shift.NONE,
            max_occurrences=self.runs,
            misfire=self.misfire,
            retry=self.retry,
        )


class Act(Enum):
    """What may meet with something else."""

    FIRE = "fire"
    CANCEL = "cancel"
    PUT = "put"
    REMOVE = "remove"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    MOVE = "move"
    OFFSETS = "offsets"
    CALENDAR = "calendar"
    FOLLOW = "follow"


def ms_of(seconds: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(each * 1_000 for each in seconds))


_offsets = st.sampled_from([-20, 1, 2, 2, 3, 10, 40])
_misfires = st.sampled_from([Misfire(), Misfire(), Misfire(MisfireMode.SKIP), Misfire(MisfireMode.WITHIN, 20.0)])
_policies = st.builds(
    Retry, attempts=st.integers(1, 3), first_delay_seconds=st.sampled_from([1.0, 20.0]), cap_seconds=st.just(60.0)
)
_troubles = st.tuples(st.integers(0, 7), st.sampled_from([fate for fate in Fate if fate is not Fate.GOES_ON]))

keys = st.sampled_from([KEYS[0], *KEYS])
acts = st.sampled_from(Act)
others = st.lists(acts, min_size=1, max_size=2)
anchor_changes = st.lists(st.sampled_from([Act.MOVE, Act.MOVE, Act.OFFSETS, Act.FOLLOW]), min_size=1, max_size=3)
calendar_changes = st.lists(st.sampled_from([Act.CALENDAR, Act.CALENDAR, Act.FOLLOW]), min_size=1, max_size=2)
wakes = st.sampled_from([True, True, False])
schedulers = st.sampled_from(SCHEDULERS)
paces = st.one_of(st.just(AT_ONCE), st.just(AT_ONCE), _troubles)
answers = st.lists(st.sampled_from([Answer.CONFIRMED, Answer.REFUSED, *Answer]), min_size=1, max_size=3)
offsets = st.lists(_offsets, min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
shapes = st.builds(
    Shape,
    offsets=offsets,
    every=st.sampled_from([0, 0, 7, 60, AROUND_ANCHOR, AROUND_ANCHOR, HOURS, DAY, 2 * DAY]),
    runs=st.integers(1, 3),
    misfire=_misfires,
    retry=_policies,
    shift=st.sampled_from(Shift),
)
around_anchors = shapes.map(lambda shape: shape._replace(every=AROUND_ANCHOR))
series_of_days = st.builds(Shape._replace, shapes, every=st.sampled_from([HOURS, DAY, 2 * DAY]))
moves = st.sampled_from([-15, 0, 1, 2, 12, 40])
excluded_days = st.lists(st.integers(0, 4), max_size=3, unique=True)
zones = st.sampled_from(["UTC", "UTC", "Asia/Tokyo"])
