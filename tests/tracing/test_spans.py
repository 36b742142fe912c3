"""Which work is recorded, below which parent, and which trace follows it: in one process, seen by a collector."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import pytest

from shared.core.errors import Invalid
from shared.runtime import tracing
from shared.runtime.cached import Coalescer
from shared.runtime.measured import measure_calls
from shared.runtime.server_settings import TracingSettings
from tests.tracing.collector import NO_PARENT, Collector

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNRECORDED = CALLER[:-1] + "0"
SwitchOn = Callable[..., None]


@pytest.fixture(autouse=True)
def last_spans_are_gone() -> Iterator[None]:
    """Spans that are still being sent would log into later tests."""
    yield
    for thread in threading.enumerate():
        if thread.name == "last spans":
            thread.join(50)


@pytest.fixture
async def switch_on(collector: Collector) -> AsyncIterator[SwitchOn]:
    """Switches tracing on; off again behind the test."""
    ends: list[Callable[[], Awaitable[None]]] = []

    def switch(ratio: float = 1.0, endpoint: str = "") -> None:
        settings = TracingSettings(endpoint=endpoint or collector.url, ratio=ratio)
        end = tracing.switch_on(settings, {"service.name": "test"})
        assert end is not None
        ends.append(end)

    yield switch
    for end in ends:
        await end()


async def flush(switch_off: Callable[[], Awaitable[None]] | None) -> None:
    assert switch_off is not None
    await switch_off()


def carried(seconds_ago: float = 0.0) -> str:
    return f"00-{9:032x}-{7:016x}-01@{int(time.time() - seconds_ago)}"


def header_of(trace: str) -> str:
    return trace.partition("@")[0]


class Answers:
    """A capability."""

    async def ask(self) -> str:
        return tracing.current_trace()

    async def fail(self) -> None:
        raise ValueError("of +49 170 1234567")


async def test_off_there_is_one_context_that_does_nothing() -> None:
    opened = [
        tracing.span("a"),
        tracing.root("b", [carried()]),
        tracing.serve("c", lambda: CALLER),
        tracing.follow("d", carried()),
    ]
    assert all(recording is tracing.NULL for recording in opened)
    with tracing.NULL as span, tracing.carry(carried()):
        span.set(fact=1)
        assert (tracing.current_trace(), tracing.current_span(), tracing.resume(carried())) == ("", "", "")
    assert tracing.switch_on(TracingSettings(), {}) is None


@pytest.mark.parametrize(("ratio", "recorded"), [(0.0, False), (1.0, True)])
async def test_the_ratio_decides_where_no_caller_does(switch_on: SwitchOn, ratio: float, recorded: bool) -> None:
    switch_on(ratio)
    for opened in (tracing.serve("GET", str), tracing.root("claim")):
        with opened:
            assert (opened is not tracing.NULL) is recorded
            assert bool(tracing.current_trace()) is recorded


@pytest.mark.parametrize(("header", "ratio"), [(CALLER, 0.0), (UNRECORDED, 1.0)])
async def test_a_callers_word_stands_whatever_the_ratio(switch_on: SwitchOn, header: str, ratio: float) -> None:
    switch_on(ratio)
    with tracing.serve("POST", lambda: header):
        recorded = tracing.current_trace()
    assert (recorded[:36] == CALLER[:36]) is (header == CALLER)
    assert bool(recorded) is (header == CALLER)


@pytest.mark.parametrize(
    "header", [CALLER.upper(), "00-1-2-3", CALLER + "-", CALLER * 100, "00-" + "0" * 32 + CALLER[35:]]
)
async def test_a_header_that_is_none_is_as_good_as_missing(switch_on: SwitchOn, header: str) -> None:
    switch_on(1.0)
    with tracing.serve("POST", lambda: header):
        assert not tracing.current_trace().startswith(CALLER[:36])
        assert tracing.current_trace()


@pytest.mark.parametrize("trace", ["", CALLER, f"{CALLER}@", f"{CALLER}@-1", f"{UNRECORDED}@1", f"{CALLER}@1 "])
async def test_a_text_that_is_not_a_trace_is_not_carried(switch_on: SwitchOn, trace: str) -> None:
    switch_on(1.0)
    assert tracing.follow("send", trace) is tracing.NULL
    with tracing.carry(trace):
        assert tracing.current_trace() == ""


async def test_work_stands_under_a_young_trace_and_is_linked_to_an_old_one(
    switch_on: SwitchOn, collector: Collector
) -> None:
    switch_on(0.0)
    young, old = carried(), carried(tracing.YOUNG_SECONDS + 5)
    for trace in (young, old):
        with tracing.follow("send", trace, ordinal=3) as span:
            assert tracing.current_trace() == trace, "what follows carries the same"
            span.set(outcome="done")
    first = await collector.first("send", lambda span: span.parent != NO_PARENT)
    later = await collector.first("send", lambda span: span.parent == NO_PARENT)
    assert (first.trace_id, first.parent, first.links) == (f"{9:032x}", f"{7:016x}", ())
    assert later.links == (header_of(old),)
    assert first.facts == later.facts == {"ordinal": 3, "outcome": "done"}


async def test_a_root_is_recorded_for_those_that_it_is_linked_to_but_leads_only_by_chance(
    switch_on: SwitchOn, collector: Collector
) -> None:
    switch_on(0.0)
    with tracing.root("fire", ["", carried(), "nonsense"], lateness=lambda: 0.5):
        assert tracing.current_trace() == ""
        assert tracing.resume("") == "", "nobody asked to record this one"
        assert tracing.resume(carried()) == carried()
        assert header_of(tracing.resume(carried(tracing.YOUNG_SECONDS + 5))) == header_of(tracing.current_span())
    fire = await collector.first("fire")
    assert (fire.parent, fire.links, fire.facts) == (NO_PARENT, (header_of(carried()),), {"lateness": 0.5})
    tracing._Switch.settings = TracingSettings(ratio=1.0)
    with tracing.root("fire"):
        assert header_of(tracing.resume("")) == header_of(tracing.current_span()) != ""


async def test_calls_of_capabilities_are_spans_under_what_is_open(switch_on: SwitchOn, collector: Collector) -> None:
    switch_on(1.0)
    capability = measure_calls(Answers(), "store")
    assert await capability.ask() == ""
    with tracing.serve("GET", str), tracing.span("read"):
        assert await capability.ask() == tracing.current_trace()
        with pytest.raises(ValueError, match="of"):
            await capability.fail()
    read = await collector.first("read")
    assert collector.below(read) == ["store.ask", "store.fail"]
    assert collector.named("store.fail")[0].facts == {"error": "ValueError"}
    assert len(collector.named("store.ask")) == 1


async def test_tasks_have_the_place_of_whoever_makes_them_until_its_span_ends(switch_on: SwitchOn) -> None:
    switch_on(1.0)
    over = asyncio.Event()

    async def outlive() -> tuple[str, str, bool]:
        inside = tracing.current_trace()
        await over.wait()
        return inside, tracing.current_trace(), tracing.span("late") is tracing.NULL

    with tracing.serve("POST", str):
        expected = tracing.current_trace()
        task = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    over.set()
    assert await task == (expected, "", True)


async def test_who_shares_a_call_keeps_its_own_trace(switch_on: SwitchOn) -> None:
    switch_on(1.0)

    async def work(asked: Sequence[int]) -> list[str]:
        return [tracing.current_trace() for _ in asked]

    together = Coalescer(work)

    async def ask(number: int) -> tuple[str, str, str]:
        with tracing.serve("POST", str):
            before = tracing.current_trace()
            return before, await together(number), tracing.current_trace()

    answers = await asyncio.gather(*(ask(number) for number in range(5)))
    assert len({before for before, _, _ in answers}) == 5
    assert all(before == after and shared == "" for before, shared, after in answers)


async def test_what_is_made_within_carries_what_it_is_told(switch_on: SwitchOn) -> None:
    switch_on(1.0)
    with tracing.serve("POST", str):
        own = tracing.current_trace()
        with tracing.carry(carried()):
            assert tracing.current_trace() == carried()
        with tracing.carry(""):
            assert tracing.current_trace() == ""
        assert tracing.current_trace() == own


def test_a_message_names_its_span_unless_its_caller_chose_another() -> None:
    assert tracing.with_header({"a": "b"}, carried()) == {"a": "b", "traceparent": header_of(carried())}
    assert tracing.with_header({"a": "b"}, "") == {"a": "b"}
    assert tracing.with_header({"Traceparent": "mine"}, carried()) == {"Traceparent": "mine"}


async def test_the_end_waits_for_nobody(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_TIMEOUT_SECONDS", 100.0)
    collector.may_answer.clear()
    off = tracing.switch_on(TracingSettings(endpoint=collector.url, ratio=1.0), {"service.name": "test"})
    with tracing.root("claim"):
        pass
    async with asyncio.timeout(20):  # the driver gives up after thirty seconds
        await flush(off)
    collector.may_answer.set()
    await collector.first("claim")


@pytest.mark.parametrize(
    ("endpoint", "collector_url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector:4318/", "https://collector:4318/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ],
)
def test_an_endpoint_is_an_address_or_a_whole_path(endpoint: str, collector_url: str) -> None:
    assert TracingSettings(endpoint=endpoint).collector == collector_url


@pytest.mark.slow  # services/test_cli.py has it of another extra
def test_without_the_extra_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Invalid, match="carillon\\[otel\\]"):
        tracing.switch_on(TracingSettings(endpoint="http://collector:4318"), {})
