"""The body of a schedule, and a schedule as clients see it."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Literal, assert_never

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from services.api.clock.callback_body import CallbackBody, callback_view, read_callback, redact
from services.api.http.wire import Timestamp, decode_body, hide
from shared.clock.rules.callbacks import Targets
from shared.clock.rules.occurrences import Occurrence, Outcome, OutcomeResult
from shared.clock.rules.recurrence import Cron, Every, Recurrence, check_cron, next_after, plain_line
from shared.clock.rules.schedules import (
    LABELS,
    TIMESTAMPS,
    Definition,
    Misfire,
    MisfireMode,
    RetryPolicy,
    Schedule,
    ScheduleState,
    check_key,
    due_instants,
    is_findable,
    split_by_now,
    spread,
)
from shared.core.errors import Invalid
from shared.core.instants import EPOCH, format_instant, read_instant

LABEL_NAME_CHARACTERS = 63
LABEL_VALUE_CHARACTERS = 255
DAY_SECONDS = 86_400
LONGEST_INTERVAL_SECONDS = 36_525 * DAY_SECONDS  # a century
# Other routes have these in the place of a key, or clients remove them from a path.
NOT_KEYS = frozenset({"bulk", "due", "preview", ".", ".."})
_BEFORE_FIRST = EPOCH - timedelta(milliseconds=1)
Count = Annotated[int, Meta(ge=1, le=2**53)]


class Within(Struct, frozen=True, forbid_unknown_fields=True):
    """Fire unless it is later than that."""

    fire_within_seconds: Annotated[float, Meta(ge=1, le=3_650 * DAY_SECONDS)]


MisfireBody = Annotated[
    Literal["fire", "skip"] | Within, Meta(title="Misfire", description="The treatment of a late instant.")
]


class RetryBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often an instant is attempted, and the pauses between."""

    attempts: Annotated[int, Meta(ge=1, le=100)] = RetryPolicy().attempts
    first_delay_seconds: Annotated[float, Meta(ge=0.1, le=DAY_SECONDS)] = RetryPolicy().first_delay_seconds
    factor: Annotated[float, Meta(ge=1, le=10)] = RetryPolicy().factor
    cap_seconds: Annotated[float, Meta(ge=0.1, le=7 * DAY_SECONDS)] = RetryPolicy().cap_seconds


class ScheduleBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule: exactly one of `schedules` (timestamps), `cron` and `every` (seconds).

    `starts_at` and `ends_at` bound a recurrence; `every` counts from `starts_at` or, without it, from the start of
    1970, so that its instants do not depend on when it was asked for. Unless `misfire` says otherwise, what comes late
    fires all the same.
    """

    callback: CallbackBody
    key: str | None = None
    schedules: list[Timestamp] | None = None
    cron: str | None = None
    timezone: str | None = None
    every: Annotated[int, Meta(ge=1, le=LONGEST_INTERVAL_SECONDS)] | None = None
    starts_at: Timestamp | None = None
    ends_at: Timestamp | None = None
    max_occurrences: Count | None = None
    window_seconds: Annotated[float, Meta(ge=0, le=DAY_SECONDS)] = 0.0
    misfire: MisfireBody = "fire"
    retry: RetryBody = RetryBody()
    labels: dict[str, str] = {}


_body_decoder = msgspec.json.Decoder(ScheduleBody)


def read(content: bytes, targets: Targets, *, key: str | None = None) -> tuple[str, Definition]:
    """The key and the definition that a request asks for; `key` is the path's, if it has one. Raises `Invalid`."""
    body = decode_body(content, _body_decoder)
    if body.key is None and key is None:
        raise Invalid("a key is needed", field="key")
    if key is not None and body.key is not None and body.key != key:
        raise Invalid("the key is not that of the path", field="key", value=body.key)
    wanted = body.key if key is None else key
    assert wanted is not None
    if wanted in NOT_KEYS:
        raise Invalid(
            "this cannot be a key: it has another meaning in the path of a request", field="key", value=wanted
        )
    check_key(wanted)
    return wanted, _definition(body, targets)


def read_preview(content: bytes, targets: Targets) -> tuple[str, Definition]:
    """As `read`, but the key may be left out: it tells the place in a window, and nothing else."""
    body = decode_body(content, _body_decoder)
    if body.key is not None:
        check_key(body.key)
    return body.key or "", _definition(body, targets)


def _definition(body: ScheduleBody, targets: Targets) -> Definition:
    _check_kind(body)
    recurrence = _recurrence(body)
    _check_labels(body.labels)
    return Definition(
        callback=read_callback(body.callback, targets),
        instants=_instants(body.schedules) if body.schedules is not None else (),
        recurrence=recurrence,
        max_occurrences=body.max_occurrences,
        window_seconds=body.window_seconds,
        misfire=_misfire(body.misfire),
        retry=RetryPolicy(**asdict(body.retry)),
        labels=body.labels,
    )


def _check_kind(body: ScheduleBody) -> None:
    kinds = {"schedules": body.schedules, "cron": body.cron, "every": body.every}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        rule = "schedules (timestamps), cron (a line) and every (seconds)"
        if given:
            raise Invalid(f"give only one of {rule}", field=given[1])
        raise Invalid(f"give one of {rule}", field="schedules")
    if body.schedules is not None:
        bounds = {"starts_at": body.starts_at, "ends_at": body.ends_at, "max_occurrences": body.max_occurrences}
        for name, value in bounds.items():
            if value is not None:
                raise Invalid(f"{name} goes with cron or every, not with schedules", field=name)
    if body.timezone is not None and body.cron is None:
        raise Invalid("timezone goes with cron", field="timezone", value=body.timezone)


def _instants(timestamps: list[str]) -> tuple[datetime, ...]:
    if not 1 <= len(timestamps) <= TIMESTAMPS:
        raise Invalid(f"1 to {TIMESTAMPS:,} timestamps are needed", field="schedules", value=len(timestamps))
    read = {read_instant(text, field=f"schedules[{index}]") for index, text in enumerate(timestamps)}
    return tuple(sorted(read))


def _recurrence(body: ScheduleBody) -> Recurrence | None:
    if body.schedules is not None:
        return None
    starts_at = None if body.starts_at is None else read_instant(body.starts_at, field="starts_at")
    ends_at = None if body.ends_at is None else read_instant(body.ends_at, field="ends_at")
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise Invalid("ends_at must not be before starts_at", field="ends_at", value=body.ends_at)
    recurrence = _to_recurrence(body, starts_at, ends_at)
    bounded = starts_at is not None or ends_at is not None
    if bounded and next_after(recurrence, _BEFORE_FIRST) is None:
        field = "ends_at" if ends_at is not None else "cron" if body.cron is not None else "every"
        raise Invalid("the schedule has no instant between starts_at and ends_at", field=field)
    return recurrence


def _to_recurrence(body: ScheduleBody, starts_at: datetime | None, ends_at: datetime | None) -> Recurrence:
    if body.cron is not None:
        timezone = "UTC" if body.timezone is None else body.timezone
        line = plain_line(body.cron)
        check_cron(line, timezone)
        return Cron(line, timezone, starts_at, ends_at)
    assert body.every is not None  # one of the three is given
    return Every(body.every, EPOCH if starts_at is None else starts_at, starts_at, ends_at)


def _misfire(body: MisfireBody) -> Misfire:
    if isinstance(body, Within):
        return Misfire(MisfireMode.WITHIN, body.fire_within_seconds)
    return Misfire(MisfireMode(body))


def _check_labels(labels: dict[str, str]) -> None:
    if len(labels) > LABELS:
        raise Invalid(f"must have at most {LABELS} labels", field="labels")
    for name, value in labels.items():
        if not (name.isprintable() and 1 <= len(name) <= LABEL_NAME_CHARACTERS and is_findable(name, "")):
            rule = f"a label's name must have 1 to {LABEL_NAME_CHARACTERS} printable characters, but no colon or comma"
            raise Invalid(rule, field="labels", value=name)
        if len(value) > LABEL_VALUE_CHARACTERS or not is_findable(name, value):
            rule = f"a label's value must have at most {LABEL_VALUE_CHARACTERS} characters, but no comma"
            raise Invalid(rule, field=f"labels.{name}")


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
    """A schedule as it was asked for and as it is now. In a list without `schedules`, `next`, `skipped`, `outcomes`.

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
        misfire=_misfire_view(definition.misfire),
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


def _misfire_view(rule: Misfire) -> MisfireBody:
    match rule.mode:
        case MisfireMode.FIRE:
            return "fire"
        case MisfireMode.SKIP:
            return "skip"
        case MisfireMode.WITHIN:
            return Within(rule.within_seconds)
        case _:
            assert_never(rule.mode)
