"""Everything over HTTP, as a customer does it: an app, templates, a job, its progress, pause and resume, and the counts
that come back."""

import asyncio
import json
import os
import re
import secrets
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from services.embedded.processes import free_port
from tests.e2e.house import House
from tests.e2e.test_first_steps import steps_of
from tests.stack import Endpoints
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]


class Customer:
    """A client of the API that knows nothing of what is behind it."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self._call, method, path, body, headers)

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        for name, value in {"x-forwarded-email": "admin@example.com", **headers}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")


@pytest.fixture
async def customer(house: House) -> Customer:
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN="admin@example.com")
    return Customer(port)


async def an_app(house: House, customer: Customer) -> str:
    name = {"name": house.app, "bundleId": f"com.example.{house.app}"}
    status, app = await customer.call("POST", "/apps", name)
    assert status == 201, app
    templates = [
        {"name": "welcome", "locale": locale, "body": {"alert": f"{greeting} {{{{who}}}}"}, "defaults": {"who": "you"}}
        for locale, greeting in (("en", "Hello"), ("pt", "Ola"))
    ]
    status, made = await customer.call("POST", f"/apps/{app['id']}/templates?multiple=true", templates)
    assert status == 201, made
    return str(app["id"])


@pytest.mark.proof
async def test_a_job_with_a_filter_its_records_and_its_feedback(house: House, customer: Customer) -> None:
    await house.devices(3_000)
    for service in ("worker", "scheduler", "feedback-answers"):
        await house.start(service, CARILLON_FEEDBACK_FLUSH_SECONDS="0.3", CARILLON_FEEDBACK_GROUP=f"g-{house.app}")
    app_id = await an_app(house, customer)
    ask = {"service": "apns", "filters": {"locale": "pt"}, "context": {"who": 'A"na\n'}, "metadata": {"dryRun": False}}
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", ask)
    assert status == 201, job
    path = f"/apps/{app_id}/jobs/{job['id']}"
    await until(lambda: is_completed(customer, path), "the job to complete")
    _, job = await customer.call("GET", path)
    assert (job["totalTokens"], job["completedTokens"], job["sent"], job["locales"]) == (1000, 1000, 1000, {"pt": 1000})
    records = await house.records(1000)
    assert {record["Payload"]["aps"]["alert"] for record in records} == {'Ola A"na\n'}
    assert {int(record["metadata"]["userId"][1:]) for record in records} == set(range(3, 3001, 3))
    assert len({record["metadata"]["muid"] for record in records}) == 1000

    feedback = [{"metadata": record["metadata"], "Err": None} for record in records[:900]]
    failures = [{"metadata": record["metadata"], "Err": {"Key": "unregistered"}} for record in records[900:]]
    topic = f"push-{house.app}_apns-{secrets.token_hex(3)}-feedbacks"
    await house.servers.stream.setup({topic: 2})
    await house.servers.stream.publish(topic, [json.dumps(each).encode() for each in feedback + failures])
    expected = {"ack": 900, "unregistered": 100}

    async def counted() -> bool:
        return bool((await customer.call("GET", path))[1]["feedbacks"] == expected)

    await until(counted, "the feedback to be counted")


async def test_the_pusher_of_the_documentation_answers_each_record_once(
    house: House, customer: Customer, stack: Endpoints, tmp_path: Path
) -> None:
    await house.devices(300)
    for service in ("worker", "scheduler", "feedback-answers"):
        await house.start(service, CARILLON_FEEDBACK_FLUSH_SECONDS="0.3", CARILLON_FEEDBACK_GROUP=f"g-{house.app}")
    app_id, topic = await an_app(house, customer), f"{house.app}-feedbacks"
    await house.servers.stream.setup({topic: 2})
    names = {
        "push-game_apns-massive": f"push-{house.app}_apns-massive",
        "game-feedbacks": topic,
        '"pusher"': f'"{topic}"',
    }
    for step in steps_of("docs/writing-a-pusher.md"):
        if step.file:
            text = re.sub("|".join(names), lambda found: names[found[0]], step.text)
            (tmp_path / step.file).write_text(text)
    environment = os.environ | {"KAFKA": stack.kafka_servers, "PUSHER_ID": topic}
    pusher = await asyncio.create_subprocess_exec(sys.executable, "kafka_pusher.py", cwd=tmp_path, env=environment)
    try:
        _, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"})

        async def counted() -> bool:
            _, told = await customer.call("GET", f"/apps/{app_id}/jobs/{job['id']}")
            return bool(told["feedbacks"] == {"bad-token": 300})  # the tokens of a house begin with 00

        await until(counted, "the pusher's answers to be counted")
    finally:
        pusher.kill()
        await pusher.wait()


@pytest.mark.proof
async def test_a_job_is_paused_resumed_and_repeated_by_its_key(house: House, customer: Customer) -> None:
    await house.devices(30_000)
    app_id = await an_app(house, customer)
    worker = await house.start("worker", fault="send.after_take@8=stop")
    await house.start("scheduler")
    ask, key = {"service": "apns"}, {"Idempotency-Key": "once"}
    posted = [await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", ask, **key) for _ in range(3)]
    assert [status for status, _ in posted] == [201, 200, 200]
    assert len({job["id"] for _, job in posted}) == 1
    status, problem = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "gcm"}, **key)
    assert status == 422, problem

    job_id = posted[0][1]["id"]
    path = f"/apps/{app_id}/jobs/{job_id}"
    await worker.reached("send.after_take")
    assert (await customer.call("PUT", f"{path}/pause"))[1]["status"] == "paused"
    worker.send(signal.SIGCONT)
    assert (await customer.call("PUT", f"{path}/pause"))[0] == 403
    job_key = await house.key_of(job_id)
    await until(lambda: nothing_in_flight(house, job_key), "what was in flight to end")
    held = await house.servers.store.batch_sums.totals([job_key])
    assert 8_000 <= held[job_key].sent < 30_000
    assert (await customer.call("PUT", f"{path}/resume"))[1]["status"] == ""
    await house.exactly_once(job_id, 30_000)
    assert (await customer.call("PUT", f"{path}/stop"))[0] == 403


async def nothing_in_flight(house: House, job_key: str) -> bool:
    standing = await house.servers.store.jobs.get_standing(job_key)
    heads = await house.servers.store.batches.heads(job_key)
    return standing is not None and standing.end is not None and all(head.planned for head in heads)


async def is_completed(customer: Customer, path: str) -> bool:
    _, job = await customer.call("GET", path)
    return bool(job["completedAt"])
