"""Schedules: a caller's key and labels, the instants, and the callback of each.

    active <──> paused
       └──> finished      (nothing is left to fire)

Occurrences are stored before their schedule, which makes them count. So a stored schedule is complete, and a
process that dies half-way leaves occurrences without a schedule. A replaced schedule gets a new generation: the
occurrences of the old one are void.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import Callback
from shared.clock.rules.occurrences import (
    SCHEDULE,
    Occurrence,
    OccurrenceKind,
    Owner,
    at_offset,
    lateness,
    once,
    owner_text,
    read_owner,
    series,
)
from shared.clock.rules.recurrence import Recurrence, next_after
from shared.core.documents import final
from shared.core.errors import Invalid
from shared.core.ids import canonical_json
from shared.core.instants import EPOCH, LATEST, format_instant, spread_ms

LABELS = 20
"""Maximum for a schedule and for a filter."""


def label_text(name: str, value: str) -> str:
    return f"{name}:{value}"


def is_findable(name: str, value: str) -> bool:
    """Whether a filter can name the label without ambiguity."""
    return not {":", ","} & {*name} and "," not in value


def read_labels(text: str, *, field: str = "label") -> tuple[str, ...]:
    """The labels of a filter, such as `team:billing,env:prod`; none for an empty text."""
    labels = tuple(text.split(",")) if text else ()
    if len(labels) > LABELS:
        raise Invalid(f"must name at most {LABELS} labels", field=field)
    if not all(label.partition(":")[0] and ":" in label for label in labels):
        raise Invalid("must be name:value, such as team:billing; join several by commas", field=field, value=text)
    return labels


KEY = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")
TIMESTAMPS = 10_000
OFFSETS = 1_000
# The time for which occurrences without a schedule are kept. A schedule is stored within half of this, or not at
# all.
COMMITTED_WITHIN = timedelta(hours=1)


class ScheduleState(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"  # fires
    PAUSED = "paused"  # held by its owner
    FINISHED = "finished"  # every instant is finished; deleted later. A new content begins it anew


TRANSITIONS: dict[ScheduleState, frozenset[ScheduleState]] = {
    ScheduleState.ACTIVE: frozenset({ScheduleState.PAUSED, ScheduleState.FINISHED}),
    ScheduleState.PAUSED: frozenset({ScheduleState.ACTIVE}),
    ScheduleState.FINISHED: frozenset(),
}
PENDING = frozenset(ScheduleState) - final(TRANSITIONS)


class MisfireMode(StrEnum):
    FIRE = "fire"  # fires at any lateness
    SKIP = "skip"  # does not fire
    WITHIN = "fire_within_seconds"  # fires unless it is later than that


class Misfire(Struct, frozen=True):
    """The rule for first attempts that are found late; retries are not."""

    mode: MisfireMode = MisfireMode.FIRE
    within_seconds: float = 0.0


class Definition(Struct, frozen=True, kw_only=True):
    """The content of a schedule: either `instants` (sorted, unique) or a `recurrence`. With an `anchor`, the instants
    are those at the `offsets_ms` from it (sorted, unique).

    `window_seconds` delays every instant by the same shorter time, which follows from a hash of the key.
    """

    callback: Callback
    instants: tuple[datetime, ...] = ()
    anchor: datetime | None = None
    offsets_ms: tuple[int, ...] = ()
    recurrence: Recurrence | None = None
    max_occurrences: int | None = None
    window_seconds: float = 0.0
    misfire: Misfire = Misfire()
    retry: Retry = Retry()
    labels: dict[str, str] = {}


_OFFSET = re.compile(r"([+-]?)(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNIT_MS = (86_400_000, 3_600_000, 60_000, 1_000)
LONGEST_OFFSET_MS = 3_650 * _UNIT_MS[0]


def read_offset(text: str, *, field: str) -> int:
    """The milliseconds of an offset such as `-90m` or `+1h30m`."""
    found = _OFFSET.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        reason = "an offset is a sign, and days, hours, minutes or seconds, as in -90m, +1h30m or 0s"
        raise Invalid(reason, field=field, value=text)
    sign, *numbers = found.groups()
    offset = sum(int(number or 0) * unit for number, unit in zip(numbers, _UNIT_MS, strict=True))
    if offset > LONGEST_OFFSET_MS:
        raise Invalid("an offset has at most 3,650 days", field=field, value=text)
    return -offset if sign == "-" else offset


def show_offset(offset_ms: int) -> str:
    """The offset in its largest whole unit."""
    unit = next(unit for unit in _UNIT_MS if offset_ms % unit == 0 and (offset_ms or unit == _UNIT_MS[-1]))
    return f"{'+' if offset_ms > 0 else ''}{offset_ms // unit}{'dhms'[_UNIT_MS.index(unit)]}"


def with_anchor(definition: Definition, anchor: datetime) -> Definition:
    """The definition at this anchor. Raises `Invalid` if an offset leads out of the range of instants."""
    try:
        instants = tuple(anchor + timedelta(milliseconds=offset) for offset in definition.offsets_ms)
    except OverflowError:
        instants = ()
    if not instants or instants[0] < EPOCH or instants[-1] > LATEST:
        rule = "an offset from this anchor lies before 1970 or after 2200"
        raise Invalid(rule, field="anchor", value=format_instant(anchor))
    return msgspec.structs.replace(definition, anchor=anchor, instants=instants)


class Schedule(Struct, frozen=True, kw_only=True):
    """A stored schedule. `digest` distinguishes contents. Times are the database's.

    At `sweep_at` the sweep looks whether it has ended; `None` for an open-ended series. `made_by` is the id of the
    token that gave it this content, "" for a person or if unknown. `last_job_id` is the last job that it started, or
    was about to start, at `last_job_at`. `last_move` names the last request that moved many schedules, and this one.
    """

    id: str
    namespace: str
    key: str
    generation: str
    digest: str
    definition: Definition
    state: ScheduleState = ScheduleState.ACTIVE
    created_at: datetime
    accepted_at: datetime
    sweep_at: datetime | None = None
    finished_at: datetime | None = None
    made_by: str = ""
    last_job_id: str = ""
    last_job_at: datetime | None = None
    last_move: str = ""

    @property
    def is_active(self) -> bool:
        return is_active(self.state)

    @property
    def is_paused(self) -> bool:
        return self.state is ScheduleState.PAUSED

    @property
    def is_finished(self) -> bool:
        return self.state is ScheduleState.FINISHED

    @property
    def owner(self) -> str:
        return owner_of(self.id)

    @property
    def size(self) -> int:
        """The approximate size of a message in bytes."""
        return len(self.definition.callback.payload)


def schedule_id(namespace: str, key: str) -> str:
    return f"{_quote_namespace(namespace)}/{key}"


def is_active(state: ScheduleState) -> bool:
    return state is ScheduleState.ACTIVE


def owner_of(schedule_id: str) -> str:
    return owner_text(Owner(SCHEDULE, schedule_id))


def owners_of(namespace: str) -> str:
    """The prefix of the owners of a namespace's occurrences of schedules; of all namespaces', for `""`."""
    return owner_of(schedule_id(namespace, "") if namespace else "")


def read_schedule_id(id_: str) -> tuple[str, str]:
    """The namespace and the key of a schedule."""
    namespace, _, key = id_.rpartition("/")
    return unquote(namespace), key


def read_schedule_owner(owner: str) -> tuple[str, str]:
    return read_schedule_id(read_owner(owner).id)


@lru_cache(maxsize=1_024)
def _quote_namespace(namespace: str) -> str:
    return quote(namespace, safe=":@")


def check_key(key: str) -> None:
    if KEY.fullmatch(key) is None:
        raise Invalid("a key has 1 to 255 of letters, digits and - _ . ~ :", field="key", value=key)


def digest(definition: Definition) -> str:
    """The digest of a content: SHA-256 of the definition, independent of the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()


def as_asked(definition: Definition) -> dict[str, Any]:
    """The fields of a definition in the API's spelling; a payload is canonical JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(definition)
    callback, recurrence = fields.pop("callback"), fields.pop("recurrence") or {}
    callback["payload"] = canonical_json(callback["payload"].encode())
    return fields | {
        "callback": {"type": callback.pop("type"), "data": callback},
        "schedules": () if definition.anchor else fields["instants"],
        "cron": recurrence.get("line"),
        "timezone": recurrence.get("timezone"),
        "every": recurrence.get("seconds"),
        "starts_at": recurrence.get("starts_at"),
        "ends_at": recurrence.get("ends_at"),
        "misfire": tuple(fields["misfire"].values()),
        "instants": None,
    }


def has_content(schedule: Schedule, definition: Definition) -> bool:
    """Whether the schedule, with its instants, has this content, except for the spelling of its payload."""
    return schedule.digest == digest(definition) or as_asked(schedule.definition) == as_asked(definition)


def spread(definition: Definition, key: str) -> timedelta:
    """The delay of the key's instants within their window."""
    return (
        timedelta(milliseconds=spread_ms(key, definition.window_seconds)) if definition.window_seconds else timedelta()
    )


def split_by_now(definition: Definition, now: datetime) -> tuple[list[datetime], list[datetime]]:
    """A list's future instants, and its past ones, which do not fire."""
    ahead = [instant for instant in definition.instants if instant > now]
    return ahead, list(definition.instants[: len(definition.instants) - len(ahead)])


def next_due(definition: Definition, key: str, after: datetime) -> datetime | None:
    """The instant of a recurrence that follows `after`, with its delay; `None` if there is none."""
    if definition.recurrence is None:
        return None
    delay = spread(definition, key)
    following = next_after(definition.recurrence, after - delay)
    return None if following is None else following + delay


def due_instants(definition: Definition, key: str, after: datetime, runs: int = 0) -> Iterator[datetime]:
    """The instants that follow `after`, with their delay; a recurrence has had `runs` already."""
    if definition.recurrence is None:
        delay = spread(definition, key)
        yield from (instant + delay for instant in definition.instants if instant + delay > after)
        return
    due = next_due(definition, key, after)
    while due is not None and (definition.max_occurrences is None or runs < definition.max_occurrences):
        yield due
        runs += 1
        due = next_due(definition, key, due)


def occurrences(schedule: Schedule) -> list[Occurrence]:
    """The occurrences to insert for the schedule: one for each instant after its acceptance, or the series. Around an
    anchor, past ones are parked."""
    definition, accepted_at = schedule.definition, schedule.accepted_at
    if definition.recurrence is not None:
        first = next_due(definition, schedule.key, accepted_at)
        if first is None:
            return []
        return [series(schedule.owner, schedule.generation, first, accepted_at=accepted_at, size=schedule.size)]
    delay = spread(definition, schedule.key)
    owner, generation, size = schedule.owner, schedule.generation, schedule.size
    if definition.anchor is not None:
        return [
            at_offset(owner, generation, offset, due + delay, accepted_at=accepted_at, size=size)
            for offset, due in zip(definition.offsets_ms, definition.instants, strict=True)
        ]
    ahead, _ = split_by_now(definition, accepted_at)
    return [once(owner, generation, due + delay, accepted_at=accepted_at, size=size) for due in ahead]


def offset_due(definition: Definition, key: str, offset_ms: int) -> datetime | None:
    """The instant at an offset; `None` if the definition does not have it."""
    if definition.anchor is None or offset_ms not in definition.offsets_ms:
        return None
    return definition.anchor + timedelta(milliseconds=offset_ms) + spread(definition, key)


def last_due(definition: Definition, key: str) -> datetime | None:
    return definition.instants[-1] + spread(definition, key) if definition.instants else None


def next_occurrence(
    definition: Definition, key: str, occurrence: Occurrence, *, passed_over: datetime | None = None
) -> Occurrence | None:
    """A series' document at its next instant; `None` if the series has ended. Instants up to `passed_over` are skipped,
    unless `max_occurrences` counts them."""
    runs = occurrence.runs + 1
    if definition.max_occurrences is not None and runs >= definition.max_occurrences:
        return None
    after = occurrence.due
    if passed_over is not None and definition.max_occurrences is None:
        after = max(after, passed_over)
    due = next_due(definition, key, after)
    if due is None:
        return None
    return msgspec.structs.replace(
        occurrence, due=due, fires_at=due, visible_at=due, token="", attempts=0, claims=0, begun=0, runs=runs
    )


class Verdict(Enum):
    FIRE = "fire"
    SKIP = "skip"  # found too late, by its owner's rule
    HOLD = "hold"  # its schedule is paused
    MOVE = "move"  # its schedule's anchor was moved
    WAIT = "wait"  # its schedule is missing, and may still be stored
    VOID = "void"  # its schedule is deleted or replaced


def verdict_of(schedule: Schedule | None, occurrence: Occurrence, now: datetime) -> Verdict:
    """Decide about a due occurrence at any lateness."""
    due: datetime | None = occurrence.due
    if schedule is not None and occurrence.kind is OccurrenceKind.OFFSET:
        due = offset_due(schedule.definition, schedule.key, occurrence.offset_ms)
    if schedule is None or schedule.generation != occurrence.generation or due is None:
        return Verdict.WAIT if now < occurrence.accepted_at + COMMITTED_WITHIN else Verdict.VOID
    if due != occurrence.due:
        return Verdict.MOVE
    if schedule.state is ScheduleState.PAUSED and occurrence.kind is not OccurrenceKind.ASKED:
        return Verdict.HOLD
    return Verdict.FIRE


def judge(
    schedule: Schedule | None, occurrence: Occurrence, now: datetime, *, tick: timedelta, misfire_after: timedelta
) -> Verdict:
    """Decide as `verdict_of` does, and by the misfire rule. Later than `misfire_after` is "found late"."""
    verdict = verdict_of(schedule, occurrence, now)
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


def carillon_headers(occurrence: Occurrence, schedule: Schedule) -> dict[str, str]:
    """The headers of every message beside its payload and its id."""
    return {
        "carillon-key": schedule.key,
        "carillon-due": format_instant(occurrence.due),
        "carillon-attempt": str(occurrence.attempts + 1),
    }
