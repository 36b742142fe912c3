"""What the machine's callers ask for."""

from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from hypothesis import strategies as st

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.recurrence import Cron, Every
from shared.clock.rules.schedules import Definition, Misfire, MisfireMode
from tests.models.clock.target import Answer
from tests.models.clock.walks import Fate
from tests.models.clock.world import AT_ONCE, KEYS, SCHEDULERS


class Shape(NamedTuple):
    """A definition, wherever it is put in time: `offsets` of a list, or `runs` of a series."""

    offsets: tuple[int, ...]
    every: int
    runs: int
    misfire: Misfire
    retry: Retry

    def at(self, now: datetime, payload: str) -> Definition:
        """The definition that a caller makes at that time; the payload tells it from all others."""
        second = now.replace(microsecond=0)
        callback = RabbitCallback(payload=payload, queue="q")
        if not self.every:
            instants = tuple(second + timedelta(seconds=offset) for offset in self.offsets)
            return Definition(callback=callback, instants=instants, misfire=self.misfire, retry=self.retry)
        first = second + timedelta(seconds=self.offsets[0])
        return Definition(
            callback=callback,
            recurrence=Cron("* * * * *") if self.every == 60 else Every(self.every, first),
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


_offsets = st.sampled_from([-20, 1, 2, 2, 3, 10, 40])
_misfires = st.sampled_from([Misfire(), Misfire(), Misfire(MisfireMode.SKIP), Misfire(MisfireMode.WITHIN, 20.0)])
_policies = st.builds(
    Retry, attempts=st.integers(1, 3), first_delay_seconds=st.sampled_from([1.0, 20.0]), cap_seconds=st.just(60.0)
)
_troubles = st.tuples(st.integers(0, 7), st.sampled_from([fate for fate in Fate if fate is not Fate.GOES_ON]))

keys = st.sampled_from([KEYS[0], *KEYS])
acts = st.sampled_from(Act)
others = st.lists(acts, min_size=1, max_size=2)
wakes = st.sampled_from([True, True, False])
schedulers = st.sampled_from(SCHEDULERS)
paces = st.one_of(st.just(AT_ONCE), st.just(AT_ONCE), _troubles)
answers = st.lists(st.sampled_from([Answer.CONFIRMED, Answer.REFUSED, *Answer]), min_size=1, max_size=3)
shapes = st.builds(
    Shape,
    offsets=st.lists(_offsets, min_size=1, max_size=3, unique=True).map(sorted).map(tuple),
    every=st.sampled_from([0, 0, 7, 60]),
    runs=st.integers(1, 3),
    misfire=_misfires,
    retry=_policies,
)
