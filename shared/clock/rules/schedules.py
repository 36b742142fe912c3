"""Schedules: a caller's key and labels, the instants, and the callback of each.

    active <──> paused
       └──> finished      (nothing is left to fire)

Occurrences are stored before their schedule, which makes them count. So a stored schedule is complete, and a
process that dies half-way leaves occurrences without a schedule. A replaced schedule gets a new generation: the
occurrences of the old one are void.
"""

import hashlib
import re
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from carillon.wire.clock import Retry
from shared.clock.rules.calendars import Shift
from shared.clock.rules.callbacks import Callback
from shared.clock.rules.occurrences import SCHEDULE, Occurrence
from shared.clock.rules.recurrence import Recurrence
from shared.core.documents import final
from shared.core.errors import Invalid
from shared.core.ids import canonical_json
from shared.core.instants import format_instant

LABELS = 20
"""Maximum for a schedule and for a filter."""


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

    `exclude` names calendars on whose days a recurrence does not fire, and `shift` the day on which it fires instead.
    `window_seconds` delays every instant by the same shorter time, which follows from a hash of the key.
    """

    callback: Callback
    instants: tuple[datetime, ...] = ()
    anchor: datetime | None = None
    offsets_ms: tuple[int, ...] = ()
    recurrence: Recurrence | None = None
    exclude: tuple[str, ...] = ()
    shift: Shift = Shift.NONE
    max_occurrences: int | None = None
    window_seconds: float = 0.0
    misfire: Misfire = Misfire()
    retry: Retry = Retry()
    labels: dict[str, str] = {}


class Backfill(Struct, frozen=True):
    """A request of the time `at` to fire the instants from `since` until `until`. `done`: all of them are stored. If
    its process died, another request took it over at `taken_over_at`."""

    since: datetime
    until: datetime
    at: datetime
    done: bool = False
    taken_over_at: datetime | None = None


class Schedule(Struct, frozen=True, kw_only=True):
    """A stored schedule. `digest` distinguishes contents. Times are the database's.

    At `sweep_at` the sweep looks whether it has ended; `None` for an open-ended series. `made_by` is the id of the
    token that gave it this content, "" for a person or if unknown. `last_job_id` is the last job that it started, or
    was about to start, at `last_job_at`. `last_moves` are the ids of the last bulk moves that moved this schedule.
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
    last_moves: tuple[str, ...] = ()
    backfills: tuple[Backfill, ...] = ()

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


def calendar_ids(namespace: str, definition: Definition) -> tuple[str, ...]:
    return tuple(schedule_id(namespace, name) for name in definition.exclude)


def is_active(state: ScheduleState) -> bool:
    return state is ScheduleState.ACTIVE


def owner_of(schedule_id: str) -> str:
    return f"{SCHEDULE}/{schedule_id}"


def owners_of(namespace: str) -> str:
    """The prefix of the owners of a namespace's occurrences of schedules; of all namespaces', for `""`."""
    return owner_of(schedule_id(namespace, "") if namespace else "")


def read_schedule_id(id_: str) -> tuple[str, str]:
    """The namespace and the key of a schedule."""
    namespace, _, key = id_.rpartition("/")
    return unquote(namespace), key


@lru_cache(maxsize=1_024)
def _quote_namespace(namespace: str) -> str:
    return quote(namespace, safe=":@")


def check_key(key: str, *, field: str = "key") -> None:
    if KEY.fullmatch(key) is None:
        raise Invalid(f"a {field} has 1 to 255 of letters, digits and - _ . ~ :", field=field, value=key)


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
        "offsets": fields.pop("offsets_ms"),
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


def carillon_headers(occurrence: Occurrence, schedule: Schedule) -> dict[str, str]:
    """The headers of every message beside its payload and its id."""
    return {
        "carillon-key": schedule.key,
        "carillon-due": format_instant(occurrence.due),
        "carillon-attempt": str(occurrence.attempts + 1),
    }
