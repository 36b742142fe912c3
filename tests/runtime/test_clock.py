"""Clocks tell aware UTC times that agree with their nanoseconds."""

import time
from datetime import UTC, timedelta

import pytest

from shared.core.instants import EPOCH
from shared.runtime.clock import SystemClock
from tests.clocks import ManualClock


def test_the_system_clock_is_the_machines_and_in_utc() -> None:
    clock = SystemClock()
    before = time.time_ns()
    seen = clock.now_ns()
    assert before <= seen <= time.time_ns()
    assert clock.now().tzinfo is UTC
    before = time.time_ns() // 1_000
    told = (clock.now() - EPOCH) // timedelta(microseconds=1)
    assert before <= told <= time.time_ns() // 1_000


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start_ns=1_500_000_000_123_456_789)
    assert clock.now() == EPOCH + timedelta(seconds=1_500_000_000, microseconds=123_456)
    clock.advance(1.5)
    assert clock.now_ns() == 1_500_000_001_623_456_789
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
