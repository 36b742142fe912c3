"""Metrics are one list, and a capability is measured without knowing it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.core.errors import Unavailable
from shared.runtime import metrics
from shared.runtime.measured import measure_calls


def count(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


class Door:
    """What a capability hands out."""

    id = "door"

    async def knock(self) -> str:
        return "who is there"


class House:
    """A capability."""

    rooms = 1

    async def visit(self, guest: str, *, late: bool = False) -> str:
        if late:
            raise Unavailable("asleep")
        return f"hello {guest}"

    def number(self) -> int:
        return 7

    @asynccontextmanager
    async def door(self) -> AsyncIterator[Door]:
        yield Door()


def calls(operation: str) -> float:
    return count("carillon_call_seconds_count", capability="house", operation=operation)


def test_every_metric_has_a_sentence_and_our_prefix() -> None:
    ours = [family for family in metrics.REGISTRY.collect() if family.name.startswith("carillon_")]
    assert len(ours) >= 15
    assert all(family.documentation.endswith(".") for family in ours)
    assert all(re.fullmatch(r"[a-z_]+", family.name) for family in ours)


def test_what_may_wait_for_long_is_told_apart_up_to_an_hour() -> None:
    page = metrics.page().decode()
    for name in ("lateness_seconds", "job_start_delay_seconds"):
        assert all(f'carillon_{name}_bucket{{le="{bound}"}}' in page for bound in ("60.0", "300.0", "3600.0", "+Inf"))


def test_the_page_is_readable_text() -> None:
    metrics.RECORDS_SENT.labels("app", "apns").inc(3)
    assert b'carillon_records_sent_total{app="app",service="apns"} 3' in metrics.page()
    assert b"process_resident_memory_bytes" in metrics.page()


async def test_observed_calls_are_counted_and_answer_as_before() -> None:
    before = calls("visit")
    house = measure_calls(House(), "house")
    assert [await house.visit("you") for _ in range(3)] == ["hello you"] * 3
    assert calls("visit") == before + 3
    assert house.number() == 7


async def test_observed_errors_pass_and_are_counted_by_kind() -> None:
    labels = {"capability": "house", "operation": "visit", "error": "Unavailable"}
    before = count("carillon_call_errors_total", **labels)
    with pytest.raises(Unavailable, match="asleep"):
        await measure_calls(House(), "house").visit("you", late=True)
    assert count("carillon_call_errors_total", **labels) == before + 1


async def test_what_changes_is_read_anew_and_what_is_missing_is_missing() -> None:
    inner = House()
    house = measure_calls(inner, "house")
    inner.rooms = 2
    assert house.rooms == 2
    assert not hasattr(house, "cellar")


async def test_what_an_observed_capability_opens_is_observed_too() -> None:
    opened, knocked = calls("door"), calls("knock")
    async with measure_calls(House(), "house", opens=frozenset({"door"})).door() as door:
        assert door.id == "door"
        assert await door.knock() == "who is there"
    assert (calls("door"), calls("knock")) == (opened + 1, knocked + 1)


async def test_an_error_inside_what_was_opened_reaches_its_manager() -> None:
    seen: list[BaseException] = []

    class Watching(House):
        @asynccontextmanager
        async def door(self) -> AsyncIterator[Door]:
            try:
                yield Door()
            except ValueError as error:
                seen.append(error)
                raise

    with pytest.raises(ValueError, match="inside"):
        async with measure_calls(Watching(), "house", opens=frozenset({"door"})).door():
            raise ValueError("inside")
    assert len(seen) == 1


async def test_a_cancelled_call_is_timed_and_is_no_error() -> None:
    class Slow(House):
        async def visit(self, guest: str, *, late: bool = False) -> str:
            return await asyncio.Future()

    before = calls("visit")
    task = asyncio.create_task(measure_calls(Slow(), "house").visit("you"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls("visit") == before + 1
    assert count("carillon_call_errors_total", capability="house", operation="visit", error="CancelledError") == 0
