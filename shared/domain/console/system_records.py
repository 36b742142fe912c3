"""Audit records of Carillon's own acts (jobs that trip, complete or stop, processes that are gone), and the events of
such jobs on the bus.

A scheduler writes each record after the move that it describes, and again if it may be missing. The record's id follows
from the move and its time, so the audit has it once, among the others of that time.
"""

from datetime import datetime
from hashlib import blake2b

import msgspec

from shared.domain.console.audit import SYSTEM, ActedOn, Actor, ActOutcome, AuditRecord
from shared.domain.console.processes import GONE_AFTER, RunningProcess
from shared.domain.ids import time_ordered_id
from shared.domain.instants import format_instant, ns
from shared.domain.jobs.events import COMPLETE, STOP_ACT, TRIP, Milestone
from shared.domain.jobs.totals import Totals
from shared.domain.outbox import JOBS_TOPIC, OwnEvent, without_empty

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
    milestone: Milestone, *, job_id: str, job_key: str, app_id: str, group_id: str, totals: Totals | None
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
