"""Wanted schedules of callers and the drafts to store for them: the rules of `schedules`, without I/O."""

import secrets
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from shared.domain.clock.occurrences import Occurrence, OccurrenceKind, once
from shared.domain.clock.outcomes import DeadLetter
from shared.domain.clock.recurrence import Cron, Every
from shared.domain.clock.schedules import (
    Definition,
    Schedule,
    ScheduleState,
    as_asked,
    digest,
    has_content,
    last_due,
    occurrences,
    schedule_id,
    split_by_now,
)
from shared.domain.errors import Conflict, Invalid, Refused
from shared.domain.idempotency import name_differences
from shared.runtime.tracing import current_trace
from shared.runtime.turns import Turns


class Wanted(Struct, frozen=True):
    """The schedule that a caller asks for under a key. `made_by` is the id of the caller's token. Each has its own
    `trace`, because many requests may be accepted together."""

    namespace: str
    key: str
    definition: Definition
    made_by: str = ""
    trace: str = field(default_factory=current_trace)

    @property
    def id(self) -> str:
        return schedule_id(self.namespace, self.key)


class ScheduleDraft(Struct, frozen=True):
    """The documents to store for a schedule."""

    schedule: Schedule
    occurrences: list[Occurrence]


class Made(Struct, frozen=True):
    """The fields that an Idempotency-Key remembers about the schedule of its first request."""

    generation: str
    created_at: datetime
    accepted_at: datetime


class Accepted(Struct, frozen=True):
    """A schedule that is stored with all of its occurrences. `skipped` are instants that were past when it was made."""

    schedule: Schedule
    created: bool = False
    changed: bool = False
    skipped: tuple[datetime, ...] = ()


Answer = Accepted | Refused


async def draft_all(wanted: Iterable[Wanted], now: datetime) -> tuple[list[ScheduleDraft], dict[str, Answer]]:
    """The drafts to store, and the refusals. Other coroutines run in between, because a list may have 10,000
    instants."""
    drafts: list[ScheduleDraft] = []
    refused: dict[str, Answer] = {}
    generation, turns = fresh_generation(), Turns()
    for want in wanted:
        try:
            drafts.append(draft_one(want, now, generation))
        except Invalid as error:
            refused[want.id] = error
        await turns.give()
    return drafts, refused


def draft_one(wanted: Wanted, now: datetime, generation: str) -> ScheduleDraft:
    """The schedule and its occurrences. Raises `Invalid` if all instants are past."""
    schedule = Schedule(
        id=wanted.id,
        namespace=wanted.namespace,
        key=wanted.key,
        generation=generation,
        digest=digest(wanted.definition),
        definition=wanted.definition,
        created_at=now,
        accepted_at=now,
        sweep_at=last_due(wanted.definition, wanted.key),
        made_by=wanted.made_by,
    )
    ahead = occurrences(schedule)
    if not ahead:
        raise nothing_ahead(wanted.definition)
    return ScheduleDraft(schedule, [replace(occurrence, trace=wanted.trace) for occurrence in ahead])


def keep_identity_of(existing: Schedule, fresh: Schedule) -> Schedule:
    """The fresh schedule with the creation time and the pause of the one that it replaces."""
    state = ScheduleState.PAUSED if existing.is_paused else ScheduleState.ACTIVE
    return replace(fresh, created_at=existing.created_at, state=state)


def answer_taken_key(wanted: Wanted, existing: Schedule) -> Answer:
    """The answer to a request whose key is taken."""
    if not has_content(existing, wanted.definition):
        differences = name_differences(as_asked(existing.definition), as_asked(wanted.definition))
        rule = f"a schedule with this key and another content exists{differences}"
        return Conflict(rule, field="key", value=wanted.key)
    return answer_unchanged(existing)


def answer_unchanged(existing: Schedule) -> Accepted:
    """The answer to a request that changes nothing."""
    return Accepted(existing, skipped=skipped_of(existing))


def as_first_answered(wanted: Wanted, made: Made) -> Accepted:
    """The answer to a repeated request whose schedule is gone or was replaced."""
    schedule = draft_one(wanted, made.accepted_at, made.generation).schedule
    removed = replace(schedule, created_at=made.created_at, state=ScheduleState.FINISHED)
    return answer_unchanged(removed)


def nothing_ahead(definition: Definition) -> Invalid:
    """The error for a definition whose instants are all past."""
    return Invalid("no instant lies ahead: all are past, and a schedule needs one to come", field=_field(definition))


def _field(definition: Definition) -> str:
    match definition.recurrence:
        case None:
            return "schedules"
        case Cron(ends_at=ends_at) | Every(ends_at=ends_at) if ends_at is not None:
            return "ends_at"
        case Cron():
            return "cron"
        case Every():
            return "every"


def skipped_of(schedule: Schedule) -> tuple[datetime, ...]:
    """The schedule's instants that were past when it was made."""
    return tuple(split_by_now(schedule.definition, schedule.accepted_at)[1])


def revive(schedule: Schedule, letter: DeadLetter, now: datetime) -> Occurrence:
    """An occurrence for the instant of a dead letter, due now."""
    again = once(schedule.owner, schedule.generation, letter.due, accepted_at=now, kind=OccurrenceKind.ASKED)
    return replace(again, fires_at=now, visible_at=now, size=schedule.size)


def fresh_generation() -> str:
    """A random value that distinguishes contents under one key."""
    return secrets.token_hex(8)
