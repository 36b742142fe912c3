"""HTTP and Kafka callbacks on real servers, as those who are called see them."""

import asyncio
import base64
import json
import secrets
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from aiokafka import AIOKafkaConsumer
from standardwebhooks.webhooks import Webhook

from carillon.wire.clock import Retry
from services.embedded.processes import free_port
from shared.clock.rules.outcomes import OutcomeResult
from shared.clock.rules.recurrence import Every
from tests.e2e.callees import (
    OPEN,
    PAYLOAD,
    QUICK,
    Called,
    callee,
    calls,
    clock_and_worker,
    settled,
    status,
    waiting,
)
from tests.e2e.clocks import NAMESPACE, is_retried
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

AT_ONCE = Retry(first_delay_seconds=0.2, factor=1)
SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


@pytest.mark.proof
async def test_a_call_arrives_once_as_it_was_given_and_signed(house: House) -> None:
    await clock_and_worker(house)
    async with callee() as server:
        given: dict[str, Any] = {"method": "PUT", "secret": SECRET, "headers": {"X-Tenant": "coach"}}
        accepted = await calls(house, "training", server.url, 3, 3.5, **given)
        await server.got(2)
        outcomes = await settled(house, accepted)
    assert len(server.all) == len(server.times) == 2
    arrived = sorted(server.all, key=lambda each: each.due)
    for call, due in zip(arrived, accepted.schedule.definition.instants, strict=True):
        assert (call.method, call.path, call.body) == ("PUT", "/hooks?a=1", PAYLOAD.encode())
        assert (call.key, call.due, call.attempt) == ("training", due, 1)
        assert (call.headers["x-tenant"], call.headers["content-type"]) == ("coach", "application/json")
        assert call.at >= due
        assert Webhook(SECRET).verify(call.body, call.headers) == json.loads(PAYLOAD)
    assert [(each.result, each.attempt, each.error) for each in outcomes] == [(OutcomeResult.FIRED, 1, "")] * 2


@pytest.mark.proof
async def test_a_call_that_fails_is_made_again_as_the_same_message(house: House) -> None:
    await clock_and_worker(house)

    def answers(call: Called) -> web.Response:
        return web.Response(status=500, text="too many\ncooks") if call.attempt == 1 else status(200)

    async with callee(answers) as server:
        accepted = await calls(house, "again", server.url, 2, retry=AT_ONCE)
        await server.got(2)
        outcomes = await settled(house, accepted)
    assert [each.attempt for each in server.all] == [1, 2]
    assert len(server.times) == 1
    assert server.all[0].body == server.all[1].body
    assert [(each.result, each.attempt, each.error) for each in outcomes] == [
        (OutcomeResult.FAILED, 1, "HTTP 500: too many cooks"),
        (OutcomeResult.FIRED, 2, ""),
    ]


@pytest.mark.parametrize("thinks_for", [0.0, 1.5])
async def test_retry_after_is_honoured_from_the_answer_on(house: House, thinks_for: float) -> None:
    await clock_and_worker(house)

    def answers(call: Called) -> web.Response:
        return status(429, Retry_After="2") if call.attempt == 1 else status(200)

    async with callee(answers, thinks_for=thinks_for) as server:
        accepted = await calls(house, "patient", server.url, 2, retry=AT_ONCE)
        await server.got(2)
        outcomes = await settled(house, accepted)
    pause = server.all[1].at - server.all[0].at
    # The pause is kept by the database's clock, which the worker knows as well as one look at it tells.
    assert pause >= timedelta(seconds=1.9 + thinks_for)
    assert [each.result for each in outcomes] == [OutcomeResult.FAILED, OutcomeResult.FIRED]


async def test_the_tenth_failure_makes_a_dead_letter_which_can_be_tried_again(house: House) -> None:
    await clock_and_worker(house)
    healthy = False

    def answers(_: Called) -> web.Response:
        return status(200 if healthy else 503)

    async with callee(answers) as server:
        accepted = await calls(house, "dead", server.url, 2, retry=AT_ONCE)
        outcomes = await settled(house, accepted)
        assert [each.attempt for each in server.all] == list(range(1, 11))
        assert [each.result for each in outcomes] == [OutcomeResult.FAILED] * 9 + [OutcomeResult.DEAD]
        [letter] = await house.servers.store.dead_letters.page(NAMESPACE, limit=10)
        assert (letter.key, letter.attempts, letter.error) == ("dead", 10, "HTTP 503")
        healthy = True
        await until(lambda: is_retried(house, letter), "the retry")
        await server.got(11)
        await settled(house, accepted)
    assert server.times == {letter.id: 11}


async def test_an_address_that_is_not_allowed_is_a_failure_and_no_crash(house: House) -> None:
    await house.start("scheduler", **QUICK)
    worker = await house.start("worker")
    async with callee() as server:
        policy = Retry(attempts=2, first_delay_seconds=0.2)
        accepted = await calls(house, "inside", server.url, 2, retry=policy)
        outcomes = await settled(house, accepted)
        assert server.all == []
    assert [each.result for each in outcomes] == [OutcomeResult.FAILED, OutcomeResult.DEAD]
    assert all("a loopback address" in each.error and "hooks" not in each.error for each in outcomes)
    assert "task failed" not in worker.log


async def test_a_failing_instant_does_not_delay_its_series(house: House) -> None:
    """The first one fails until all the others have been."""
    await clock_and_worker(house)
    dues: list[datetime] = []

    def answers(call: Called) -> web.Response:
        dues.append(call.due)
        return status(500 if call.due == dues[0] and len(set(dues)) < 4 else 200)

    async with callee(answers) as server:
        every_second = Every(1, await house.servers.time.now())
        policy = Retry(attempts=100, first_delay_seconds=0.5, factor=1)
        accepted = await calls(house, "beat", server.url, recurrence=every_second, max_occurrences=4, retry=policy)
        outcomes = await settled(house, accepted)
    first, *others = dict.fromkeys(dues)
    assert [b - a for a, b in pairwise((first, *others))] == [timedelta(seconds=1)] * 3
    assert all(each.at >= each.due for each in server.all)
    assert {each.attempt for each in server.all if each.due in others} == {1}
    failures = dues.count(first) - 1
    assert failures >= 1
    of_first = [each.result for each in outcomes if each.due == first]
    assert of_first == [OutcomeResult.FAILED] * failures + [OutcomeResult.FIRED]
    assert [each.result for each in outcomes if each.due in others] == [OutcomeResult.FIRED] * 3


async def test_what_is_removed_before_its_time_is_not_called(house: House) -> None:
    await clock_and_worker(house)
    async with callee() as server:
        gone = await calls(house, "gone", server.url, 5)
        assert await house.schedules.remove(gone.schedule.id)
        await settled(house, await calls(house, "stays", server.url, 5.5))
    assert [each.key for each in server.all] == ["stays"]


async def test_what_waits_for_a_worker_can_still_be_removed_or_held(house: House) -> None:
    await house.start("scheduler", **QUICK)
    async with callee() as server:
        gone, held = [await calls(house, key, server.url, 2) for key in ("gone", "held")]
        await waiting(house, 2)
        assert await house.schedules.remove(gone.schedule.id)
        assert await house.schedules.pause(held.schedule.id)
        await house.start("worker", **OPEN)
        await settled(house, await calls(house, "other", server.url, 0.5))
        assert [each.key for each in server.all] == ["other"]
        assert await house.schedules.resume(held.schedule.id)
        await settled(house, held)
    assert [each.key for each in server.all] == ["other", "held"]


async def test_a_record_arrives_on_an_allowed_topic_with_its_key_and_headers(house: House) -> None:
    topic, port = f"users-{secrets.token_hex(5)}", free_port()
    await house.servers.stream.setup({topic: 1})
    known = {"CARILLON_API_PORT": str(port), "CARILLON_API_FIRST_ADMIN": "admin@example.com"}
    await house.start("api", CARILLON_CALLBACKS_TOPICS=f"{topic},others", **known)
    await house.start("scheduler", **QUICK)
    due = (await house.servers.time.now() + timedelta(seconds=5)).replace(microsecond=0) + timedelta(seconds=1)
    answer, schedule = await Customer(port).call("POST", "/schedules", record(topic, due.isoformat()))
    assert answer == 201, schedule
    refused, problem = await Customer(port).call("POST", "/schedules", record("secret-topic", due.isoformat()))
    assert (refused, "callbacks.topics" in json.dumps(problem)) == (422, True)
    servers = house.environment["CARILLON_STREAM_URL"].removeprefix("kafka://")
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        found = await asyncio.wait_for(consumer.getone(), SECONDS)
        more = await consumer.getmany(timeout_ms=1_500)
    headers = {name: value.decode() for name, value in found.headers}
    assert not more
    assert (found.key, json.loads(found.value)) == (b"u42", {"id": "42"})
    assert (headers["x-tenant"], headers["carillon-key"], headers["carillon-attempt"]) == ("coach", "record", "1")
    assert len(headers["message-id"]) == 32


def record(topic: str, instant: str) -> dict[str, Any]:
    data = {"topic": topic, "key": "u42", "headers": {"x-tenant": "coach"}, "payload": {"id": "42"}}
    return {"key": "record", "schedules": [instant], "callback": {"type": "kafka", "data": data}}
