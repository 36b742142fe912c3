"""Verdicts: what becomes of a due occurrence, by its schedule as it is now."""

from datetime import datetime, timedelta
from enum import Enum

from shared.clock.rules.calendars import Days
from shared.clock.rules.instants import offset_due, replan
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, lateness
from shared.clock.rules.schedules import COMMITTED_WITHIN, Misfire, MisfireMode, Schedule, ScheduleState
from shared.core.instants import EPOCH


class Verdict(Enum):
    FIRE = "fire"
    SKIP = "skip"  # found too late, by its owner's rule
    HOLD = "hold"  # its schedule is paused
    MOVE = "move"  # its schedule's anchor or calendars were changed
    WAIT = "wait"  # its schedule is missing, and may still be stored
    VOID = "void"  # its schedule is deleted or replaced


def verdict_of(schedule: Schedule | None, occurrence: Occurrence, now: datetime, days: Days | None = None) -> Verdict:
    """Decide about a due occurrence at any lateness. `days` are those that the schedule excludes, if any."""
    due: datetime | None = occurrence.due
    if schedule is not None and occurrence.kind is OccurrenceKind.OFFSET:
        due = offset_due(schedule.definition, schedule.key, occurrence.offset_ms)
    elif schedule is not None and days is not None and occurrence.kind is OccurrenceKind.SERIES:
        replanned = replan(schedule.definition, schedule.key, occurrence, days)
        due = EPOCH if replanned is None else replanned.due
    if schedule is None or schedule.generation != occurrence.generation or due is None:
        return Verdict.WAIT if now < occurrence.accepted_at + COMMITTED_WITHIN else Verdict.VOID
    if due != occurrence.due:
        return Verdict.MOVE
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
    rule = schedule.definition.misfire
    if rule.mode is MisfireMode.FIRE or occurrence.attempts:
        return Verdict.FIRE
    late = lateness(occurrence.due, occurrence.accepted_at, now, tick)
    return Verdict.SKIP if is_missed(rule, late, misfire_after=misfire_after) else Verdict.FIRE


def missed_until(rule: Misfire, now: datetime, *, misfire_after: timedelta) -> datetime | None:
    """The moment up to which the rule skips all instants; `None` if it skips none."""
    match rule.mode:
        case MisfireMode.FIRE:
            return None
        case MisfireMode.SKIP:
            return now - misfire_after
        case MisfireMode.WITHIN:
            return now - timedelta(seconds=rule.within_seconds)


def is_missed(rule: Misfire, late: timedelta, *, misfire_after: timedelta) -> bool:
    match rule.mode:
        case MisfireMode.FIRE:
            return False
        case MisfireMode.SKIP:
            return late > misfire_after
        case MisfireMode.WITHIN:
            return late > timedelta(seconds=rule.within_seconds)
