"""The messages of schedules bear `traceparent` where they are recorded."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from services.scheduler import deliver
from shared.clock.rules.callbacks import HttpCallback, KafkaCallback, RabbitCallback
from shared.clock.rules.occurrences import Occurrence, once, retry_entry
from shared.clock.rules.schedules import Definition, Schedule
from shared.runtime import tracing
from shared.runtime.server_settings import TracingSettings
from tests.tracing.collector import Collector

NOW = datetime(2026, 11, 23, tzinfo=UTC)
RABBIT = RabbitCallback(payload="{}", queue="q")
KAFKA = KafkaCallback(payload="{}", topic="t", headers={"Traceparent": "mine"})
HTTP = HttpCallback(payload="{}", url="https://example.com/")


@pytest.fixture(autouse=True)
async def recording(collector: Collector) -> AsyncIterator[None]:
    """Tracing is on, and nothing is recorded by chance."""
    switch_off = tracing.switch_on(TracingSettings(endpoint=collector.url, ratio=0.0), {"service.name": "test"})
    assert switch_off is not None
    yield
    await switch_off()


def header_of(trace: str) -> str:
    return trace.partition("@")[0]


def schedule(callback: RabbitCallback | KafkaCallback | HttpCallback) -> Schedule:
    definition = Definition(callback=callback, instants=(NOW,))
    given = {"id": "n/k", "namespace": "n", "key": "k", "generation": "g", "digest": "d", "definition": definition}
    return Schedule(**given, created_at=NOW, accepted_at=NOW, sweep_at=NOW)  # type: ignore[arg-type]


def occurrence(seconds_ago: float | None = None) -> Occurrence:
    trace = "" if seconds_ago is None else f"00-{5:032x}-{6:016x}-01@{int(time.time() - seconds_ago)}"
    made = once("schedule/n/k", "g", NOW, accepted_at=NOW)
    return retry_entry(replace(made, trace=trace), fires_at=NOW, attempts=1)


def test_a_message_names_the_request_that_made_its_schedule() -> None:
    young = occurrence(1)
    with tracing.root("fire", [young.trace]):
        message = deliver._queue_message(young, schedule(RABBIT), RABBIT)
        task = deliver._task(young, schedule(HTTP), "token")
    assert message.headers["traceparent"] == header_of(young.trace)
    assert message.headers["carillon-key"] == "k"
    assert task.trace == young.trace


def test_after_ten_minutes_it_names_the_firing() -> None:
    old = occurrence(tracing.YOUNG_SECONDS + 5)
    with tracing.root("fire", [old.trace]):
        fire = header_of(tracing.current_span())
        message = deliver._queue_message(old, schedule(RABBIT), RABBIT)
        task = deliver._task(old, schedule(HTTP), "token")
    assert message.headers["traceparent"] == header_of(task.trace) == fire


def test_what_fires_beside_it_names_nothing() -> None:
    with tracing.root("fire", [occurrence(1).trace]):
        message = deliver._queue_message(occurrence(), schedule(RABBIT), RABBIT)
        task = deliver._task(occurrence(), schedule(HTTP), "token")
    assert "traceparent" not in message.headers
    assert task.trace == ""


def test_a_header_that_the_caller_chose_stays() -> None:
    message = deliver._topic_message(occurrence(1), schedule(KAFKA), KAFKA)
    assert message.headers["Traceparent"] == "mine"
    assert "traceparent" not in message.headers
