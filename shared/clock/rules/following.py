"""A stored occurrence against its schedule as it is now: its place, and the verdict when it is due."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from shared.clock.rules.calendars import Days
from shared.clock.rules.instants import Upcoming, find_upcoming, offset_due, settled_until, spread
from shared.clock.rules.occurrences import PARKED, Occurrence, OccurrenceKind, Passed, at_offset, lateness, once, series
from shared.clock.rules.schedules import COMMITTED_WITHIN, Definition, Misfire, MisfireMode, Schedule, ScheduleState
from shared.core.instants import MILLISECOND


def occurrences(schedule: Schedule, days: Days | None = None) -> list[Occurrence]:
    """The occurrences to insert for the schedule: one for each instant after its acceptance, or the series. Around an
    anchor, past ones are parked. `days` as in `find_upcoming`."""
    definition, accepted_at = schedule.definition, schedule.accepted_at
    delay = spread(definition, schedule.key)
    if definition.recurrence is not None:
        first = find_upcoming(definition, schedule.key, accepted_at, days)
        if first is None:
            return []
        made = series(schedule.owner, schedule.generation, first.at, accepted_at=accepted_at, size=schedule.size)
        passed = _pass_on(definition, accepted_at - delay, days)
        return [msgspec.structs.replace(_at_upcoming(made, delay, first), passed=passed)]
    owner, generation, size = schedule.owner, schedule.generation, schedule.size
    if definition.anchor is not None:
        return [
            at_offset(owner, generation, offset, due + delay, accepted_at=accepted_at, size=size)
            for offset, due in zip(definition.offsets_ms, definition.instants, strict=True)
        ]
    ahead = [due + delay for due in definition.instants if due > accepted_at]
    return [once(owner, generation, due, accepted_at=accepted_at, size=size) for due in ahead]


def at_anchor(occurrence: Occurrence, schedule: Schedule) -> Occurrence:
    """The occurrence of an offset where its schedule puts it now.

    A dropped offset is parked, and so is one that was past when it was given: their `due` is not after their
    `accepted_at`, and they stay parked until they lie ahead. A new offset is parked until its schedule has it.
    """
    due = offset_due(schedule.definition, schedule.key, occurrence.offset_ms)
    if due is None:
        given_at = occurrence.accepted_at
        return msgspec.structs.replace(occurrence, due=given_at, fires_at=given_at, visible_at=PARKED)
    is_parked = occurrence.visible_at == PARKED
    if is_parked and max(occurrence.due - occurrence.accepted_at, due - schedule.accepted_at) <= timedelta(0):
        return occurrence
    if due == occurrence.due and not is_parked:
        return occurrence
    return msgspec.structs.replace(occurrence, due=due, fires_at=due, visible_at=due)


def next_occurrence(
    definition: Definition,
    key: str,
    occurrence: Occurrence,
    *,
    passed_over: datetime | None = None,
    days: Days | None = None,
) -> Occurrence | None:
    """A series' document at its next instant; `None` if the series has ended.

    The series jumps over instants up to `passed_over`. With `max_occurrences` it goes one by one, because each skipped
    instant counts.
    """
    runs = occurrence.runs + 1
    if definition.max_occurrences is not None and runs >= definition.max_occurrences:
        return None
    after = occurrence.due
    if passed_over is not None and definition.max_occurrences is None:
        after = max(after, passed_over)
    passed = passed_after(definition, key, occurrence, after, days)
    found = find_upcoming(definition, key, after, days, passed)
    if found is None:
        return None
    moved = _at_upcoming(occurrence, spread(definition, key), found)
    return msgspec.structs.replace(moved, token="", attempts=0, claims=0, begun=0, runs=runs, passed=passed)


def passed_after(
    definition: Definition, key: str, occurrence: Occurrence, after: datetime, days: Days | None
) -> Passed | None:
    """How far a series has come when this occurrence is settled and it goes on after `after`."""
    delay = spread(definition, key)
    fired = occurrence.raws or (occurrence.due - delay,)
    return _pass_on(definition, after - delay, days, occurrence.passed, fired)


def _pass_on(
    definition: Definition,
    moment: datetime,
    days: Days | None,
    before: Passed | None = None,
    fired: Sequence[datetime] = (),
) -> Passed | None:
    if not definition.exclude:
        return None
    raw = settled_until(definition.shift, moment, days, before)
    fired = (*before.later, *fired) if before else fired
    return Passed(moment, raw, tuple(sorted(each for each in fired if each > raw)))


def replan(definition: Definition, key: str, occurrence: Occurrence, days: Days) -> Occurrence | None:
    """A series' document where today's calendars put it; `None` if no instant is left. Instants that were left out and
    were over when the calendars were changed stay out."""
    delay, after = spread(definition, key), min(occurrence.due - MILLISECOND, days.changed_at)
    if occurrence.passed is not None:
        after = max(after, occurrence.passed.moment + delay)
    found = find_upcoming(definition, key, after, days, occurrence.passed)
    return None if found is None else _at_upcoming(occurrence, delay, found)


def _at_upcoming(occurrence: Occurrence, delay: timedelta, upcoming: Upcoming) -> Occurrence:
    due = upcoming.at + delay
    raws = () if upcoming.raws == (upcoming.at,) else upcoming.raws
    return msgspec.structs.replace(occurrence, due=due, fires_at=due, visible_at=due, raws=raws)


class Verdict(Enum):
    FIRE = "fire"
    SKIP = "skip"  # found too late, by its owner's rule
    HOLD = "hold"  # its schedule is paused
    FOLLOW = "follow"  # its schedule's anchor or calendars were changed
    WAIT = "wait"  # its schedule is missing, and may still be stored
    VOID = "void"  # its schedule is deleted or replaced


def place_now(schedule: Schedule, occurrence: Occurrence, days: Days | None) -> Occurrence | None:
    """The occurrence where its anchor or its calendars put it now; `None` if its series has no instant left."""
    if occurrence.kind is OccurrenceKind.OFFSET:
        return at_anchor(occurrence, schedule)
    if occurrence.kind is OccurrenceKind.SERIES and days is not None:
        return replan(schedule.definition, schedule.key, occurrence, days)
    return occurrence


def verdict_of(schedule: Schedule | None, occurrence: Occurrence, now: datetime, days: Days | None = None) -> Verdict:
    """Decide about a due occurrence at any lateness. `days` are those that the schedule excludes, if any."""
    if schedule is None or schedule.generation != occurrence.generation:
        return Verdict.WAIT if now < occurrence.accepted_at + COMMITTED_WITHIN else Verdict.VOID
    placed = place_now(schedule, occurrence, days)
    if placed is None or placed.place != occurrence.place or placed.visible_at == PARKED:
        return Verdict.FOLLOW
    if schedule.state is ScheduleState.PAUSED and occurrence.kind is not OccurrenceKind.ASKED:
        return Verdict.HOLD
    return Verdict.FIRE


def judge(
    schedule: Schedule | None,
    occurrence: Occurrence,
    now: datetime,
    *,
    tick: timedelta,
    misfire_after: timedelta,
    days: Days | None = None,
) -> Verdict:
    """Decide as `verdict_of` does, and by the misfire rule. Later than `misfire_after` is "found late"."""
    verdict = verdict_of(schedule, occurrence, now, days)
    if schedule is None or verdict is not Verdict.FIRE or occurrence.kind is OccurrenceKind.ASKED:
        return verdict
    allowed = allowed_lateness(schedule.definition.misfire, misfire_after)
    if allowed is None or occurrence.attempts:
        return Verdict.FIRE
    late = lateness(occurrence.due, occurrence.accepted_at, now, tick)
    return Verdict.SKIP if late > allowed else Verdict.FIRE


def allowed_lateness(rule: Misfire, misfire_after: timedelta) -> timedelta | None:
    """The lateness up to which a first attempt fires; `None` if it fires at any."""
    match rule.mode:
        case MisfireMode.FIRE:
            return None
        case MisfireMode.SKIP:
            return misfire_after
        case MisfireMode.WITHIN:
            return timedelta(seconds=rule.within_seconds)
