"""The ledger: what callers were promised, what came out, and whether the one agrees with the other.

A schedule's document decides what is promised: see `Life`. An anchor or a calendar counts as it was when the process
that fires has read it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.clock.rules.calendars import Calendar, Days
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.instants import offset_due, spread
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind
from shared.clock.rules.recurrence import next_after
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState
from tests.models.clock.lives import Life
from tests.models.clock.target import Answer, Sent
from tests.models.clock.walks import Walk

OWNER = "schedule/ns/"
MARGIN = timedelta(seconds=12)
"""A walk that takes less keeps what it has claimed."""
_MILLISECOND = timedelta(milliseconds=1)


class Firing(Walk):
    """A walk that fires; `stale` are the messages whose entries it had lost when it began to settle."""

    fires: Sequence[Occurrence] = ()
    stale: frozenset[str] | None = None


@dataclass
class Attempt:
    """A message at the target. `raws` are the raw instants of a series with calendars."""

    place: int
    walk: Firing
    at: datetime
    sent: Sent
    raws: frozenset[datetime]


class Ledger:
    """All of it. `broken` is what does not agree. `moment` tells the time of a place."""

    def __init__(self, keys: Iterable[str], moment: Callable[[int], datetime]) -> None:
        self.broken: list[str] = []
        self.lives: dict[str, list[Life]] = {key: [] for key in keys}
        self.documents: dict[str, list[tuple[int, Schedule | None]]] = {key: [(0, None)] for key in keys}
        self.calendars: list[tuple[int, Days]] = [(0, Days([]))]
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
        self.begun: dict[str, list[Walk]] = defaultdict(list)
        self.cancelling: dict[Walk, tuple[Life, str, int]] = {}
        self._moment = moment
        self._taken_from_holders: list[int] = []

    def document(self, key: str, *, at: int | None = None) -> Schedule | None:
        """What the document was after that step; what it is now."""
        return next(found for place, found in reversed(self.documents[key]) if at is None or place <= at)

    def days(self, *, at: int | None = None) -> Days:
        """The days of the calendar after that step, or now."""
        return next(found for place, found in reversed(self.calendars) if at is None or place <= at)

    def life(self, key: str) -> Life | None:
        """The life under a key now."""
        last = self.lives[key][-1] if self.lives[key] else None
        return last if last is not None and last.ended is None else None

    def find_life(self, key: str, id: str, due: datetime) -> Life | None:
        """The life that the message belongs to. A dead letter keeps its id, and is tried again for the life of then."""
        lives = self.lives[key]
        asked = [life for life in lives if id in life.asked]
        return asked[-1] if asked else next((life for life in lives if life.knows(id, due)), None)

    def see(self, place: int, schedules: dict[str, Schedule]) -> None:
        """The documents after a step."""
        for key in self.lives:
            before, after = self.document(key), schedules.get(key)
            if before == after:
                continue
            self.documents[key].append((place, after))
            life = self.life(key)
            if life is not None and after is not None and after.generation == life.schedule.generation:
                life.amend(place, after)
                continue
            if life is not None:
                life.ended = place
            if after is not None:
                self.lives[key].append(Life(after, place))

    def see_calendar(self, place: int, calendar: Calendar) -> None:
        self.calendars.append((place, Days([calendar])))

    def takes_from_holders(self, place: int) -> None:
        """This step may have taken an occurrence from the process that holds it."""
        self._taken_from_holders.append(place)

    def asks(self, place: int, occurrences: Sequence[Occurrence]) -> None:
        """A caller has these fired by hand, or tried again."""
        for each in occurrences:
            for life in self.lives[each.owner.removeprefix(OWNER)]:
                if each.generation == life.schedule.generation:
                    life.asks(place, each)

    def takes_back(self, place: int, walk: Walk, id: str) -> None:
        """A caller is about to cancel the instant with this id."""
        for life in (life for lives in self.lives.values() for life in lives):
            if id in life.dues or id in life.offsets:
                life.taken_back.add(id)
                self.cancelling[walk] = (life, id, place)

    def concluded(self, walk: Walk) -> None:
        """What a caller has heard."""
        if walk in self.cancelling and walk.result is True and walk.ended is not None:
            life, id, place = self.cancelling.pop(walk)
            if life.offsets.get(id, (0, 0))[0] < place:
                life.cancelled[id] = walk.ended

    def begins(self, walk: Walk, suspect: Occurrence) -> None:
        """A walk is about to attempt a suspect."""
        self.begun[suspect.message_id].append(walk)

    def unended(self, message: str) -> int:
        """How many attempts of a suspect have begun and met with something."""
        return sum(not walk.smooth for walk in self.begun[message])

    def hear(self, place: int, walk: Firing, now: datetime, sent: Sent) -> None:
        """A message has reached the target."""
        attempt = Attempt(place, walk, now, sent, self._raws(walk, sent))
        life = self.find_life(sent.key, sent.id, sent.due)
        if life is None:
            self._complain(attempt, "has an id that belongs to no instant of its key")
        else:
            self._check(attempt, life)
        self.attempts[sent.id].append(attempt)

    def _raws(self, walk: Firing, sent: Sent) -> frozenset[datetime]:
        document = self._read(walk, sent)
        fired = next(each for each in walk.fires if each.message_id == sent.id and each.attempts + 1 == sent.attempt)
        if document is None or fired.kind is not OccurrenceKind.SERIES or not document.definition.exclude:
            return frozenset()
        return frozenset(fired.raws or (fired.due - spread(document.definition, sent.key),))

    def _read(self, walk: Firing, sent: Sent) -> Schedule | None:
        """The document as the walk has read it."""
        looked = walk.at("schedules.many")
        assert looked is not None
        return self.document(sent.key, at=looked)

    def _check(self, attempt: Attempt, life: Life) -> None:
        sent, read = attempt.sent, self._read(attempt.walk, attempt.sent)
        is_its_own = read is not None and read.generation == life.schedule.generation
        definition = read.definition if read is not None and is_its_own else life.definition
        callback = definition.callback
        assert isinstance(callback, RabbitCallback)
        if sent.body != callback.payload:
            self._complain(attempt, "has another content's payload")
        if sent.due > attempt.at:
            self._complain(attempt, "is early")
        most = max(each.retry.attempts for each in life.contents)
        if not 1 <= sent.attempt <= most:
            self._complain(attempt, f"is attempt {sent.attempt} of {most}")
        if sent.id not in life.asked:
            self._check_instant(attempt, life, definition)
        self._check_wanted(attempt, life)
        self._check_repeat(attempt, life)

    def _check_instant(self, attempt: Attempt, life: Life, definition: Definition) -> None:
        """By the anchor or the calendars that were there when it was looked up."""
        sent = attempt.sent
        if sent.id in life.offsets:
            _, offset = life.offsets[sent.id]
            if offset_due(definition, sent.key, offset) != sent.due:
                self._complain(attempt, "is not where its anchor puts it")
        elif attempt.raws:
            looked = attempt.walk.at("calendars.many") or attempt.walk.at("schedules.many")
            assert definition.recurrence is not None
            if self.days(at=looked).find(sent.due):
                self._complain(attempt, "is on an excluded day")
            for raw in attempt.raws:
                if next_after(definition.recurrence, raw - _MILLISECOND) != raw:
                    self._complain(attempt, f"is of {raw}, which is no instant of its recurrence")
        elif sent.id not in life.promised and not definition.exclude:
            self._complain(attempt, "was never asked for")

    def _check_wanted(self, attempt: Attempt, life: Life) -> None:
        """By what was true when it was looked up for the last time."""
        checked = attempt.walk.at("occurrences.ours")
        assert checked is not None
        id, document = attempt.sent.id, self._read(attempt.walk, attempt.sent)
        if document is None or document.generation != life.schedule.generation:
            self._complain(attempt, "belongs to what was removed or replaced")
        elif document.state is ScheduleState.PAUSED and id not in life.asked:
            self._complain(attempt, "belongs to a paused schedule")
        taken_back = life.cancelled.get(id)
        if taken_back is not None and taken_back < checked and life.asked_at(id) < taken_back:
            self._complain(attempt, "was cancelled")

    def _check_repeat(self, attempt: Attempt, life: Life) -> None:
        checked = attempt.walk.at("occurrences.ours")
        assert checked is not None
        for earlier in self.attempts[attempt.sent.id]:
            asked_since = life.asked_at(attempt.sent.id) > earlier.place
            if earlier.sent.answer is Answer.CONFIRMED and self._is_settled(earlier, checked) and not asked_since:
                self._complain(attempt, f"is a repeat of what was dealt with at {earlier.place}")
        for earlier in self.of_series(life):
            is_same = earlier.raws & attempt.raws and earlier.sent.due != attempt.sent.due
            if is_same and earlier.sent.answer.told and self._is_settled(earlier, checked):
                self._complain(attempt, f"is of a raw instant that was dealt with at {earlier.place}")

    def of_series(self, life: Life) -> Iterator[Attempt]:
        """The attempts of a series with calendars."""
        for id, attempts in self.attempts.items():
            if attempts and life.knows(id, attempts[0].sent.due):
                yield from (each for each in attempts if each.raws)

    def _is_settled(self, attempt: Attempt, before: int) -> bool:
        """Whether its walk came to a good end before that place, in one go or while it held all that it fired."""
        walk = attempt.walk
        if walk.ended is None or walk.ended >= before or walk.died or walk.error is not None:
            return False
        in_time = self._moment(walk.ended) - self._moment(walk.began) < MARGIN
        taken = any(walk.began < place < walk.ended for place in self._taken_from_holders)
        return walk.smooth or (in_time and not taken)

    def settles(self, walk: Firing, verb: str, messages: Sequence[str]) -> None:
        """A walk tells what became of these messages."""
        for message in messages:
            if walk.stale is not None and message in walk.stale:
                self.broken.append(f"{walk.name}: {verb} for {message}, whose entry it had lost")

    def _complain(self, attempt: Attempt, what: str) -> None:
        sent = attempt.sent
        self.broken.append(f"{attempt.place}, {attempt.walk.name}: {sent.key} at {sent.due:%d %H:%M:%S.%f} {what}")
