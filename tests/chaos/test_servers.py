"""Servers that stop, restart or freeze while a job runs, and an API that dies between a job and its task."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from services.embedded.processes import free_port
from shared.accounts.rules.apps import App
from tests import stack as servers
from tests.chaos.outages import QUEUES_WRITTEN_DOWN
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

SLOW = ",".join(f"send.after_take@{n}=delay:0.3" for n in range(1, 40))
RECOVERED_SECONDS = 120.0


@pytest.mark.kills_servers
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("server", and_rarely("mongo", rarely=("rabbitmq", "kafka", "postgres")))
async def test_a_server_is_killed_and_started_again_in_mid_job(house: House, server: str) -> None:
    await house.devices(40_000)
    await house.start("scheduler")
    await house.start("worker", fault=SLOW)
    if server == "rabbitmq":
        await asyncio.sleep(QUEUES_WRITTEN_DOWN)
    job_id = await house.post()
    await until(lambda: some_are_sent(house, job_id), "the first batches")
    await asyncio.to_thread(servers.restart, server, kill_it=True)
    await house.exactly_once(job_id, 40_000, seconds=RECOVERED_SECONDS)


@pytest.mark.kills_servers
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("server", ["mongo", "kafka"])
async def test_a_server_freezes_for_ten_seconds(house: House, server: str) -> None:
    await house.devices(40_000)
    await house.start("scheduler")
    await house.start("worker", fault=SLOW)
    job_id = await house.post()
    await until(lambda: some_are_sent(house, job_id), "the first batches")
    servers.pause(server)
    try:
        await asyncio.sleep(10)
    finally:
        servers.unpause(server)
    await house.exactly_once(job_id, 40_000, seconds=RECOVERED_SECONDS)


@pytest.mark.proof
async def test_the_api_dies_between_a_job_and_its_task(house: House) -> None:
    await house.devices(5_000)
    await house.servers.store.apps.add(
        App(
            id=house.app_id,
            name=house.app,
            bundle_id=f"com.example.{house.app}",
            created_by="",
            created_at=0,
            updated_at=0,
        )
    )
    port = str(free_port())
    api = await house.start(
        "api", fault="api.after_job_insert=kill", CARILLON_API_FIRST_ADMIN="admin@example.com", CARILLON_API_PORT=port
    )
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        await asyncio.to_thread(post_job, f"http://127.0.0.1:{port}/apps/{house.app_id}/jobs?template=like")
    assert await api.gone() < 0
    (job_id,) = [job_id async for job_id in house.servers.store.open_jobs.open_keys()]
    await house.start("worker")
    await house.start("scheduler")
    await house.exactly_once(job_id, 5_000)


def post_job(url: str) -> None:
    body = json.dumps({"service": "apns", "context": {"who": "Ana"}}).encode()
    request = urllib.request.Request(url, data=body, headers={"x-forwarded-email": "admin@example.com"})
    urllib.request.urlopen(request, timeout=SECONDS).close()


async def some_are_sent(house: House, job_id: str) -> bool:
    totals = await house.servers.store.batch_sums.totals([job_id])
    return job_id in totals and totals[job_id].settled >= 3
