"""The body of a schedule, and a schedule as clients see it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from carillon.wire import clock as wire
from carillon.wire.clock import FireWithin, Retry, ScheduleBody, StoredSchedule
from services.api.clock.callbacks import read_callback, show_callback
from services.api.http.bodies import Between, Checks, OneOf, Timestamp, decode_body, hide
from shared.clock.rules.calendars import EXCLUDES, Days, Shift, check_shift, planned_after
from shared.clock.rules.callbacks import JobCallback, Overlap, Targets
from shared.clock.rules.following import passed_after
from shared.clock.rules.instants import due_instants, read_offset, settled_until, show_offset, spread, with_anchor
from shared.clock.rules.occurrences import Occurrence, job_id_of
from shared.clock.rules.outcomes import Outcome, OutcomeResult
from shared.clock.rules.recurrence import Cron, Every, Recurrence, check_cron, next_after, plain_line
from shared.clock.rules.schedules import (
    LABELS,
    OFFSETS,
    TIMESTAMPS,
    Definition,
    Misfire,
    MisfireMode,
    Schedule,
    ScheduleState,
    check_key,
    is_findable,
)
from shared.core.errors import Invalid
from shared.core.instants import EPOCH, format_instant, format_maybe, read_instant

LABEL_NAME_CHARACTERS = 63
LABEL_VALUE_CHARACTERS = 255
DAY_SECONDS = 86_400
LONGEST_INTERVAL_SECONDS = 36_525 * DAY_SECONDS  # a century
# Other routes have these in the place of a key, or clients remove them from a path.
NOT_KEYS = frozenset({"bulk", "due", "move", "preview", ".", ".."})
NEXT = 20  # instants that an answer has
_BEFORE_FIRST = EPOCH - timedelta(milliseconds=1)
_MISFIRE = OneOf(("fire", "skip"), ("an object",))
_SHIFT = OneOf(tuple(filter(None, Shift)))
LIMITS = Checks(
    {
        ScheduleBody: {
            "every": Between(1, LONGEST_INTERVAL_SECONDS),
            "max_occurrences": Between(1, 2**53),
            "window_seconds": Between(0, DAY_SECONDS),
            "misfire": _MISFIRE,
            "shift": _SHIFT,
        },
        FireWithin: {"fire_within_seconds": Between(1, 3_650 * DAY_SECONDS)},
        Retry: {
            "attempts": Between(1, 100),
            "first_delay_seconds": Between(0.1, DAY_SECONDS),
            "factor": Between(1, 10),
            "cap_seconds": Between(0.1, 7 * DAY_SECONDS),
        },
        StoredSchedule: {"state": OneOf(tuple(ScheduleState)), "misfire": _MISFIRE, "shift": _SHIFT},
        wire.Outcome: {"result": OneOf(tuple(OutcomeResult))},
        wire.JobCallback: {"overlap": OneOf(tuple(Overlap)), "expires_after_seconds": Between(1, 365 * DAY_SECONDS)},
    }
)
Body = ScheduleBody[Timestamp, Raw]
Shown = StoredSchedule[Timestamp, Raw]
_decoder = msgspec.json.Decoder(Body)


def read(content: bytes, targets: Targets, *, key: str | None = None) -> tuple[str, Definition]:
    """The key and the definition that a request asks for; `key` is the path's, if it has one."""
    body = decode_body(content, _decoder, limits=LIMITS)
    if body.key is None and key is None:
        raise Invalid("a key is needed", field="key")
    if key is not None and body.key is not None and body.key != key:
        raise Invalid("the key is not that of the path", field="key", value=body.key)
    wanted = body.key if key is None else key
    assert wanted is not None
    if wanted in NOT_KEYS:
        rule = "this cannot be a key: it has another meaning in the path of a request"
        raise Invalid(rule, field="key", value=wanted)
    check_key(wanted)
    return wanted, _definition(body, targets)


def read_preview(content: bytes, targets: Targets) -> tuple[str, Definition]:
    """Read as `read` does. The key is optional: it only decides the place in a window."""
    body = decode_body(content, _decoder, limits=LIMITS)
    if body.key is not None:
        check_key(body.key)
    return body.key or "", _definition(body, targets)


def _definition(body: Body, targets: Targets) -> Definition:
    _check_kind(body)
    recurrence = _recurrence(body)
    _check_labels(body.labels)
    definition = Definition(
        callback=read_callback(body.callback, targets),
        instants=_instants(body.instants) if body.instants is not None else (),
        recurrence=recurrence,
        max_occurrences=body.max_occurrences,
        window_seconds=body.window_seconds,
        misfire=_misfire(body.misfire),
        retry=body.retry,
        labels=dict(body.labels),
        offsets_ms=_offsets(body.offsets) if body.offsets else (),
        exclude=_calendars(body, recurrence),
        shift=Shift(body.shift or ""),
    )
    if body.anchor is None:
        return definition
    return with_anchor(definition, read_instant(body.anchor, field="anchor"))


def _check_kind(body: Body) -> None:
    kinds = {"schedules": body.instants, "cron": body.cron, "every": body.every_seconds, "anchor": body.anchor}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        rule = "schedules (timestamps), cron (a line), every (seconds) and anchor (a timestamp, with offsets)"
        if given:
            raise Invalid(f"give only one of {rule}", field=given[1])
        raise Invalid(f"give one of {rule}", field="schedules")
    if (body.anchor is None) != (not body.offsets):
        raise Invalid("anchor and offsets go together: offsets are like -90m, 0s, +1h30m", field="offsets")
    if body.instants is not None or body.anchor is not None:
        bounds = {"starts_at": body.starts_at, "ends_at": body.ends_at, "max_occurrences": body.max_occurrences}
        for name, value in bounds.items():
            if value is not None:
                raise Invalid(f"{name} goes with cron or every, not with {given[0]}", field=name)
    if body.timezone is not None and body.cron is None:
        raise Invalid("timezone goes with cron", field="timezone", value=body.timezone)


def _instants(timestamps: Sequence[str]) -> tuple[datetime, ...]:
    if not 1 <= len(timestamps) <= TIMESTAMPS:
        raise Invalid(f"1 to {TIMESTAMPS:,} timestamps are needed", field="schedules", value=len(timestamps))
    read = {read_instant(text, field=f"schedules[{index}]") for index, text in enumerate(timestamps)}
    return tuple(sorted(read))


def _calendars(body: Body, recurrence: Recurrence | None) -> tuple[str, ...]:
    names = body.exclude or ()
    if recurrence is None and names:
        raise Invalid("exclude goes with cron or every: leave the days out yourself", field="exclude")
    if body.shift and not names:
        raise Invalid("shift goes with exclude, which names calendars", field="shift", value=body.shift)
    if len(names) > EXCLUDES:
        raise Invalid(f"at most {EXCLUDES} calendars", field="exclude", value=len(names))
    if recurrence is not None:
        check_shift(recurrence, Shift(body.shift or ""))
    return tuple(dict.fromkeys(names))


def _offsets(texts: Sequence[str]) -> tuple[int, ...]:
    if len(texts) > OFFSETS:
        raise Invalid(f"at most {OFFSETS:,} offsets", field="offsets", value=len(texts))
    return tuple(sorted({read_offset(text, field=f"offsets[{index}]") for index, text in enumerate(texts)}))


def _recurrence(body: Body) -> Recurrence | None:
    if body.instants is not None or body.anchor is not None:
        return None
    starts_at = None if body.starts_at is None else read_instant(body.starts_at, field="starts_at")
    ends_at = None if body.ends_at is None else read_instant(body.ends_at, field="ends_at")
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise Invalid("ends_at must not be before starts_at", field="ends_at", value=body.ends_at)
    recurrence: Recurrence
    if body.cron is not None:
        timezone = "UTC" if body.timezone is None else body.timezone
        line = plain_line(body.cron)
        check_cron(line, timezone)
        recurrence = Cron(line, timezone, starts_at, ends_at)
    else:
        assert body.every_seconds is not None  # one of the three is given
        recurrence = Every(body.every_seconds, EPOCH if starts_at is None else starts_at, starts_at, ends_at)
    bounded = starts_at is not None or ends_at is not None
    if bounded and next_after(recurrence, _BEFORE_FIRST) is None:
        field = "ends_at" if ends_at is not None else "cron" if body.cron is not None else "every"
        raise Invalid("the schedule has no instant between starts_at and ends_at", field=field)
    return recurrence


def _misfire(body: str | FireWithin) -> Misfire:
    if isinstance(body, FireWithin):
        return Misfire(MisfireMode.WITHIN, body.fire_within_seconds)
    return Misfire(MisfireMode(body))


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS:
        raise Invalid(f"must have at most {LABELS} labels", field="labels")
    for name, value in labels.items():
        if not (name.isprintable() and 1 <= len(name) <= LABEL_NAME_CHARACTERS and is_findable(name, "")):
            rule = f"a label's name must have 1 to {LABEL_NAME_CHARACTERS} printable characters, but no colon or comma"
            raise Invalid(rule, field="labels", value=name)
        if len(value) > LABEL_VALUE_CHARACTERS or not is_findable(name, value):
            rule = f"a label's value must have at most {LABEL_VALUE_CHARACTERS} characters, but no comma"
            raise Invalid(rule, field=f"labels.{name}")


def show_schedule(
    schedule: Schedule,
    *,
    ahead: Iterable[datetime] | None = None,
    skipped: Iterable[datetime] | None = None,
    outcomes: Iterable[Outcome] | None = None,
    next_try: datetime | None = None,
    with_namespace: bool = False,
    personal: bool = True,
) -> StoredSchedule[str, Raw]:
    """The schedule with the given lists; `ahead` is shown as `next`. Without personal data unless `personal`."""
    definition = schedule.definition
    return StoredSchedule(
        key=schedule.key,
        namespace=schedule.namespace if with_namespace else None,
        **_show_timing(definition),
        misfire=_show_misfire(definition.misfire),
        retry=definition.retry,
        labels=definition.labels,
        body=show_callback(definition.callback, personal=personal),
        redacted=not personal,
        state=schedule.state,
        next=_timestamps(ahead),
        next_try_at=format_maybe(next_try),
        skipped=_timestamps(skipped),
        outcomes=_show_outcomes(definition, outcomes, personal=personal),
        created_at=format_instant(schedule.created_at),
        updated_at=format_instant(schedule.accepted_at),
    )


def _show_timing(definition: Definition) -> dict[str, Any]:
    recurrence = definition.recurrence
    return {
        "instants": _timestamps(definition.instants or None) if definition.anchor is None else None,
        "anchor": format_maybe(definition.anchor),
        "offsets": tuple(map(show_offset, definition.offsets_ms)) or None,
        "cron": recurrence.line if isinstance(recurrence, Cron) else None,
        "timezone": recurrence.timezone if isinstance(recurrence, Cron) else None,
        "every_seconds": recurrence.seconds if isinstance(recurrence, Every) else None,
        "starts_at": format_maybe(recurrence.starts_at if recurrence is not None else None),
        "exclude": definition.exclude or None,
        "shift": definition.shift or None,
        "ends_at": format_maybe(recurrence.ends_at if recurrence is not None else None),
        "max_occurrences": definition.max_occurrences,
        "window_seconds": definition.window_seconds,
    }


def planned_instants(definition: Definition, key: str, now: datetime, days: Days | None = None) -> list[datetime]:
    if definition.recurrence is not None:
        return list(islice(due_instants(definition, key, now, days), NEXT))
    delay = spread(definition, key)
    return [instant + delay for instant in definition.instants if instant > now][:NEXT]


def left_out_until(
    last: datetime, definition: Definition, key: str, now: datetime, days: Days
) -> tuple[wire.LeftOut[str], ...]:
    """The first instants that a calendar leaves out or shifts, from now up to the instant `last`."""
    assert definition.recurrence is not None
    delay = spread(definition, key)
    since = settled_until(definition.shift, now - delay, days)
    planned = planned_after(definition.recurrence, definition.shift, days, since)
    until_last = takewhile(lambda each: each.raw + delay <= last, planned)
    ahead = (each for each in until_last if each.calendar and max(each.raw, each.at or each.raw) + delay > now)
    return tuple(
        wire.LeftOut(
            at=format_instant(each.raw + delay),
            calendar=each.calendar,
            shifted_to=format_maybe(each.at and each.at + delay),
        )
        for each in islice(ahead, NEXT)
    )


def pending_instants(
    schedule: Schedule, occurrences: Sequence[Occurrence], now: datetime, days: Days | None = None
) -> list[datetime]:
    """The instants after now of a list's occurrences, or of the one occurrence of a recurrence."""
    if schedule.definition.recurrence is None:
        return [each.due for each in occurrences]
    if not occurrences:
        return []
    [series] = occurrences
    ahead = [series.due] if series.due > now else []
    definition, key, after = schedule.definition, schedule.key, max(series.due, now)
    passed = passed_after(definition, key, series, after, days)
    following = due_instants(definition, key, after, days, runs=series.runs + 1, passed=passed)
    return [*ahead, *islice(following, NEXT - len(ahead))]


def _show_outcomes(
    definition: Definition, outcomes: Iterable[Outcome] | None, *, personal: bool
) -> tuple[wire.Outcome[str], ...] | None:
    if outcomes is None:
        return None
    starts_jobs = isinstance(definition.callback, JobCallback)
    return tuple(
        wire.Outcome(
            due=format_instant(each.due),
            at=format_instant(each.at),
            late_ms=max(0, (each.at - each.due) // timedelta(milliseconds=1)),
            attempt=each.attempt,
            result=each.result,
            error=each.error if personal else hide(each.error),
            job_id=job_id_of(each.message_id) if starts_jobs and each.result is OutcomeResult.FIRED else UNSET,
        )
        for each in outcomes
    )


def _timestamps(instants: Iterable[datetime] | None) -> tuple[str, ...] | None:
    return None if instants is None else tuple(format_instant(instant) for instant in instants)


def _show_misfire(rule: Misfire) -> str | FireWithin:
    return FireWithin(rule.within_seconds) if rule.mode is MisfireMode.WITHIN else rule.mode
