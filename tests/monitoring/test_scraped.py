"""A real Prometheus looks at a Carillon at work, and answers whatever dashboards and alerts ask."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from monitoring.__main__ import ROOT
from services.embedded.processes import free_port
from shared.console.rules.signs import ROLES, SIGNS
from tests.e2e.callees import OPEN, QUICK
from tests.e2e.clocks import receiving, scheduled
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, is_completed
from tests.monitoring.expressions import every_expression
from tests.monitoring.prometheus import Prometheus, scraping
from tests.waiting import until

pytestmark = [pytest.mark.later("a real Prometheus scrapes processes at work"), pytest.mark.native]
RULES = ROOT / "monitoring" / "prometheus" / "carillon.rules.yaml"
DEVICES = 3_000
SENT = DEVICES * 9 // 10
FIGURES = {
    "sent": 'sum(carillon_recipients_total{{app="{app}",service="apns",outcome="sent"}})',
    "no token": 'sum(carillon_recipients_total{{app="{app}",outcome="skipped",reason="no-token"}})',
    "records": 'sum(carillon_records_sent_total{{app="{app}"}})',
    "begun": "sum(carillon_job_start_delay_seconds_count)",
    "fired": 'sum(carillon_occurrences_fired_total{{callback="rabbitmq",outcome="fired"}})',
    "roles": "count(count by (role) (carillon_build_info))",
}
DONE = {
    "sent": SENT,
    "no token": DEVICES - SENT,
    "records": SENT,
    "begun": 1,
    "fired": 3,
    "roles": len(ROLES),
}
# What does not happen here: nobody is to be told by mail, nobody acts in bulk, no bound is met, no message is sent by a
# credential, no event is published, and all is well.
QUIET = {
    "overview: Alerts that fire: {{alertname}}",
    "overview: Things done in bulk: {{act}} {{outcome}}",
    "jobs: Mails: {{outcome}}",
    "jobs: Callbacks of providers: {{kind}} {{outcome}}",
    "engines: Connections ended by a bound: {{server}} {{reason}}",
    "engines: Calls that raise: {{capability}} {{error}}",
    "engines: Certificates end in: {{of}}",
    "engines: Spans of traces: {{outcome}}",
    "messages: Calls of providers: {{kind}} {{outcome}}",
    "messages: How long calls of providers take, 99 %: {{kind}}",
    "messages: Requests for instants: {{outcome}}",
    "messages: Places of accounts: {{outcome}}",
} | {place for place in every_expression() if place.startswith("bus: ") and "{{" in place}
# They may tell the truth about a machine that does much else.
OF_SLOWNESS = {"FiringLate", "ApiSlow", "JobLate"}


@pytest.fixture
async def ports(house: House) -> list[int]:
    """The health ports of a process of each role; the API's own port comes first."""
    ports = [free_port() for _ in range(len(ROLES) + 1)]
    for role, port in zip(sorted(ROLES), ports[1:], strict=True):
        settings = {
            "CARILLON_HEALTH_PORT": str(port),
            "CARILLON_API_PORT": str(ports[0]),
            "CARILLON_API_FIRST_ADMIN": "admin@example.com",
            "CARILLON_FEEDBACK_FLUSH_SECONDS": "0.3",
            # A commit that takes longer is recovered, and so nobody has seen it.
            "CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "60",
            "CARILLON_FEEDBACK_GROUP": f"g-{house.app}",
        }
        await house.start(role, **settings, **OPEN, **QUICK)
    return ports


@pytest.fixture
async def prometheus(ports: list[int], tmp_path: Path) -> AsyncIterator[Prometheus]:
    async with scraping(tmp_path, ports[1:], RULES) as prometheus:
        yield prometheus


async def work(house: House, customer: Customer) -> None:
    """A job, some of whose devices cannot be reached, its feedback, a schedule, and callers who are not welcome."""
    await house.devices(DEVICES)
    await house.change_devices("UPDATE {table} SET token = NULL WHERE seq_id % 10 = 0")
    app_id = await an_app(house, customer)
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"})
    assert status == 201, job
    await until(lambda: is_completed(customer, f"/apps/{app_id}/jobs/{job['id']}"), "the job to complete")
    records = await house.records(SENT)
    topic = f"push-{house.app}_apns-{secrets.token_hex(3)}-feedbacks"
    await house.servers.stream.setup({topic: 1})
    answers = [json.dumps({"metadata": record["metadata"], "Err": None}).encode() for record in records]
    await house.servers.stream.publish(topic, answers)
    async with receiving(house, "users.queue") as receiver:
        await scheduled(house, "training", 1, 2, 3)
        await receiver.got(3)
    assert (await customer.call("GET", "/apps", **{"x-forwarded-email": "nobody@example.com"}))[0] == 401


async def test_every_expression_is_answered_and_the_figures_are_those_of_what_was_done(
    house: House, ports: list[int], prometheus: Prometheus
) -> None:
    await work(house, Customer(ports[0]))
    panels = {place: asked for place, asked in every_expression().items() if not place.startswith("rule ")}

    async def missing() -> set[str]:
        answers = await asyncio.gather(*(prometheus.ask(asked) for asked in panels.values()))
        return {place for place, found in zip(panels, answers, strict=True) if not found} - QUIET

    async def figures() -> dict[str, float]:
        answers = {what: await prometheus.ask(asked.format(app=house.app)) for what, asked in FIGURES.items()}
        return {what: float(found[0]["value"][1]) if found else 0 for what, found in answers.items()}

    async def is_told() -> bool:
        return not await missing() and await figures() == DONE

    try:
        await until(is_told, "Prometheus to tell all of it", 60)
    except TimeoutError:
        assert await missing() == set()
        assert await figures() == DONE
    for sign in SIGNS:
        assert sign.name in OF_SLOWNESS or await prometheus.ask(sign.expression) == [], f"{sign.name}: all is well here"
    await end_a_role_and_see_it_noticed(house, prometheus)


async def end_a_role_and_see_it_noticed(house: House, prometheus: Prometheus) -> None:
    [sign] = [sign for sign in SIGNS if sign.name == "RoleMissing"]
    [worker] = [process for process in house._processes if "worker" in process._log.name]
    await worker.end()

    async def is_missed() -> bool:
        return [found["metric"] for found in await prometheus.ask(sign.expression)] == [{"role": "worker"}]

    await until(is_missed, "Prometheus to miss the worker")
