"""What is told of a job that is under way."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.progress import WINDOW, Meter, Progress, Settled

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def settled(seconds_ago: float, receipt: Receipt) -> Settled:
    at = NOW - timedelta(seconds=seconds_ago)
    return Settled(receipt, taken_at=at - timedelta(seconds=1), changed_at=at)


def progress(batches: Iterable[Settled], totals: Totals, *, planned: bool, now: datetime) -> Progress:
    meter = Meter(now)
    for batch in batches:
        meter.add(batch)
    return meter.progress(totals, planned=planned)


def test_the_rate_is_that_of_the_last_half_minute_and_the_end_follows_from_it() -> None:
    batches = [
        settled(100, Receipt(sent=9_000)),
        settled(9, Receipt(sent=900, failed=50, reasons={"too-large": 50})),
        settled(0, Receipt(sent=40, skipped=10, reasons={"no-token": 10})),
    ]
    totals = Totals(batches=9, settled=3, planned=11_000, sent=9_940, failed=50, skipped=10)
    told = progress(batches, totals, planned=True, now=NOW)
    assert told.rate == 100
    assert told.ends_at == NOW + timedelta(seconds=10)


def test_what_was_settled_half_a_minute_ago_counts_no_more() -> None:
    totals = Totals(batches=1, settled=1, planned=10, sent=10)
    for seconds_ago, rate in [(29.9, 10 / 30.9), (30, 0.0), (0, 10.0)]:
        told = progress([settled(seconds_ago, Receipt(sent=10))], totals, planned=True, now=NOW)
        assert told.rate == pytest.approx(rate)


def test_a_batch_of_a_moment_does_not_make_a_rate_without_end() -> None:
    at_once = Settled(Receipt(sent=10), taken_at=NOW, changed_at=NOW)
    assert progress([at_once], Totals(), planned=True, now=NOW).rate == 10


def test_a_batch_of_messages_under_way_is_measured_from_its_beginning_or_from_an_earlier_look() -> None:
    meter = Meter(NOW)
    meter.add(Settled(Receipt(sent=300), NOW - timedelta(seconds=60), NOW))  # it was paused for half of this
    assert meter.progress(Totals(), planned=True).rate == 5
    meter.compare(NOW - timedelta(seconds=1), 30)  # too short a time to tell
    assert meter.progress(Totals(), planned=True).rate == 5
    meter.compare(NOW - timedelta(seconds=20), 200)
    assert meter.progress(Totals(), planned=True).rate == 10


def test_a_batch_that_does_not_tell_when_it_was_taken_counts_from_when_it_was_settled() -> None:
    never_taken = Settled(Receipt(failed=10), taken_at=None, changed_at=NOW - timedelta(seconds=5))
    never_changed = Settled(Receipt(sent=90), taken_at=None, changed_at=None)
    assert progress([never_taken, never_changed], Totals(), planned=True, now=NOW).rate == 2


def test_the_last_recipient_has_an_end_too() -> None:
    totals = Totals(batches=2, settled=1, planned=11, sent=10)
    told = progress([settled(0, Receipt(sent=10))], totals, planned=True, now=NOW)
    assert told.ends_at == NOW + timedelta(seconds=0.1)


def test_nothing_is_guessed_before_the_plan_has_its_end_or_while_nothing_moves() -> None:
    batches = [settled(1, Receipt(sent=10))]
    totals = Totals(batches=2, settled=1, planned=20, sent=10)
    assert progress(batches, totals, planned=False, now=NOW).ends_at is None
    assert progress(batches, totals, planned=True, now=NOW + WINDOW) == Progress()
    assert progress([], Totals(), planned=True, now=NOW) == Progress()


def test_a_job_that_is_done_ends_nowhere() -> None:
    totals = Totals(batches=1, settled=1, planned=10, sent=10)
    assert progress([settled(0, Receipt(sent=10))], totals, planned=True, now=NOW).ends_at is None
