"""Traces of whole processes, as a collector sees them: a push and a schedule from the API to their end."""

import json
import re
import secrets
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from services.embedded.processes import free_port
from tests.e2e.callees import OPEN, callee
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app
from tests.tracing.collector import NO_PARENT, Collector
from tests.waiting import until

pytestmark = [pytest.mark.later("whole processes and a collector"), pytest.mark.native]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLERS = f"00-{TRACE}-{PARENT}-01"
SERVER = 2
OTHERS = ("worker", "scheduler", "feedback-answers", "feedback-bus")
POST_JOB = "POST /apps/{app_id}/jobs"
PUSH_STAGES = ["feed", "produce", "read", "recover", "render", "settle", "take"]


def tracing(collector: Collector, ratio: float = 0.0, **more: str) -> dict[str, str]:
    return {"CARILLON_TRACING_ENDPOINT": collector.url, "CARILLON_TRACING_RATIO": str(ratio), **more}


async def open_api(house: House, **environment: str) -> Customer:
    port = free_port()
    given = {"CARILLON_API_PORT": str(port), "CARILLON_API_FIRST_ADMIN": "admin@example.com", **environment}
    await house.start("api", **given)
    return Customer(port)


async def push(house: House, customer: Customer, traceparent: str = "", **fields: Any) -> tuple[str, str]:
    """Send a push; the ids of the app and of the job."""
    app_id = await an_app(house, customer)
    headers = {"traceparent": traceparent} if traceparent else {}
    ask = {"service": "apns", **fields}
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", ask, **headers)
    assert status == 201, job
    return app_id, job["id"]


async def record_headers(house: House, count: int) -> list[dict[str, str]]:
    """The headers of each record of the app's topic, which has so many."""
    servers = house.environment["CARILLON_STREAM_URL"].removeprefix("kafka://")
    consumer = AIOKafkaConsumer(
        house.topic, bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    found: list[dict[str, str]] = []

    async def have_come() -> bool:
        for part in (await consumer.getmany(timeout_ms=500)).values():
            found.extend({name: value.decode() for name, value in record.headers} for record in part)
        return len(found) >= count

    try:
        await until(have_come, "the records of the topic")
        return found
    finally:
        await consumer.stop()


async def test_a_push_is_one_tree_through_four_processes(house: House, collector: Collector) -> None:
    await house.devices(1_500)
    given = tracing(collector, CARILLON_TRACING_RECORDS="on", CARILLON_FEEDBACK_FLUSH_SECONDS="0.2")
    customer = await open_api(house, **given)
    for service in ("worker", "scheduler"):
        await house.start(service, **given)
    await house.start("feedback-answers", **given | {"CARILLON_TRACING_RATIO": "1"})
    starts = int((datetime.now(UTC) + timedelta(seconds=1.5)).timestamp() * 1e9)
    app_id, job_id = await push(house, customer, CALLERS, startsAt=starts)
    finish = await collector.first("finish")
    request = await collector.first(POST_JOB)
    assert (request.trace_id, request.parent, request.kind) == (TRACE, PARENT, SERVER)
    assert (request.service, request.facts["status"], request.facts["app"]) == ("carillon-api", 201, app_id)
    plan = await collector.first("plan")
    sends = [span for span in collector.named("send") if span.facts["outcome"] == "done"]
    key = plan.facts["job_id"]
    assert key.startswith(job_id)
    for span in (plan, *sends, finish):
        assert (span.service, span.trace_id, span.parent) == ("carillon-worker", TRACE, request.id)
        assert (span.facts["job_id"], span.facts["outcome"], span.facts["attempt"]) == (key, "done", 0)
    assert sorted((send.facts["ordinal"], send.facts["turn"]) for send in sends) == [(0, 1), (1, 1)]
    fire = await collector.first("fire")
    assert (fire.service, fire.parent, fire.links) == ("carillon-scheduler", NO_PARENT, (request.header,))
    assert fire.facts["lateness"] >= 0
    for send in sends:
        assert set(PUSH_STAGES) <= set(collector.below(send)), collector.below(send)
        (produce,) = [span for span in collector.named("produce") if span.parent == send.id]
        assert produce.facts["records"] in {1000, 500}
        assert produce.facts["bytes"] > 100 * produce.facts["records"]
        assert produce.facts["lane"].startswith("carillon-")
        assert collector.below(produce) == ["stream.produce"]
        assert send.begin <= produce.begin <= produce.end <= send.end
    await check_tree(collector, TRACE, root=PARENT)
    headers = await record_headers(house, 1_500)
    produces = {span.header for span in collector.named("stream.produce")}
    assert len(headers) == 1_500
    assert {header["traceparent"] for header in headers} == produces

    topic = f"push-{house.app}_apns-{secrets.token_hex(3)}-feedbacks"
    await house.servers.stream.setup({topic: 1})
    await house.servers.stream.publish(topic, [json.dumps({"metadata": {"jobId": job_id}, "Err": None}).encode()])
    flush = await collector.first("flush", lambda span: span.facts["records"] == 1)
    assert (flush.service, flush.parent) == ("carillon-feedback-answers", NO_PARENT)


async def check_tree(collector: Collector, trace_id: str, *, root: str) -> None:
    """All spans of the trace have parents in it, up to the root, and lie within them in time or behind them. A parent
    ends after its children, and may come in a later request than they."""
    await until(lambda: collector.orphans(trace_id) == {root}, "the parents of all spans to come")
    spans = {span.id: span for span in collector.spans if span.trace_id == trace_id}
    for span in spans.values():
        if span.parent in spans:
            assert spans[span.parent].begin <= span.begin


async def a_schedule(customer: Customer, url: str, key: str, traceparent: str = "", **data: Any) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    callback = {"type": "http", "data": {"url": url, "payload": "{}", **data}}
    body = {"key": key, "callback": callback, "schedules": [soon]}
    headers = {"traceparent": traceparent} if traceparent else {}
    status, made = await customer.call("POST", "/schedules", body, **headers)
    assert status == 201, made


async def test_a_schedule_is_one_tree_up_to_its_call(house: House, collector: Collector) -> None:
    given = {**tracing(collector), **OPEN, "CARILLON_SCHEDULER_TICK_SECONDS": "0.2"}
    customer = await open_api(house, **given)
    for service in ("scheduler", "worker"):
        await house.start(service, **given)
    async with callee() as target:
        await a_schedule(customer, target.url, "traced", CALLERS)
        await a_schedule(customer, target.url, "other")
        await target.got(2)
    request = await collector.first("POST /schedules")
    call = await collector.first("call")
    fire = await collector.first("fire", lambda span: bool(span.links))
    assert (call.service, call.trace_id, call.parent) == ("carillon-worker", TRACE, request.id)
    assert call.facts["outcome"] == "done"
    assert "token" not in call.facts
    assert (fire.parent, fire.links) == (NO_PARENT, (request.header,))
    headers = {called.key: called.headers.get("traceparent") for called in target.all}
    assert headers == {"traced": call.header, "other": None}
    assert "outgoing.call" in collector.below(call)
    await check_tree(collector, TRACE, root=PARENT)


async def test_a_task_that_is_delivered_again_after_a_kill_keeps_its_trace(house: House, collector: Collector) -> None:
    await house.devices(500)
    given = tracing(collector)
    customer = await open_api(house, **given)
    killed = await house.start("worker", fault="send.after_take=kill", **given)
    await push(house, customer, CALLERS)
    assert await killed.gone() == -signal.SIGKILL
    await house.start("worker", **given)
    await house.start("scheduler", **given)
    request = await collector.first(POST_JOB)
    send = await collector.first("send", lambda span: "settle" in collector.below(span))
    assert send.facts["outcome"] == "done"
    assert (send.trace_id, send.parent) == (TRACE, request.id)
    assert (await collector.first("finish")).parent == request.id


async def test_a_task_that_the_clock_brings_back_keeps_its_trace(house: House, collector: Collector) -> None:
    await house.devices(500)
    given = tracing(collector)
    customer = await open_api(house, **given)
    await house.start("worker", fault="send.before_take=raise,send.before_take@2=raise", **given)
    await house.start("scheduler", **given)
    await push(house, customer, CALLERS)
    finish = await collector.first("finish")
    sends = sorted(collector.named("send"), key=lambda span: span.begin)
    assert [(send.facts["attempt"], send.facts["outcome"]) for send in sends] == [
        (0, "put_off"),
        (1, "put_off"),
        (2, "done"),
    ]
    assert {(send.trace_id, send.parent) for send in sends} == {(finish.trace_id, finish.parent)}
    assert finish.trace_id == TRACE


async def test_off_its_sdk_is_not_loaded_and_nothing_is_sent(house: House) -> None:
    await house.devices(10)
    house._forks = False
    tell_imports = {"PYTHONPROFILEIMPORTTIME": "1"}
    customer = await open_api(house, **tell_imports)
    for service in OTHERS:
        await house.start(service, **tell_imports)
    await push(house, customer, CALLERS)
    records = await record_headers(house, 10)
    assert len(records) == 10
    assert not any(records)
    for process in house._processes:
        loaded = set(re.findall(r"^import time:[ \d|]+([\w.]+)$", process.log, re.MULTILINE))
        assert "shared.runtime.tracing" in loaded
        assert not {name for name in loaded if name.startswith(("opentelemetry.sdk", "google.protobuf"))}


async def test_a_collector_that_is_away_delays_no_work_and_is_told(house: House) -> None:
    await house.devices(3_000)
    given = {"CARILLON_TRACING_ENDPOINT": f"http://127.0.0.1:{free_port()}", "CARILLON_TRACING_RATIO": "1"}
    customer = await open_api(house, **given)
    worker = await house.start("worker", **given)
    await house.start("scheduler", **given)
    app_id, job_id = await push(house, customer)

    async def is_completed() -> bool:
        return bool((await customer.call("GET", f"/apps/{app_id}/jobs/{job_id}"))[1]["completedAt"])

    await until(is_completed, "the job to complete")
    await worker.said("encountered while exporting")
    worker.send(signal.SIGTERM)
    assert await worker.gone() == 0, worker.log  # another code would tell that its time to end was up
    assert "Traceback" not in worker.log


async def test_what_is_still_here_is_sent_when_a_process_ends(house: House, collector: Collector) -> None:
    api = await open_api(house, **tracing(collector, 1.0))
    status, _ = await api.call("GET", "/apps")
    assert status == 200
    (process,) = house._processes
    process.send(signal.SIGTERM)
    assert await process.gone() == 0
    assert [span.facts["status"] for span in collector.named("GET /apps")] == [200]
