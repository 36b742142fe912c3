"""How a receiver stands, and when it may be called."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.bus.rules.health import (
    Care,
    ReceiverHealth,
    gate,
    is_to_be_suspended,
    is_to_be_warned,
    next_attempt,
    own_pause,
    spread,
)

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
CARE = Care()
MS = timedelta(milliseconds=1)
NOISE = st.floats(0, 1)
ENDS = st.lists(st.booleans(), max_size=300)


def after(ends: list[bool], care: Care = CARE) -> ReceiverHealth:
    """As it stands after attempts that ended so, one each second."""
    health = ReceiverHealth()
    for number, succeeded in enumerate(ends):
        at = NOW + timedelta(seconds=number)
        health = health.after_success(at, care) if succeeded else health.after_failure(at, care)
    return health


@pytest.mark.parametrize(
    ("ends", "percent"),
    [
        ([], 100),
        ([False] * 14, 0),
        ([True] * 500 + [False] * 20, 0),
        ([False] * 20 + [True] * 5, 25),
        ([True, False] * 30, 50),
        ([False] * 500 + [True] * 20, 100),
    ],
)
def test_people_are_shown_the_share_of_the_last_calls(ends: list[bool], percent: int) -> None:
    assert after(ends).accepted_percent == percent


@given(ENDS, st.integers(1, 100), st.integers(1, 100))
def test_points_are_those_of_a_naive_count(ends: list[bool], heal: int, damage: int) -> None:
    points = 100
    for succeeded in ends:
        points = min(points + heal, 100) if succeeded else max(points - damage, 0)
    health = after(ends, Care(heal=heal, damage=damage))
    assert health.points == points
    failures = ends[::-1].index(True) if True in ends else len(ends)
    assert (health.failures, health.is_failing) == (failures, failures > 0)
    assert health.failing_since == (NOW + timedelta(seconds=len(ends) - failures) if failures else None)
    assert health.last_attempt_at == (NOW + timedelta(seconds=len(ends) - 1) if ends else None)


@pytest.mark.parametrize(
    ("points", "milliseconds"), [(100, 0), (17, 0), (16, 1), (10, 59), (5, 1_875), (1, 30_000), (0, 60_000)]
)
def test_the_pause_of_points_is_that_of_routemaster(points: int, milliseconds: int) -> None:
    assert ReceiverHealth(points=points).pause(CARE) == milliseconds * MS


@pytest.mark.parametrize(
    ("failures", "milliseconds"), [(1, 500), (2, 1_000), (7, 32_000), (8, 60_000), (60, 60_000), (10_000, 60_000)]
)
def test_failures_in_a_row_have_a_pause_from_the_first_one(failures: int, milliseconds: int) -> None:
    assert ReceiverHealth(failures=failures).pause(CARE) == milliseconds * MS


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 600_000))
def test_the_longer_pause_counts_and_none_is_longer_than_the_longest(points: int, failures: int, most: int) -> None:
    care = Care(max_backoff=most * MS)
    both, of_points, of_failures = (
        ReceiverHealth(points=points, failures=failures).pause(care),
        ReceiverHealth(points=points).pause(care),
        ReceiverHealth(failures=failures).pause(care),
    )
    assert both == max(of_points, of_failures)
    assert both <= most * MS


def test_calls_that_were_on_their_way_together_fail_once() -> None:
    second, health = timedelta(seconds=1), ReceiverHealth()
    for number in range(8):
        health = health.after_failure(NOW + number * MS, CARE, took=20 * second)
    assert (health.failures, health.points) == (1, 100 - 8 * CARE.damage)
    assert health.after_failure(NOW + 20 * second, CARE, took=second).failures == 2


@given(ENDS, st.integers(0, 200_000), NOISE)
def test_the_gate_is_that_of_a_naive_reading(ends: list[bool], waited: int, noise: float) -> None:
    health = after(ends)
    now = (health.last_attempt_at or NOW) + waited * MS
    pause = health.pause(CARE)
    decision = gate(health, now, CARE, noise=noise)
    if pause == 0 * MS or not ends or waited * MS > pause:
        assert decision.is_open
    else:
        assert not decision.is_open
        assert pause <= decision.put_off <= 1.5 * pause + MS
        # Whoever comes back then goes.
        assert gate(health, now + decision.put_off + MS, CARE, noise=noise).is_open


def test_what_a_receiver_asks_for_counts_up_to_a_day() -> None:
    health = ReceiverHealth().after_failure(NOW, CARE, retry_after=timedelta(hours=2))
    assert gate(health, NOW + timedelta(hours=1), CARE, noise=1).put_off == timedelta(hours=1)
    assert gate(health, NOW + timedelta(hours=2), CARE, noise=1).is_open
    assert next_attempt(health, NOW, CARE, noise=0) == NOW + timedelta(hours=2)
    # A shorter one that is asked for later takes nothing back, and a success everything.
    assert health.after_failure(NOW + MS, CARE, retry_after=MS).asked_until == NOW + timedelta(hours=2)
    assert health.after_success(NOW + MS, CARE).asked_until is None
    long = ReceiverHealth().after_failure(NOW, CARE, retry_after=timedelta(days=30))
    assert long.asked_until == NOW + timedelta(days=1)
    assert ReceiverHealth().after_failure(NOW, CARE, retry_after=timedelta(0)).asked_until is None


@given(ENDS, NOISE)
def test_the_next_attempt_comes_no_earlier_than_the_pause_ends(ends: list[bool], noise: float) -> None:
    health = after([*ends, False])
    assert health.last_attempt_at is not None
    at = next_attempt(health, health.last_attempt_at, CARE, noise=noise)
    assert health.pause(CARE) <= at - health.last_attempt_at <= 1.5 * health.pause(CARE) + MS


@given(st.timedeltas(timedelta(0), timedelta(days=1)), NOISE)
def test_a_spread_pause_is_whole_milliseconds_and_never_shorter(pause: timedelta, noise: float) -> None:
    found = spread(pause, noise=noise)
    assert found % MS == timedelta(0)
    assert pause <= found < 1.5 * pause + MS


def test_attempts_that_end_late_do_not_turn_back_the_last_one() -> None:
    later = ReceiverHealth().after_failure(NOW + MS, CARE)
    assert later.after_success(NOW, CARE).last_attempt_at == NOW + MS
    assert later.after_failure(NOW, CARE).last_attempt_at == NOW + MS


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1), (1, 1), (2, 2), (10, 512), (11, 600), (1_000, 600)])
def test_a_delivery_that_fails_alone_waits_by_itself(failures: int, seconds: int) -> None:
    assert own_pause(failures) == timedelta(seconds=seconds)


def test_who_does_nothing_but_fail_is_warned_at_half_time_and_suspended() -> None:
    health = ReceiverHealth().after_failure(NOW, CARE).after_failure(NOW + timedelta(days=2), CARE)
    for days, warned, suspended in ((2.4, False, False), (2.5, True, False), (4.9, True, False), (5, False, True)):
        now = NOW + timedelta(days=days)
        assert (is_to_be_warned(health, now, CARE), is_to_be_suspended(health, now, CARE)) == (warned, suspended)
    well = health.after_success(NOW + timedelta(days=4), CARE)
    assert not is_to_be_suspended(well, NOW + timedelta(days=50), CARE)
    assert not is_to_be_warned(replace(well, points=0), NOW + timedelta(days=50), CARE)


def test_who_fails_is_warned_once_and_anew_after_a_success() -> None:
    health, warned = ReceiverHealth(), list[float]()
    for days in (0, 2, 2.5, 3, 4.9, 9, 12, 20):
        at, before = NOW + timedelta(days=days), health.warned_at
        health = health.after_success(at, CARE) if days == 4.9 else health.after_failure(at, CARE)
        warned += [days] if health.warned_at not in (None, before) else []
    assert warned == [2.5, 12], "on the twentieth day it is suspended"


def test_who_is_called_rarely_and_always_fails_is_warned_once_and_suspended() -> None:
    """Two events, four weeks apart, of which each is tried for three days."""
    health, at, told = ReceiverHealth(), NOW, list[tuple[str, int, int]]()
    for day in (0, 28):
        for hours in range(0, 73, 6):
            at = NOW + timedelta(days=day, hours=hours)
            before, health = health, health.after_failure(at, CARE)
            told += [("warned", day, hours)] if health.warned_at != before.warned_at else []
            told += [("suspended", day, hours)] if is_to_be_suspended(health, at, CARE) else []
        health = health.rest_from(at)
    assert told[:2] == [("warned", 0, 60), ("suspended", 28, 48)]
    assert {kind for kind, _, _ in told[2:]} == {"suspended"}
    assert health.failed_for(at + timedelta(days=50)) == timedelta(hours=2 * 72)
    assert health.after_success(at, CARE).after_failure(at, CARE).failed_for(at) == timedelta(0)
