"""Bulk actions: one act on everything that matches a filter, done by workers in pages.

    waiting ───> running ───> done
       │            ├───────> failed      (its maker has lost the right, or by Carillon's fault)
       └────────────┴───────> cancelled

Things later than the action are left alone: later deaths of letters, and schedules and jobs made meanwhile.
"""

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from shared.accounts.rules.apps import EVERYWHERE, Role
from shared.accounts.rules.callers import Caller
from shared.clock.rules.schedules import read_labels
from shared.core.documents import final
from shared.core.errors import Invalid
from shared.core.tasks import Task

OPEN_AT_ONCE = 20
"""Maximum open actions of a namespace: workers do them in turns."""
FILTER_CHARACTERS = 1_000
FAILURES = 100
"""Maximum stored failures of an action."""


class BulkAct(StrEnum):
    """The act on each thing, in the words of the audit."""

    RETRY_LETTERS = "dead-letter.retry"
    DISCARD_LETTERS = "dead-letter.discard"
    PAUSE_SCHEDULES = "schedule.pause"
    RESUME_SCHEDULES = "schedule.resume"
    DELETE_SCHEDULES = "schedule.delete"
    PAUSE_JOBS = "job.pause"
    RESUME_JOBS = "job.resume"
    STOP_JOBS = "job.stop"

    @property
    def kind(self) -> str:
        return self.partition(".")[0]


class BulkState(StrEnum):
    """The state of an action."""

    WAITING = "waiting"  # no worker has it yet
    RUNNING = "running"  # a worker has it, or will have it again
    DONE = "done"  # every match was looked at; final
    CANCELLED = "cancelled"  # the rest is left alone; final
    FAILED = "failed"  # `failure` is the reason; the rest is left alone; final


TRANSITIONS: dict[BulkState, frozenset[BulkState]] = {
    BulkState.WAITING: frozenset({BulkState.RUNNING, BulkState.CANCELLED}),
    BulkState.RUNNING: frozenset({BulkState.DONE, BulkState.CANCELLED, BulkState.FAILED}),
    BulkState.DONE: frozenset(),
    BulkState.CANCELLED: frozenset(),
    BulkState.FAILED: frozenset(),
}
ENDED = final(TRANSITIONS)


class BulkFilter(Struct, frozen=True, kw_only=True):
    """A choice of things; empty texts do not count. Dead letters: of a `namespace` (`*` for all), a `key`, an `error`.
    Schedules: of a `namespace`, with the key's `prefix`, a `state`, and each `label` of `a:b,c:d`. Jobs: of the app
    with this id, with a `status`, exactly these `template` names, and the maker `by`."""

    namespace: str = ""
    key: str = ""
    error: str = ""
    prefix: str = ""
    state: str = ""
    label: str = ""
    app: str = ""
    status: str = ""
    template: str = ""
    by: str = ""


_FIELDS = {
    "dead-letter": frozenset({"namespace", "key", "error"}),
    "schedule": frozenset({"namespace", "prefix", "state", "label"}),
    "job": frozenset({"app", "status", "template", "by"}),
}


class BulkFailure(Struct, frozen=True):
    id: str
    reason: str


class BulkTally(Struct, frozen=True):
    done: int = 0
    skipped: int = 0
    failures: tuple[BulkFailure, ...] = ()


class BulkAction(Struct, frozen=True, kw_only=True):
    """An action. `matched` things existed when it was made; `position` is the beginning of the next page, in the order
    of the kind. `created_at` is by the database's clock, `created_ns` by the API's, as the age of a job is. `token`
    names a worker's hold, which ends at `leased_until`.

    The counts are those that workers stored. The finished part of a page whose worker died is not counted.
    """

    id: str
    act: BulkAct
    filter: BulkFilter
    reason: str
    matched: int
    created_by: str
    created_at: datetime
    created_ns: int
    namespace: str
    token_id: str = ""
    audit_id: str = ""
    state: BulkState = BulkState.WAITING
    open: bool = True
    position: str = ""
    done: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple[BulkFailure, ...] = ()
    failure: str = ""
    cancelled_by: str = ""
    token: str = ""
    leased_until: datetime
    changed_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done, except a worker's present page."""
        return self.state in ENDED


def check_filter(act: BulkAct, filter: BulkFilter) -> None:
    named = {name for name, value in asdict(filter).items() if value}
    if not named:
        raise Invalid(
            "give at least one filter, such as namespace, app or state: nothing is done to all things at once",
            field="filter",
        )
    for name in sorted(named):
        if len(getattr(filter, name)) > FILTER_CHARACTERS:
            raise Invalid(f"at most {FILTER_CHARACTERS:,} characters", field=f"filter.{name}")
    read_labels(filter.label, field="filter.label")
    fields = _FIELDS[act.kind]
    for name in sorted(named - fields):
        rule = f"the filter of {act} takes {', '.join(sorted(fields))}"
        raise Invalid(rule, field=f"filter.{name}", value=getattr(filter, name))


def role_over(caller: Caller, act: BulkAct, filter: BulkFilter) -> Role | None:
    """The caller's role over everything that may match. Without an app, a role over everything."""
    if act.kind != "job":
        return caller.role_over_namespace(filter.namespace or caller.namespace)
    return caller.role_over_app(filter.app) if filter.app else caller.role_over_namespace(EVERYWHERE)


def may_act(caller: Caller, act: BulkAct, filter: BulkFilter) -> bool:
    held = role_over(caller, act, filter)
    return held is not None and held.covers(Role.OPERATOR)


BULK_QUEUE = "ops.bulk"


class RunBulkAction(Task, frozen=True, tag="bulk"):
    """Continue a bulk action from its present state, which its document describes."""

    queue: ClassVar[str] = BULK_QUEUE
    action_id: str
