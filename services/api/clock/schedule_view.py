"""Schedules and what became of them as the API shows them. Instants are RFC 3339 in UTC."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import assert_never

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from services.api.clock.callback_body import CallbackBody, callback_view, redact
from services.api.clock.schedule_body import MisfireBody, RetryBody, Within
from services.api.http.wire import Timestamp, hide
from shared.domain.clock.occurrences import Occurrence
from shared.domain.clock.outcomes import Outcome, OutcomeResult
from shared.domain.clock.recurrence import Cron, Every
from shared.domain.clock.schedules import (
    Definition,
    Misfire,
    MisfireMode,
    Schedule,
    ScheduleState,
    due_instants,
    split_by_now,
    spread,
)
from shared.domain.instants import format_instant

NEXT = 20


class OutcomeView(Struct, frozen=True, kw_only=True):
    """One attempt: when it was due, when it was made, by how much later, and how it ended."""

    due: Timestamp
    at: Timestamp
    late_ms: int
    attempt: int
    result: OutcomeResult
    error: str


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule as it was asked for and as it stands. In a list without `schedules`, `next`, `skipped`, `outcomes`.

    `next` are pending instants that are still ahead, with their delay within the window; `next_try_at` is when the
    first call that failed, planned or fired by hand, is tried again. `skipped` are those that were past when it was
    made. `updated_at` tells when the content was given. `redacted` says that the callback is shown without its payload,
    headers, key and the path of its URL, and outcomes without their errors, because the caller is a viewer.
    """

    key: str
    schedules: list[Timestamp] | UnsetType = UNSET
    cron: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    every: int | UnsetType = UNSET
    starts_at: Timestamp | UnsetType = UNSET
    ends_at: Timestamp | UnsetType = UNSET
    max_occurrences: int | UnsetType = UNSET
    window_seconds: float
    misfire: MisfireBody
    retry: RetryBody
    labels: dict[str, str]
    callback: CallbackBody
    state: ScheduleState
    next: list[Timestamp] | UnsetType = UNSET
    next_try_at: Timestamp | UnsetType = UNSET
    skipped: list[Timestamp] | UnsetType = UNSET
    outcomes: list[OutcomeView] | UnsetType = UNSET
    created_at: Timestamp
    updated_at: Timestamp
    redacted: bool = False


class SchedulePreview(Struct, frozen=True):
    """The next instants of a definition."""

    next: list[Timestamp]


class FiredView(Struct, frozen=True):
    """An instant that was fired by hand: `id` is the message id."""

    id: str
    due: Timestamp


def schedule_view(
    schedule: Schedule,
    *,
    ahead: Iterable[datetime] | None = None,
    skipped: Sequence[datetime] | None = None,
    outcomes: Sequence[Outcome] | None = None,
    next_try: datetime | None = None,
    personal: bool = True,
) -> ScheduleView:
    """The schedule as it is shown, with those of the lists that are given; `ahead` is shown as `next`. Without personal
    data unless `personal`."""
    definition = schedule.definition
    recurrence = definition.recurrence
    return ScheduleView(
        key=schedule.key,
        schedules=[format_instant(instant) for instant in definition.instants] or UNSET,
        cron=recurrence.line if isinstance(recurrence, Cron) else UNSET,
        timezone=recurrence.timezone if isinstance(recurrence, Cron) else UNSET,
        every=recurrence.seconds if isinstance(recurrence, Every) else UNSET,
        starts_at=_bound(recurrence.starts_at if recurrence is not None else None),
        ends_at=_bound(recurrence.ends_at if recurrence is not None else None),
        max_occurrences=UNSET if definition.max_occurrences is None else definition.max_occurrences,
        window_seconds=definition.window_seconds,
        misfire=_misfire(definition.misfire),
        retry=RetryBody(**asdict(definition.retry)),
        labels=definition.labels,
        callback=callback_view(definition.callback if personal else redact(definition.callback)),
        redacted=not personal,
        state=schedule.state,
        next=UNSET if ahead is None else [format_instant(instant) for instant in ahead],
        next_try_at=_bound(next_try),
        skipped=UNSET if skipped is None else [format_instant(instant) for instant in skipped],
        outcomes=UNSET if outcomes is None else [_outcome(outcome, personal=personal) for outcome in outcomes],
        created_at=format_instant(schedule.created_at),
        updated_at=format_instant(schedule.accepted_at),
    )


def planned_instants(definition: Definition, key: str, now: datetime) -> list[datetime]:
    """The next instants of what is made now."""
    if definition.recurrence is not None:
        return list(islice(due_instants(definition, key, now), NEXT))
    delay = spread(definition, key)
    return [instant + delay for instant in split_by_now(definition, now)[0][:NEXT]]


def pending_instants(schedule: Schedule, occurrences: Sequence[Occurrence], now: datetime) -> list[datetime]:
    """The instants after now of a list's occurrences, or of the one occurrence of a recurrence."""
    if schedule.definition.recurrence is None:
        return [each.due for each in occurrences]
    if not occurrences:
        return []
    [series] = occurrences
    ahead = [series.due] if series.due > now else []
    following = due_instants(schedule.definition, schedule.key, max(series.due, now), series.runs + 1)
    return [*ahead, *islice(following, NEXT - len(ahead))]


def _outcome(outcome: Outcome, *, personal: bool) -> OutcomeView:
    return OutcomeView(
        due=format_instant(outcome.due),
        at=format_instant(outcome.at),
        late_ms=max(0, (outcome.at - outcome.due) // timedelta(milliseconds=1)),
        attempt=outcome.attempt,
        result=outcome.result,
        error=outcome.error if personal else hide(outcome.error),
    )


def _bound(instant: datetime | None) -> str | UnsetType:
    return UNSET if instant is None else format_instant(instant)


def _misfire(rule: Misfire) -> MisfireBody:
    match rule.mode:
        case MisfireMode.FIRE:
            return "fire"
        case MisfireMode.SKIP:
            return "skip"
        case MisfireMode.WITHIN:
            return Within(rule.within_seconds)
        case _:
            assert_never(rule.mode)
