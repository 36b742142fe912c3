"""The life of jobs and batches, as tables and rules."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.audiences import PushTable
from shared.core.documents import sources
from shared.core.instants import EPOCH
from shared.jobs.rules import events, jobs
from shared.jobs.rules.batches import (
    OTHER,
    RECEIPT_ENTRIES,
    RECEIPT_KEY_BYTES,
    BatchStatus,
    Receipt,
    Totals,
    top,
    verdict,
)
from shared.jobs.rules.events import EventState
from shared.jobs.rules.jobs import (
    PAUSABLE,
    RESUMABLE,
    STARTABLE,
    STOPPABLE,
    Gate,
    Job,
    JobStatus,
    Plan,
    Standing,
    gate,
    split_key,
    with_plan,
)
from shared.push.rules.records import APNS

counts = st.dictionaries(st.text(max_size=60), st.integers(1, 10**9), max_size=40)
receipts = st.builds(
    Receipt,
    sent=st.integers(0, 10**6),
    failed=st.integers(0, 10**6),
    skipped=st.integers(0, 10**6),
    held_out=st.integers(0, 10**6),
    unknown=st.integers(0, 10**6),
    reasons=counts,
    locales=counts,
)


SCHEDULED, RUNNING, PAUSED, TRIPPED, STOPPED, COMPLETED = JobStatus
MOVES = {
    (SCHEDULED, RUNNING): "its start has come",
    (SCHEDULED, PAUSED): "a user holds it",
    (SCHEDULED, STOPPED): "a user ends it",
    (RUNNING, PAUSED): "a user holds it",
    (RUNNING, TRIPPED): "too many batches failed",
    (RUNNING, STOPPED): "a user or a fault ends it",
    (RUNNING, COMPLETED): "all its batches are settled",
    (PAUSED, SCHEDULED): "a user resumes it, and its start lies ahead",
    (PAUSED, RUNNING): "a user resumes it",
    (PAUSED, STOPPED): "a user ends it",
    (TRIPPED, RUNNING): "a user resumes it",
    (TRIPPED, STOPPED): "a user ends it",
}


def test_a_job_moves_for_these_reasons_and_no_other() -> None:
    assert {(status, to) for status, targets in jobs.TRANSITIONS.items() for to in targets} == set(MOVES)
    assert {status: sources(jobs.TRANSITIONS, status) for status in JobStatus} == {
        to: {status for status, target in MOVES if target is to} for to in JobStatus
    }


def test_users_hold_resume_and_end_a_job_where_the_table_says_so() -> None:
    reasons = {
        verb: {status for (status, _), why in MOVES.items() if verb in why} for verb in ("hold", "resume", "end")
    }
    assert reasons == {"hold": PAUSABLE, "resume": RESUMABLE, "end": STOPPABLE}
    assert {SCHEDULED} == STARTABLE


def test_what_callers_read_of_a_job_has_the_same_words_in_every_release() -> None:
    # Clients of Marathon compare them, its misspelt stage too.
    assert [*JobStatus] == ["scheduled", "running", "paused", "circuitbreak", "stopped", "completed"]
    assert [*EventState] == ["running", "success", "fail"]
    assert [events.READ_FILE, events.PLAN, events.SEND, events.SEND_ENDED, events.SEND_DIRECT, events.FINISH] == [
        "csv_split_worker",
        "create_batches_worker",
        "process_batch_worker",
        "process_batche_worker",
        "direct_worker",
        "job_completed_worker",
    ]


def test_what_users_may_ask_for_is_in_the_table() -> None:
    assert sources(jobs.TRANSITIONS, JobStatus.PAUSED) >= PAUSABLE
    assert sources(jobs.TRANSITIONS, JobStatus.RUNNING) == RESUMABLE | STARTABLE
    assert sources(jobs.TRANSITIONS, JobStatus.SCHEDULED) < RESUMABLE
    assert sources(jobs.TRANSITIONS, JobStatus.STOPPED) == STOPPABLE
    assert JobStatus.COMPLETED not in STOPPABLE | PAUSABLE | RESUMABLE


@pytest.mark.parametrize("status", JobStatus)
@given(expires_at=st.integers(0, 10), now=st.integers(0, 10))
def test_the_gate(status: JobStatus, expires_at: int, now: int) -> None:
    outcome = gate(Standing(status, None, expires_at), now)
    if expires_at and expires_at <= now:
        assert outcome is Gate.DROP
    elif status is JobStatus.RUNNING:
        assert outcome is Gate.OPEN
    else:
        held = status in {JobStatus.PAUSED, JobStatus.TRIPPED, JobStatus.SCHEDULED}
        assert outcome is (Gate.PARK if held else Gate.DROP)


@pytest.mark.parametrize("status", JobStatus)
def test_a_standing_tells_what_may_be_done(status: JobStatus) -> None:
    standing = Standing(status, None, 0)
    assert [other for other in JobStatus if standing.is_at(other)] == [status]
    assert standing.feeds is (status is RUNNING)
    assert standing.stopped is (status is STOPPED)


@pytest.mark.parametrize("status", JobStatus)
@given(end=st.none() | st.integers(0, 5))
def test_a_job_may_finish_when_it_runs_to_its_end_or_is_stopped(status: JobStatus, end: int | None) -> None:
    expected = status is JobStatus.STOPPED or (status is JobStatus.RUNNING and end is not None)
    assert Standing(status, end, 0).may_finish is expected


@given(receipts, receipts, receipts)
def test_receipts_add_up_in_any_order(one: Receipt, two: Receipt, three: Receipt) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert (one + two).recipients == one.recipients + two.recipients
    assert (one + two).unknown == one.unknown + two.unknown
    assert one + Receipt() == one


@given(counts)
def test_the_bound_of_a_receipt_keeps_every_count(many: dict[str, int]) -> None:
    few = top(many)
    assert sum(few.values()) == sum(many.values())
    assert len(few) <= RECEIPT_ENTRIES
    assert all(key == OTHER or len(key.encode()) <= RECEIPT_KEY_BYTES for key in few)
    assert top(few) == few


@given(receipts, st.floats(0, 1))
def test_a_batch_fails_above_its_share_of_failures(receipt: Receipt, share: float) -> None:
    failed = verdict(receipt, max_failed_share=share) is BatchStatus.FAILED
    assert failed is (receipt.failed > share * receipt.recipients)


def a_job(status: JobStatus, starts_at: int, highest: int | None) -> Job:
    return Job(
        id="j",
        app_id="a",
        app_name="a",
        service=APNS,
        template_names=("like",),
        created_by="me",
        group_id="g",
        status=status,
        starts_at=starts_at,
        plan=Plan(source=None if highest is None else PushTable(highest)),
    )


@given(st.sampled_from(JobStatus), st.sampled_from([0, 5]), st.none() | st.integers(0, 5))
def test_a_job_waits_for_its_start_until_it_is_begun(status: JobStatus, starts_at: int, highest: int | None) -> None:
    held = status in {JobStatus.SCHEDULED, JobStatus.PAUSED}
    assert a_job(status, starts_at, highest).waits is (held and starts_at > 0 and highest is None)


@given(st.integers(1, 7_289_654_399_999_000_000))
def test_a_start_is_rounded_up_to_a_millisecond(starts_at: int) -> None:
    start = (a_job(JobStatus.SCHEDULED, starts_at, None).starts - EPOCH) // timedelta(microseconds=1) * 1_000
    assert 0 <= start - starts_at < 1_000_000
    assert start % 1_000_000 == 0


def test_a_fresh_job_runs_at_once_and_nothing_happened_to_it() -> None:
    fresh = Job(id="j", app_id="a", app_name="a", service=APNS, template_names=(), created_by="me", group_id="g")
    assert (fresh.status, fresh.open, fresh.unplanned, fresh.ended) == (RUNNING, True, True, False)
    assert (fresh.control_group, fresh.forgiven, fresh.localized) == (0.0, 0, False)
    assert {fresh.expires_at, fresh.starts_at, fresh.created_at, fresh.updated_at, fresh.completed_at} == {0}
    assert fresh.counts_unknown


@given(st.sampled_from(JobStatus), st.booleans())
def test_a_job_has_ended_once_it_is_closed_or_stopped(status: JobStatus, open_: bool) -> None:
    assert replace(a_job(status, 0, None), open=open_).ended is (not open_ or status is STOPPED)


@pytest.mark.parametrize("status", JobStatus)
def test_what_a_standing_feeds_ends_with_the_plan(status: JobStatus) -> None:
    fed = status is RUNNING
    assert Standing(status, None, 0).feeds_batch(10**6) is fed
    assert [Standing(status, 33, 0).feeds_batch(ordinal) for ordinal in (0, 32, 33)] == [fed, fed, False]


def test_its_standing_is_all_of_a_job_that_decides_about_its_batches() -> None:
    job = replace(a_job(PAUSED, 0, 7), plan=Plan(PushTable(7), end=3), expires_at=9)
    assert job.standing == Standing(PAUSED, 3, 9, APNS)


def test_jobs_that_have_one_id_have_different_keys() -> None:
    job = a_job(RUNNING, 0, None)
    assert (job.key, replace(job, incarnation="x").key) == ("j", "j.x")
    assert [split_key(key) for key in ("j", "j.x")] == [("j", ""), ("j", "x")]


def test_all_zones_of_a_group_share_the_cuts_of_its_file() -> None:
    job = replace(a_job(RUNNING, 0, None), incarnation="x")
    assert job.file_plan_id == job.key
    assert {replace(job, id=zone, zone=zone).file_plan_id for zone in ("+0100", "rest")} == {"g.x"}


def test_all_is_decided_about_who_got_it_and_who_did_not() -> None:
    assert Totals(batches=64, settled=32, planned=128, sent=1, failed=2, skipped=4, held_out=8, unknown=16).done == 15
    assert Totals() == Totals(0, 0, 0, 0, 0, 0, 0, 0)


def test_unknown_users_are_those_that_planning_and_sending_found() -> None:
    job = replace(a_job(RUNNING, 0, None), plan=Plan(unknown=3))
    assert with_plan(job, Totals(sent=5, unknown=4)) == Totals(sent=5, unknown=7)
    assert with_plan(a_job(RUNNING, 0, None), Totals(unknown=4)).unknown == 4
