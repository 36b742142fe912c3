"""How jobs that send messages stand: their states add up, and what is told of their end follows from the rate."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.core.instants import ns
from shared.jobs.rules.jobs import Job, JobStatus, Plan
from shared.messages.rules.jobs import Ahead, Forecast, MessageCounts, counted_states, forecast, moves_on, share_of
from tests.jobs.made import a_job

NOW = datetime(2026, 12, 24, 14, tzinfo=UTC)
COUNTS = MessageCounts(planned=100, tally={"sent": 40})


def running(**fields: object) -> Job:
    return replace(a_job(), plan=Plan(end=5), **fields)


tallies = st.dictionaries(st.sampled_from([*counted_states(), "repeated", "reasons.refused"]), st.integers(0, 50))


@given(tally=tallies, more=st.integers(0, 50))
def test_the_states_add_up_to_what_is_planned(tally: dict[str, int], more: int) -> None:
    called = sum(count for name, count in tally.items() if name in counted_states())
    counts = MessageCounts(planned=called + more, tally=tally)
    assert counts.unsent == more
    assert counts.unsent + sum(counts.by_state.values()) == counts.planned
    assert sum(counts.reasons.values()) == tally.get("reasons.refused", 0)
    assert counts.receipt.recipients == called - tally.get("sending", 0)
    assert counts.receipt.reasons.get("unknown", 0) == tally.get("unknown", 0) <= counts.receipt.failed


def test_a_running_job_begins_behind_what_is_ahead() -> None:
    told = forecast(running(), COUNTS, Ahead(2, 300, 30.0), now=NOW)
    assert told == Forecast(2, 300, 10.0, NOW + timedelta(seconds=12))


def test_a_job_that_waits_begins_at_its_start_at_the_earliest() -> None:
    job = replace(a_job(), status=JobStatus.SCHEDULED, starts_at=ns(NOW + timedelta(minutes=1)))
    assert forecast(job, MessageCounts(), Ahead(1, 300, 30.0), now=NOW).starts_in == 60.0
    assert forecast(job, MessageCounts(), Ahead(1, 3_000, 30.0), now=NOW).starts_in == 100.0


def test_nobody_guesses_the_end_of_what_is_not_planned_to_its_end() -> None:
    assert forecast(a_job(), COUNTS, Ahead(rate=10.0), now=NOW) == Forecast(0, 0, 0.0, None)


def test_where_nothing_leaves_nobody_knows_when() -> None:
    assert forecast(running(), COUNTS, Ahead(1, 5, 0.0), now=NOW) == Forecast(1, 5, None, None)


@pytest.mark.parametrize("status", [JobStatus.PAUSED, JobStatus.TRIPPED, JobStatus.STOPPED, JobStatus.COMPLETED])
def test_what_does_not_move_has_no_queue(status: JobStatus) -> None:
    job = running(status=status)
    assert not moves_on(job)
    assert forecast(job, COUNTS, Ahead(1, 5, 10.0), now=NOW) == Forecast()


def test_shares_divide_the_rate() -> None:
    assert share_of(1, {}) == 1.0
    assert share_of(2, {"a": 1, "b": 1}) == 0.5
