"""The chart of a job's rate."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.instants import ns
from shared.jobs.rules.events import PAUSE, READ_FILE, RESUME, SEND, Event, EventState
from shared.jobs.rules.progress import POINTS, RatePoint, SettledAt, pauses_of, rate_chart

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_job_without_settled_batches_has_no_points() -> None:
    assert rate_chart([]) == []


def test_each_point_tells_the_recipients_a_second_until_the_next() -> None:
    batches = [SettledAt(10, NOON, after(0.5)), SettledAt(30, None, after(2.9)), SettledAt(5, None, after(2))]
    assert rate_chart(batches) == [RatePoint(after(0), 10), RatePoint(after(1), 0), RatePoint(after(2), 35)]


@pytest.mark.parametrize(("recipients", "seconds"), [(500, 50), (7, 3), (1, 90), (3_000, 4_000), (500, 3 * 3_600)])
def test_the_recipients_of_a_batch_are_spread_over_its_time(recipients: int, seconds: int) -> None:
    chart = rate_chart([SettledAt(recipients, NOON, after(seconds - 0.1))])
    step = -(-seconds // POINTS)
    assert sum(point.per_second for point in chart) * step == pytest.approx(recipients, rel=0.01)
    if recipients > seconds:
        assert max(point.per_second for point in chart) <= -(-recipients // seconds)


def test_it_begins_when_the_first_batch_was_taken() -> None:
    assert [point.at for point in rate_chart([SettledAt(10, NOON, after(2))])] == [after(0), after(1), after(2)]


@pytest.mark.parametrize("seconds", [118, 119, 120, 121, 3_600, 100_000])
def test_it_has_at_most_so_many_points_and_loses_nobody(seconds: int) -> None:
    chart = rate_chart([SettledAt(60, None, after(n * seconds / 200)) for n in range(201)])
    assert POINTS // 2 < len(chart) <= POINTS
    step = (chart[1].at - chart[0].at).total_seconds()
    assert sum(point.per_second for point in chart) * step == pytest.approx(201 * 60, rel=0.01)


def events(*told: tuple[str, float]) -> list[Event]:
    """Events of these stages, so many seconds after noon."""
    states = {SEND: EventState.FAIL}
    return [Event(stage, states.get(stage, EventState.SUCCESS), "", ns(after(at))) for stage, at in told]


@pytest.mark.parametrize(
    ("told", "flat"),
    [
        ([(PAUSE, 9.5), (RESUME, 40.5)], range(10, 40)),
        ([(SEND, 9.5), (RESUME, 40.5)], range(10, 40)),
        ([(READ_FILE, 1), (PAUSE, 9.5), (RESUME, 20), (PAUSE, 29.5), (RESUME, 40)], [*range(10, 20), *range(30, 40)]),
        ([(RESUME, 3), (PAUSE, 200), (RESUME, 300)], []),
        ([(PAUSE, 9.5)], []),
        ([(PAUSE, -9), (RESUME, 10)], range(10)),
        ([(PAUSE, 9.2), (RESUME, 9.9)], []),
        ([(PAUSE, -9), (RESUME, 900)], range(49)),  # all of it is counted at its end
    ],
)
def test_a_pause_is_flat(told: list[tuple[str, float]], flat: Iterable[int]) -> None:
    chart = rate_chart([SettledAt(400, NOON, after(49.9))], pauses_of(events(*told)))
    assert [place for place, point in enumerate(chart) if not point.per_second] == list(flat)
    assert len(chart) == 50 and sum(point.per_second for point in chart) == 400


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 10**6), st.floats(0, 10**4)), max_size=20))
def test_any_batches_make_a_chart(batches: list[tuple[int, float, float]]) -> None:
    settled = [SettledAt(count, after(at - took), after(at)) for count, at, took in batches]
    assert len(rate_chart(settled)) <= POINTS
