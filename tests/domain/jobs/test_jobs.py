"""The life of jobs and batches, as tables and rules."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.domain.audience.sources import PushTable
from shared.domain.instants import EPOCH
from shared.domain.jobs import jobs
from shared.domain.jobs.batches import (
    OTHER,
    RECEIPT_ENTRIES,
    RECEIPT_KEY_BYTES,
    BatchStatus,
    Receipt,
    top,
    verdict,
)
from shared.domain.jobs.jobs import (
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
)
from shared.domain.push.records import APNS
from shared.domain.transitions import sources

counts = st.dictionaries(st.text(max_size=60), st.integers(1, 10**9), max_size=40)
receipts = st.builds(
    Receipt,
    sent=st.integers(0, 10**6),
    failed=st.integers(0, 10**6),
    skipped=st.integers(0, 10**6),
    held_out=st.integers(0, 10**6),
    reasons=counts,
    locales=counts,
)


def test_what_users_may_ask_for_is_in_the_table() -> None:
    assert sources(jobs.TRANSITIONS, JobStatus.PAUSED) >= PAUSABLE
    assert sources(jobs.TRANSITIONS, JobStatus.RUNNING) == RESUMABLE | STARTABLE
    assert sources(jobs.TRANSITIONS, JobStatus.SCHEDULED) < RESUMABLE
    assert sources(jobs.TRANSITIONS, JobStatus.STOPPED) == STOPPABLE
    assert JobStatus.COMPLETED not in STOPPABLE | PAUSABLE | RESUMABLE


@given(st.sampled_from(JobStatus), st.integers(0, 10), st.integers(0, 10))
def test_the_gate(status: JobStatus, expires_at: int, now: int) -> None:
    outcome = gate(Standing(status, None, expires_at), now)
    if expires_at and expires_at <= now:
        assert outcome is Gate.DROP
    elif status is JobStatus.RUNNING:
        assert outcome is Gate.OPEN
    else:
        held = status in {JobStatus.PAUSED, JobStatus.TRIPPED, JobStatus.SCHEDULED}
        assert outcome is (Gate.PARK if held else Gate.DROP)


@given(st.sampled_from(JobStatus), st.none() | st.integers(0, 5))
def test_a_job_may_finish_when_it_runs_to_its_end_or_is_stopped(status: JobStatus, end: int | None) -> None:
    expected = status is JobStatus.STOPPED or (status is JobStatus.RUNNING and end is not None)
    assert Standing(status, end, 0).may_finish is expected


@given(receipts, receipts, receipts)
def test_receipts_add_up_in_any_order(one: Receipt, two: Receipt, three: Receipt) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert (one + two).recipients == one.recipients + two.recipients
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
