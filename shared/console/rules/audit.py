"""Audit: acts, their doers and their outcomes.

An act is recorded before it is done (`begun`), and its end after it. So every change has a record: a crash in
between leaves `begun`, whose outcome is unknown. A service's acts on its own single schedules are not recorded by
default, because there may be a hundred million of them a day.

Carillon's own acts (`system`: jobs that trip, complete or stop, processes that are gone) are recorded after they
are done. A scheduler writes each record after the move that it describes, and again if it may be missing. The
record's id follows from the move and its time, so the audit has it once, among the others of that time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from shared.console.rules.processes import GONE_AFTER, RunningProcess
from shared.core.documents import JOBS_TOPIC, OwnEvent, without_empty
from shared.core.ids import time_ordered_id
from shared.core.instants import format_instant, ns
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import COMPLETE, STOP_ACT, TRIP, Milestone

UNKNOWN_AFTER = timedelta(minutes=1)
"""An act that is `begun` for longer is shown as unknown, until its end is recorded."""
REASON_CHARACTERS = 1_000
CHANGE_BYTES = 16 * 1024
"""Maximum of the changed fields that is stored, before and after each."""
ENDING_VERBS = frozenset({"stop", "delete", "cancel", "discard", "revoke", "redact"})
"""The last words of destructive acts, for which a deployment may demand a reason."""
SYSTEM = "system"
"""The namespace of acts without a caller."""
OF_NAMESPACES = frozenset({"schedule", "dead-letter", "signing-secret", "subscription", "subscription-topic"})
"""The kinds of things that belong to a namespace, and to no app."""


class ActOutcome(StrEnum):
    """How an act ended."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Actor(Struct, frozen=True, kw_only=True):
    """The doer of an act: the caller, and the address of the request. `way` is the authentication: a `token`, a `proxy`
    that named the caller, or the `session` of a browser. For acts of `system`, `name` is the role of the process."""

    namespace: str
    name: str
    way: str = ""
    address: str = ""

    @property
    def kind(self) -> str:
        """`user`, `token` or `system`."""
        return self.namespace.partition(":")[0]


class ActedOn(Struct, frozen=True, kw_only=True):
    """The object of an act: a job, an app, a schedule. It belongs to `app_id` and `namespace`; `name` is its usual name
    if known, for a job the names of its templates."""

    kind: str
    id: str
    name: str = ""
    app_id: str = ""
    namespace: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    """An act, such as `job.stop`. Ids sort by time. `status` is that of the answer, 0 before it; `reason` is the
    caller's. `count` of an act on many things is the number of matching ones, and in the end of those acted on.
    `before` and `after` have the changed fields of an app, a template, a user or a token. `request_id` is also in the
    log, and `trace` is the id of its trace."""

    id: str
    at: datetime
    act: str
    who: Actor
    on: ActedOn
    via: str = ""
    request_id: str = ""
    trace: str = ""
    reason: str = ""
    outcome: ActOutcome = ActOutcome.BEGUN
    status: int = 0
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    count: int = 0

    def outcome_at(self, now: datetime) -> ActOutcome:
        if self.outcome is ActOutcome.BEGUN and self.at < now - UNKNOWN_AFTER:
            return ActOutcome.UNKNOWN
        return self.outcome


Fields = Mapping[str, Any]


def compare(before: Fields, after: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """The different fields, before and after. A value that is too large is replaced by its size."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name) and name != "updatedAt"]
    return _chosen(before, names), _chosen(after, names)


def _chosen(fields: Fields, names: Sequence[str]) -> dict[str, Any]:
    sizes = {name: len(msgspec.json.encode(fields[name])) for name in names if name in fields}
    return {
        name: fields[name] if size <= CHANGE_BYTES // len(sizes) else f"({size:,} bytes)"
        for name, size in sizes.items()
    }


def kind_of(act: str) -> str:
    """The kind of an act's objects: `job` of `job.stop`."""
    return act.partition(".")[0]


_TOO_MANY = frozenset({"schedule", "message"})


def is_written_of_services(act: str) -> bool:
    """Whether a service's act on its own things is recorded: all but those on single schedules and messages."""
    return kind_of(act) not in _TOO_MANY or act.endswith("-many")


def ends_something(act: str) -> bool:
    """Whether the act is destructive: a deployment may demand a reason."""
    return act.rpartition(".")[2] in ENDING_VERBS


def outcome_of(status: int) -> ActOutcome:
    """The outcome of an act with this answer. If a server was away, its part in the act is unknown."""
    if status < 400:
        return ActOutcome.DONE
    if status < 500:
        return ActOutcome.REFUSED
    return ActOutcome.UNKNOWN if status == 503 else ActOutcome.FAILED


GONE = "process.gone"
_FAILED = "job.failed"
_TYPES = {COMPLETE: "job.completed", TRIP: "job.held", STOP_ACT: "job.stopped"}
_WITH_REASON = {COMPLETE: "job.expired", TRIP: "job.held", STOP_ACT: _FAILED}


def milestone_record(milestone: Milestone, *, job_id: str, job_key: str, app_id: str, name: str) -> AuditRecord:
    on = ActedOn(kind="job", id=job_id, name=name, app_id=app_id)
    return _record(milestone.act, on, job_key, at=milestone.at, role=milestone.role, reason=milestone.reason)


def gone_record(process: RunningProcess, *, role: str) -> AuditRecord:
    """The record of a process without a sign since `seen_at`. A process that shows a sign and falls silent again has
    another record. `role` is that of the process that found it."""
    on = ActedOn(kind="process", id=process.id, name=", ".join(process.roles))
    reason = f"last heard of at {format_instant(process.seen_at)}, with {process.in_hand_count} things in hand"
    return _record(GONE, on, process.id, at=process.seen_at + GONE_AFTER, role=role, reason=reason)


def job_event(
    milestone: Milestone,
    *,
    job_id: str,
    job_key: str,
    app_id: str,
    group_id: str,
    schedule_key: str,
    totals: Totals | None,
) -> OwnEvent | None:
    """The event of a job that has ended or is held; `None` for a milestone of a later release. The reason of a failure
    is left out, because it may name a file, which viewers must not see."""
    kind = (_WITH_REASON if milestone.reason else _TYPES).get(milestone.act)
    if kind is None:
        return None
    facts = {
        "job": job_id,
        "app": app_id,
        "group": group_id,
        "schedule": schedule_key,
        "reason": "" if kind == _FAILED else milestone.reason,
        "by": ("caller" if milestone.asked else "carillon") if milestone.act == STOP_ACT else "",
        "at": format_instant(milestone.at),
        "totals": msgspec.to_builtins(totals) if milestone.act == COMPLETE else None,
    }
    return OwnEvent(
        id=f"{job_key}/{kind}/{ns(milestone.at)}",
        topic=JOBS_TOPIC,
        type=kind,
        path=f"/apps/{app_id}/jobs/{job_id}",
        app_id=app_id,
        data=without_empty(facts),
    )


def _record(act: str, on: ActedOn, thing: str, *, at: datetime, role: str, reason: str) -> AuditRecord:
    noise = int.from_bytes(blake2b(f"{act}/{thing}".encode(), digest_size=8).digest())
    return AuditRecord(
        id=time_ordered_id(ns(at), noise),
        at=at,
        act=act,
        who=Actor(namespace=SYSTEM, name=role),
        on=on,
        reason=reason,
        outcome=ActOutcome.DONE,
    )
