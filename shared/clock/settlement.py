"""Settlement of attempts, the same for the scheduler, which publishes, and a worker, which calls.

    the target accepted   an outcome; the occurrence is deleted, or the series moves on
    the target refused    an outcome; the occurrence comes back after a back-off. An instant of a series is first
                          copied into an occurrence of its own, so that retries never delay the series
    the last refusal      an outcome and a dead letter; then as if accepted
    no answer             comes back soon; nothing is counted

Every step matches (id, token), and the order lets each be repeated: outcomes and letters are stored before the
occurrence is deleted. An insert cannot match a token, so claims of refused attempts are checked first: a process
that slept must not report as dead what another one has delivered.
"""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.clock.calendars import find_days
from shared.clock.rules.callbacks import Undeliverable
from shared.clock.rules.following import next_occurrence, place_now
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, lateness, retry_entry
from shared.clock.rules.outcomes import DeadLetter, Outcome, OutcomeResult, dead_event, outcome_id, overlap_event
from shared.clock.rules.schedules import Schedule
from shared.clock.store_occurrences import PutOff, fresh_token
from shared.core.errors import CarillonError, Unavailable
from shared.runtime.faults import fault
from shared.runtime.loops import Backoff, next_delay
from shared.runtime.metrics import DEAD, FIRED, LATENESS, RETRIES
from shared.store import Store

_SOONEST, _LATEST = timedelta(seconds=1), timedelta(seconds=10)


class Attempt(Struct, frozen=True):
    """An attempt at an occurrence at the time `at`.

    `error`: `None` for success, `Unavailable` for no answer, any other for a refusal. `final`: no further attempt
    follows. `skipped`: the schedule's rule skipped this occurrence, and no attempt was made. The misfire rule sets
    `passed_over`; the overlap rule sets `error` to its reason. `made=False`: the scheduler or the worker put it off
    before an attempt began.
    """

    occurrence: Occurrence
    schedule: Schedule
    at: datetime
    error: CarillonError | None = None
    lasted: timedelta = timedelta()
    retry_after_seconds: float | None = None
    skipped: bool = False
    passed_over: datetime | None = None
    final: bool = False
    made: bool = True

    @property
    def ended_at(self) -> datetime:
        """The pause before the next attempt counts from here."""
        return self.at + self.lasted

    @property
    def answered(self) -> bool:
        """Whether it counts: it does unless no answer came."""
        return not isinstance(self.error, Unavailable)

    @property
    def is_overlap(self) -> bool:
        """Whether the overlap rule skipped the occurrence."""
        return self.skipped and self.error is not None

    @property
    def number(self) -> int:
        """The number of the attempt, from 1; 0 if none was made."""
        return 0 if self.skipped else self.occurrence.attempts + 1

    @property
    def result(self) -> OutcomeResult:
        if self.skipped:
            return OutcomeResult.SKIPPED
        if self.error is None:
            return OutcomeResult.FIRED
        last = self.final or self.number >= self.schedule.definition.retry.attempts
        return OutcomeResult.DEAD if last else OutcomeResult.FAILED


def not_attempted(occurrence: Occurrence, schedule: Schedule, at: datetime) -> Attempt:
    """The attempt to record for a poisonous occurrence: none was made."""
    reason = f"not attempted any more: {occurrence.begun} attempts began, and the process ended or failed in each"
    return Attempt(occurrence, schedule, at, Undeliverable(reason), final=True)


class Settlement:
    """Stores the results of attempts. After `Unavailable` the leases decide."""

    def __init__(self, store: Store, *, tick: timedelta) -> None:
        self._store = store
        self._tick = tick

    async def settle(self, attempts: Sequence[Attempt]) -> list[Occurrence]:
        """Settle all attempts in a few round trips; returns the documents of series that have moved on."""
        claimed = await self._keep_claimed(attempts)
        answered = [attempt for attempt in claimed if attempt.answered]
        outcomes = [self._outcome(attempt) for attempt in answered]
        _count(claimed, outcomes)
        await self._store_outcomes(answered, outcomes)
        # Before the series move on: `_is_done` counts on the copies of refused instants that this stores.
        await self._try_again([attempt for attempt in claimed if _is_tried_again(attempt)])
        return await self.move_on(
            [(each.occurrence, each.schedule, each.passed_over) for each in answered if _is_done(each)]
        )

    async def _keep_claimed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Drop refused attempts that another process has claimed."""
        refused = [attempt.occurrence for attempt in attempts if attempt.error is not None and attempt.answered]
        if not refused:
            return list(attempts)
        ours = await self._store.occurrences.ours(refused, also_held_back=True)
        lost = {occurrence.id for occurrence in refused} - {occurrence.id for occurrence in ours}
        return [attempt for attempt in attempts if attempt.occurrence.id not in lost]

    async def _store_outcomes(self, answered: Sequence[Attempt], outcomes: Sequence[Outcome]) -> None:
        ended = list(zip(answered, outcomes, strict=True))
        dead = [(_letter(attempt), outcome) for attempt, outcome in ended if outcome.result is OutcomeResult.DEAD]
        await self._store.dead_letters.add([letter for letter, _ in dead])
        events = [dead_event(letter, outcome) for letter, outcome in dead]
        events += [
            overlap_event(attempt.schedule.namespace, attempt.schedule.key, outcome)
            for attempt, outcome in ended
            if attempt.is_overlap
        ]
        if events:
            await self._store.outbox.add(events)
        await self._store.outcomes.add(outcomes)

    async def _try_again(self, attempts: Sequence[Attempt]) -> None:
        # One chance for all: occurrences that are put off to the same moment share one update.
        chance = random.random()
        copies = [
            retry_entry(each.occurrence, fires_at=each.ended_at + _delay(each, chance), attempts=each.number)
            for each in attempts
            if _is_series_refused(each)
        ]
        if copies:
            await self._store.occurrences.add(copies)
            await fault("clock.after_copy")
        retries = [_next_try(attempt, chance) for attempt in attempts if not _is_series_refused(attempt)]
        await self._store.occurrences.retry(retries)

    async def move_on(self, done: Sequence[tuple[Occurrence, Schedule, datetime | None]]) -> list[Occurrence]:
        """Delete settled occurrences, or move them to the next instant of their series, after the time that each has
        passed over. Returns those that moved."""
        moves: list[tuple[Occurrence, Occurrence]] = []
        ended: list[Occurrence] = []
        finished: list[tuple[Occurrence, Schedule]] = []
        days = await find_days(self._store, [schedule for _, schedule, _ in done])
        for occurrence, schedule, passed_over in done:
            if occurrence.kind is not OccurrenceKind.SERIES:
                ended.append(occurrence)
                continue
            moved = next_occurrence(
                schedule.definition, schedule.key, occurrence, passed_over=passed_over, days=days.get(schedule.id)
            )
            if moved is None:
                finished.append((occurrence, schedule))
            else:
                moves.append((occurrence, moved))
        await self._end_series(finished)
        await self._store.occurrences.complete(ended)
        await self._store.occurrences.advance(moves)
        if moves:
            await fault("clock.after_move")
        return [moved for _, moved in moves]

    async def hold_back(self, claimed: Sequence[Occurrence], schedule_ids: Sequence[str]) -> None:
        await self._store.occurrences.hold_these(claimed)
        # Another request may have resumed a schedule after the read and before its occurrence was held back.
        await let_go_if_active(self._store, schedule_ids)

    async def follow(self, claimed: Sequence[tuple[Occurrence, Schedule]]) -> None:
        """Move claimed occurrences to where their schedules' anchors or calendars put them now, and let them go."""
        days = await find_days(self._store, [schedule for _, schedule in claimed])
        moved: list[Occurrence] = []
        for occurrence, schedule in claimed:
            fresh = place_now(schedule, occurrence, days.get(schedule.id))
            if fresh is None:
                await self._end_series([(occurrence, schedule)])
            else:
                moved.append(fresh)
        await self._store.occurrences.move_claimed(moved)
        # An anchor may have moved again since the schedules were read.
        await self._store.schedules.mark_changed([schedule for _, schedule in claimed])

    async def _end_series(self, ended: Sequence[tuple[Occurrence, Schedule]]) -> None:
        if ended:
            at = max(occurrence.due for occurrence, _ in ended)
            await self._store.schedules.end([schedule for _, schedule in ended], at=at)
            await self._store.occurrences.complete([occurrence for occurrence, _ in ended])

    def _outcome(self, attempt: Attempt) -> Outcome:
        occurrence = attempt.occurrence
        late = lateness(occurrence.due, occurrence.accepted_at, attempt.at, self._tick)
        return Outcome(
            id=outcome_id(occurrence, attempt.number),
            owner=occurrence.owner,
            due=occurrence.due,
            at=attempt.at,
            late_ms=late // timedelta(milliseconds=1),
            attempt=attempt.number,
            result=attempt.result,
            error=str(attempt.error or ""),
        )


async def let_go_if_active(store: Store, schedule_ids: Sequence[str]) -> None:
    for schedule in (await store.schedules.many(schedule_ids)).values():
        if schedule.is_active:
            await store.occurrences.let_go(schedule.owner, schedule.generation)


def _count(attempts: Sequence[Attempt], outcomes: Sequence[Outcome]) -> None:
    """Count attempts by callback and result, and measure the lateness of first ones. Equal ones share one update of a
    counter, because an update costs more than an attempt."""
    results = Counter(
        (type(attempt.schedule.definition.callback), attempt.result if attempt.answered else "unanswered")
        for attempt in attempts
    )
    for (callback, result), number in results.items():
        FIRED.labels(callback.__struct_config__.tag, result).inc(number)
    RETRIES.inc(sum(outcome.result is OutcomeResult.FAILED for outcome in outcomes))
    DEAD.inc(sum(outcome.result is OutcomeResult.DEAD for outcome in outcomes))
    for outcome in outcomes:
        if outcome.result is OutcomeResult.FIRED and outcome.attempt == 1:
            LATENESS.observe(outcome.late_ms / 1000)


def _is_tried_again(attempt: Attempt) -> bool:
    return not attempt.answered or attempt.result is OutcomeResult.FAILED


def _is_series_refused(attempt: Attempt) -> bool:
    return attempt.answered and attempt.occurrence.kind is OccurrenceKind.SERIES


def _is_done(attempt: Attempt) -> bool:
    """Whether the occurrence is settled. `_try_again` has copied a refused instant of a series."""
    return not _is_tried_again(attempt) or _is_series_refused(attempt)


def _next_try(attempt: Attempt, chance: float) -> PutOff:
    occurrence = attempt.occurrence
    if attempt.answered:
        return PutOff(occurrence, attempt.ended_at + _delay(attempt, chance), attempt.number)
    return PutOff(occurrence, attempt.ended_at + _pause_unanswered(attempt, chance), occurrence.attempts, attempt.made)


def _pause_unanswered(attempt: Attempt, chance: float) -> timedelta:
    """The pause after no answer: `retry_after_seconds` if known. Otherwise it grows with the lateness, because
    unanswered attempts are not counted."""
    if attempt.retry_after_seconds is not None:
        return timedelta(seconds=attempt.retry_after_seconds)
    late = (attempt.ended_at - attempt.occurrence.due) / 4
    return min(max(late, _SOONEST), _LATEST) * (1 - chance / 2)


def _delay(attempt: Attempt, chance: float) -> timedelta:
    policy = attempt.schedule.definition.retry
    backoff = Backoff(
        first_seconds=policy.first_delay_seconds,
        factor=policy.factor,
        cap_seconds=max(policy.cap_seconds, policy.first_delay_seconds),
        jitter=0.2,
    )
    seconds = next_delay(backoff, attempt.number, chance, attempt.retry_after_seconds)
    return timedelta(milliseconds=round(seconds * 1000))


def _letter(attempt: Attempt) -> DeadLetter:
    schedule, occurrence = attempt.schedule, attempt.occurrence
    return DeadLetter(
        id=occurrence.message_id,
        namespace=schedule.namespace,
        key=schedule.key,
        schedule_id=schedule.id,
        generation=occurrence.generation,
        due=occurrence.due,
        died_at=attempt.at,
        attempts=attempt.number,
        error=str(attempt.error or ""),
        death=fresh_token(),
    )
