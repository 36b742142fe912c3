"""Whoever asks too often is told when to come again. Others are served, and so is what stops something."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.security import bodies
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import Tenant, Town

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

PER_SECOND = 5
REQUESTS = 100


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrow(target: Target, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    """A process that lets each namespace make a few requests a second, which no machine is too slow to exceed."""
    environment = target.environment | {"CARILLON_API_REQUESTS_PER_SECOND": str(PER_SECOND)}
    narrow = Target(environment, Path(tmp_path_factory.mktemp("narrow")))
    await narrow.whole()
    yield narrow
    await narrow.end()


async def burst(target: Target, tenant: Tenant) -> list[Answer]:
    asking = (target.call("GET", "/schedules", headers=tenant.headers) for _ in range(REQUESTS))
    return list(await asyncio.gather(*asking))


@pytest.mark.slow
async def test_too_many_requests_are_told_when_to_come_again(narrow: Target, town: Town) -> None:
    answers = await burst(narrow, await town.stranger())
    refused = [answer for answer in answers if answer.status == 429]
    assert {answer.status for answer in answers} == {200, 429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


@pytest.mark.slow
async def test_others_are_served_meanwhile(narrow: Target, town: Town) -> None:
    busy, calm = await town.stranger(), await town.stranger()
    answers, other = await asyncio.gather(burst(narrow, busy), narrow.call("GET", "/schedules", headers=calm.headers))
    assert 429 in {answer.status for answer in answers}
    assert other.status == 200


@pytest.mark.slow  # services/api/http/test_limits.py has it without a process
async def test_what_stops_something_is_never_refused(narrow: Target, town: Town, database: Database) -> None:
    tenant = await town.settler()
    app = f"/apps/{tenant.ids['appId']}"
    # They are made at the other process, where there is room.
    job = (await town.target.call("POST", f"{app}/jobs?template=like", bodies.job(tenant.ids), tenant.headers)).json
    key = (await town.target.call("POST", "/schedules", bodies.keyed(tenant.ids), tenant.headers)).json["key"]
    stops = [
        ("POST", f"/schedules/{key}/pause"),
        ("DELETE", f"/schedules/{key}"),
        ("PUT", f"{app}/jobs/{job['id']}/pause"),
        ("PUT", f"{app}/jobs/{job['id']}/stop"),
    ]
    for method, path in stops:
        assert 429 in {answer.status for answer in await burst(narrow, tenant)}
        assert (await narrow.call(method, path, headers=tenant.headers)).status in {200, 204}
