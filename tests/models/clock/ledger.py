"""The ledger: what callers were promised, what came out, and whether the one agrees with the other.

A schedule's document decides what is promised: its content lives under a key from the moment at which the document is
there until it goes or gets another content.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.occurrences import Occurrence, occurrence_id
from shared.clock.rules.recurrence import next_instants
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState
from tests.models.clock.target import Answer, Sent
from tests.models.clock.walks import Walk

OWNER = "schedule/ns/"


@dataclass
class Life:
    """One content under one key. Places are in the order of all steps."""

    schedule: Schedule
    ended: int | None = None
    cancelled: dict[datetime, int] = field(default_factory=dict)
    asked: dict[datetime, int] = field(default_factory=dict)
    taken_back: set[datetime] = field(default_factory=set)

    @property
    def definition(self) -> Definition:
        return self.schedule.definition

    def id(self, due: datetime) -> str:
        """The message id of an instant."""
        return occurrence_id(self.schedule.owner, self.schedule.generation, due)

    @property
    def promised(self) -> list[datetime]:
        """Its instants, read from the definition alone."""
        if self.definition.recurrence is None:
            return [each for each in self.definition.instants if each > self.schedule.accepted_at]
        assert self.definition.max_occurrences is not None
        return next_instants(self.definition.recurrence, self.schedule.accepted_at, self.definition.max_occurrences)


class Firing(Walk):
    """A walk that fires; `stale` are the messages whose entries it had lost when it began to settle."""

    stale: frozenset[str] | None = None


@dataclass
class Attempt:
    """A message at the target."""

    place: int
    walk: Firing
    at: datetime
    sent: Sent


class Ledger:
    """All of it. `broken` is what does not agree."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.broken: list[str] = []
        self.lives: dict[str, list[Life]] = {key: [] for key in keys}
        self.documents: dict[str, list[tuple[int, Schedule | None]]] = {key: [(0, None)] for key in keys}
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
        self.begun: dict[str, list[Walk]] = defaultdict(list)
        self.cancelling: dict[Walk, tuple[Life, datetime]] = {}

    def document(self, key: str, *, at: int | None = None) -> Schedule | None:
        """What the document was after that step; what it is now."""
        return next(found for place, found in reversed(self.documents[key]) if at is None or place <= at)

    def life(self, key: str) -> Life | None:
        """The life under a key now."""
        last = self.lives[key][-1] if self.lives[key] else None
        return last if last is not None and last.ended is None else None

    def see(self, place: int, schedules: dict[str, Schedule]) -> None:
        """The documents after a step."""
        for key in self.lives:
            before, after = self.document(key), schedules.get(key)
            if before == after:
                continue
            self.documents[key].append((place, after))
            life = self.life(key)
            if life is not None and (after is None or after.generation != life.schedule.generation):
                life.ended = place
                life = None
            if life is None and after is not None:
                self.lives[key].append(Life(after))

    def asks(self, place: int, occurrences: Sequence[Occurrence]) -> None:
        """A caller has these fired by hand, or tried again."""
        for each in occurrences:
            for life in self.lives[each.owner.removeprefix(OWNER)]:
                if each.generation == life.schedule.generation:
                    life.asked[each.due] = place

    def takes_back(self, walk: Walk, id: str) -> None:
        """A caller is about to cancel the instant with this id."""
        for life in (life for lives in self.lives.values() for life in lives):
            for due in {*life.promised, *life.asked}:
                if life.id(due) == id:
                    life.taken_back.add(due)
                    self.cancelling[walk] = (life, due)

    def concluded(self, walk: Walk) -> None:
        """What a caller has heard."""
        if walk in self.cancelling and walk.result is True and walk.ended is not None:
            life, due = self.cancelling.pop(walk)
            life.cancelled[due] = walk.ended

    def begins(self, walk: Walk, suspect: Occurrence) -> None:
        """A walk is about to attempt a suspect."""
        self.begun[suspect.message_id].append(walk)

    def unended(self, message: str) -> int:
        """How many attempts of a suspect have begun and met with something."""
        return sum(not walk.smooth for walk in self.begun[message])

    def hear(self, place: int, walk: Firing, now: datetime, sent: Sent) -> None:
        """A message has reached the target."""
        attempt = Attempt(place, walk, now, sent)
        life = self._life_of(sent)
        if life is None:
            self._complain(attempt, "has an id that belongs to no instant of its key")
        else:
            self._check(attempt, life)
        self.attempts[sent.id].append(attempt)

    def _life_of(self, sent: Sent) -> Life | None:
        return next((life for life in self.lives[sent.key] if life.id(sent.due) == sent.id), None)

    def _check(self, attempt: Attempt, life: Life) -> None:
        sent = attempt.sent
        callback = life.definition.callback
        assert isinstance(callback, RabbitCallback)
        if sent.body != callback.payload:
            self._complain(attempt, "has another content's payload")
        if sent.due > attempt.at:
            self._complain(attempt, "is early")
        if sent.due not in life.promised and sent.due not in life.asked:
            self._complain(attempt, "was never asked for")
        if not 1 <= sent.attempt <= life.definition.retry.attempts:
            self._complain(attempt, f"is attempt {sent.attempt} of {life.definition.retry.attempts}")
        self._check_wanted(attempt, life)
        self._check_repeat(attempt, life)

    def _check_wanted(self, attempt: Attempt, life: Life) -> None:
        """By what was true when it was looked up for the last time."""
        looked, checked = attempt.walk.at("schedules.many"), attempt.walk.at("occurrences.ours")
        assert looked is not None
        assert checked is not None
        document = self.document(attempt.sent.key, at=looked)
        asked = attempt.sent.due in life.asked
        if document is None or document.generation != life.schedule.generation:
            self._complain(attempt, "belongs to what was removed or replaced")
        elif document.state is ScheduleState.PAUSED and not asked:
            self._complain(attempt, "belongs to a paused schedule")
        taken_back = life.cancelled.get(attempt.sent.due)
        if taken_back is not None and taken_back < checked and life.asked.get(attempt.sent.due, 0) < taken_back:
            self._complain(attempt, "was cancelled")

    def _check_repeat(self, attempt: Attempt, life: Life) -> None:
        checked = attempt.walk.at("occurrences.ours")
        assert checked is not None
        for earlier in self.attempts[attempt.sent.id]:
            ended = earlier.walk.ended
            done = earlier.walk.smooth and ended is not None and ended < checked
            asked_since = life.asked.get(attempt.sent.due, 0) > earlier.place
            if done and earlier.sent.answer is Answer.CONFIRMED and not asked_since:
                self._complain(attempt, f"is a repeat of what was dealt with at {earlier.place}")

    def settles(self, walk: Firing, verb: str, messages: Sequence[str]) -> None:
        """A walk tells what became of these messages."""
        for message in messages:
            if walk.stale is not None and message in walk.stale:
                self.broken.append(f"{walk.name}: {verb} for {message}, whose entry it had lost")

    def _complain(self, attempt: Attempt, what: str) -> None:
        sent = attempt.sent
        self.broken.append(f"{attempt.place}, {attempt.walk.name}: {sent.key} at {sent.due:%H:%M:%S.%f} {what}")
