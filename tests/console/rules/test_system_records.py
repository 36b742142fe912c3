"""What the audit is told of Carillon by itself has one id, whoever tells it."""

from datetime import timedelta

from msgspec.structs import replace

from shared.console.rules.audit import ActedOn, Actor, ActOutcome, AuditRecord, gone_record, milestone_record
from shared.console.rules.processes import GONE_AFTER
from shared.core.ids import time_ordered_id
from shared.core.instants import ns
from shared.jobs.rules.events import COMPLETE, TRIP, Milestone
from tests.console.rules.test_processes import NOON, a_process

TRIPPED = Milestone(TRIP, NOON, "worker", "3 of 10 batches failed")


def told(milestone: Milestone, key: str = "j.1") -> AuditRecord:
    return milestone_record(milestone, job_id="j", job_key=key, app_id="a", name="like,love")


def test_a_milestone_is_told_with_its_role_its_job_and_why() -> None:
    record = told(TRIPPED)
    assert (record.at, record.act, record.reason) == (NOON, "job.trip", "3 of 10 batches failed")
    assert (record.who, record.who.kind) == (Actor(namespace="system", name="worker"), "system")
    assert record.on == ActedOn(kind="job", id="j", name="like,love", app_id="a")
    assert (record.outcome, record.status) == (ActOutcome.DONE, 0)


def test_one_thing_has_one_id_and_others_have_others() -> None:
    assert told(TRIPPED).id == told(TRIPPED).id
    others = [
        told(Milestone(COMPLETE, NOON, "worker")),
        told(replace(TRIPPED, at=NOON + timedelta(milliseconds=1))),
        told(TRIPPED, key="j.2"),
        gone_record(a_process(id="j.1", seen_at=NOON - GONE_AFTER), role="worker"),
    ]
    assert len({record.id for record in [told(TRIPPED), *others]}) == 5


def test_it_stands_among_others_by_its_time() -> None:
    earlier, later = (time_ordered_id(ns(NOON + timedelta(milliseconds=each)), 7) for each in (-1, 1))
    assert earlier < told(TRIPPED).id < later


def test_a_process_is_gone_from_the_moment_on_at_which_it_counts_as_gone() -> None:
    silent = a_process(id="host/7", seen_at=NOON, roles=("worker", "feedback"), in_hand_count=3)
    record = gone_record(silent, role="scheduler")
    assert (record.at, record.act, record.who.name) == (NOON + GONE_AFTER, "process.gone", "scheduler")
    assert record.on == ActedOn(kind="process", id="host/7", name="worker, feedback")
    assert record.reason == "last heard of at 2030-01-01T12:00:00Z, with 3 things in hand"
    assert gone_record(silent, role="scheduler").id == gone_record(replace(silent, phase="x"), role="api").id
