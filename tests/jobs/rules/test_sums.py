"""The sums of a job's batches, kept up while these change."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.progress import BatchCounts, JobSums, RatePoint

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

moments = st.integers(0, 300_000).map(lambda ms: NOON + timedelta(milliseconds=ms))
numbers = st.integers(0, 50)
named = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 9))
receipts = st.builds(Receipt, numbers, numbers, numbers, numbers, numbers, named, named)
counted = st.builds(BatchCounts, numbers, st.booleans(), receipts, st.none() | moments, st.none() | moments)


def told(sums: JobSums) -> tuple[object, ...]:
    return sums.totals, sums.by_reason, sums.chart(), len(sums), sums.last


@given(st.lists(st.tuples(st.integers(0, 5), counted), max_size=30))
def test_they_are_those_of_what_each_batch_counts_in_the_end(puts: list[tuple[int, BatchCounts]]) -> None:
    sums, afresh = JobSums(), JobSums()
    for ordinal, counts in puts:
        sums.put(ordinal, counts)
    for ordinal, counts in dict(puts).items():
        afresh.put(ordinal, counts)
    assert told(sums) == told(afresh)
    recent = sorted((each.changed_at, each.receipt.sent) for each in sums.recent if each.changed_at)
    assert recent == sorted((each.changed_at, each.receipt.sent) for each in afresh.recent if each.changed_at)


@given(st.lists(counted, max_size=8))
def test_they_are_the_sums(batches: list[BatchCounts]) -> None:
    sums, settled = JobSums(), [each.receipt for each in batches if each.settled]
    for ordinal, counts in enumerate(batches):
        sums.put(ordinal, counts)
    every = sum((each.receipt for each in batches), Receipt())
    assert sums.totals == Totals(
        len(batches), len(settled), sum(each.size for each in batches),
        every.sent, every.failed, every.skipped, every.held_out, every.unknown,
    )  # fmt: skip
    by_reason = sum(settled, Receipt())
    assert sums.by_reason == Receipt(reasons=by_reason.reasons, locales=by_reason.locales)


def test_a_batch_under_way_counts_in_the_rate_second_by_second() -> None:
    sums = JobSums()
    sums.put(0, BatchCounts(500, False, Receipt(sent=40), NOON, NOON + timedelta(seconds=3.9)))
    assert sums.chart() == [RatePoint(NOON + timedelta(seconds=second), 10) for second in range(4)]
    assert [each.receipt.sent for each in sums.recent] == [40] and sums.totals.settled == 0


def test_the_chart_follows_the_pauses_as_they_come() -> None:
    sums, start = JobSums(), int(NOON.timestamp())
    sums.put(0, BatchCounts(500, False, Receipt(sent=40), NOON, NOON + timedelta(seconds=3.9)))
    sums.chart()
    rates = [[point.per_second for point in sums.chart(pauses)] for pauses in (((start + 1, start + 3),), ())]
    assert rates == [[20, 0, 0, 20], [10, 10, 10, 10]]
    sums.chart(((start + 1, start + 3),))
    sums.put(0, BatchCounts(500, True, Receipt(sent=60), NOON, NOON + timedelta(seconds=4.9)))
    assert [point.per_second for point in sums.chart(((start + 1, start + 3),))] == [20, 0, 0, 20, 20]


def test_a_job_without_batches_has_none() -> None:
    assert told(JobSums()) == (Totals(), Receipt(), [], 0, -1)
    assert 0 not in JobSums()


def test_what_was_settled_long_ago_is_forgotten_as_recent_and_still_counts() -> None:
    sums = JobSums()
    sums.put(0, BatchCounts(10, True, Receipt(sent=10), None, NOON))
    sums.put(1, BatchCounts(20, True, Receipt(sent=20), None, NOON + timedelta(seconds=1)))
    sums.forget_recent(NOON + timedelta(seconds=1))
    assert [each.receipt.sent for each in sums.recent] == [20]
    assert (sums.totals.sent, sums.changed_at) == (30, NOON + timedelta(seconds=1))
    assert sums.chart() == [RatePoint(NOON, 10), RatePoint(NOON + timedelta(seconds=1), 20)]
