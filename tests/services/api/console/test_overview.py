"""The overview as the API shows it."""

import pytest

from shared.console import overview
from shared.console.rules.overview import _CHECKS
from shared.console.rules.processes import QueueState
from shared.console.rules.signs import ROLES, SIGNS
from shared.core.errors import Unavailable
from shared.jobs.rules.jobs import JobStatus
from tests.console.rules.test_overview import SHOWN
from tests.console.rules.test_processes import a_process
from tests.jobs.made import a_job
from tests.services.api.client import Client
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


def fresh(house: House) -> Client:
    """An admin of an API that has not looked yet."""
    return Client(house.build(), {"x-forwarded-email": "admin@example.com"})


async def test_whatever_shows_is_a_sign_with_a_runbook() -> None:
    names = {sign.name for sign in SIGNS}
    assert set(SHOWN) | {"RoleMissing"} <= names
    assert len(_CHECKS) == len(SHOWN) + 1


async def test_it_says_what_is_wrong_and_what_to_do(house: House) -> None:
    await house.store.processes.tell(a_process(id="api", roles=("api",)))
    shown = (await fresh(house).get("/overview")).json
    assert (shown["verdict"], shown["partial"]) == ("ailing", False)
    missing = [sign for sign in shown["signs"] if sign["name"] == "RoleMissing"]
    assert [sign["seen"] for sign in missing] == [f"no {role} process is running" for role in ROLES if role != "api"]
    assert all(sign["remedy"] and sign["sentence"] and sign["severity"] == "page" for sign in missing)


async def test_all_is_well_and_what_cannot_be_read_is_unknown(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.store.processes.tell(a_process(id="all", roles=ROLES))
    shown = (await fresh(house).get("/overview")).json
    assert (shown["verdict"], shown["signs"], shown["unknown"]) == ("well", [], [])
    assert [queue["name"] for queue in shown["queues"]] == sorted(queue["name"] for queue in shown["queues"]) != []

    async def refuse() -> list[QueueState]:
        raise Unavailable("management API: http://guest:hush@127.0.0.1:1 is away")

    monkeypatch.setattr(house.broker, "list_queues", refuse)
    shown = (await fresh(house).get("/overview")).json
    assert (shown["verdict"], shown["queues"]) == ("unknown", [])
    assert [(part["what"], part["since"]) for part in shown["unknown"]] == [("queues", shown["asOf"])]
    assert "hush" not in str(shown)


async def test_who_may_not_see_all_sees_their_own_jobs(house: House) -> None:
    mine, other = await house.app(), await house.app()
    for app_id in (mine, other):
        await house.store.jobs.add(a_job(app_id=app_id, created_at=10**18, status=JobStatus.RUNNING))
        await house.store.jobs.add(a_job(app_id=app_id, created_at=10**18, status=JobStatus.SCHEDULED, starts_at=5))
        await house.store.jobs.add(a_job(app_id=app_id, created_at=10**18, status=JobStatus.PAUSED))
    service = await house.service(mine)
    shown = (await service.get("/overview")).json
    assert shown["partial"] is True
    jobs = shown["jobs"]
    assert {job["appId"] for job in jobs["paused"] + jobs["running"] + jobs["waiting"]} == {mine}
    assert [job["state"] for job in jobs["paused"]] == ["paused"]
    assert (shown["processes"], shown["queues"], shown["minutes"], shown["jobs"]["open"]) == ([], [], [], {})
    whole = (await fresh(house).get("/overview")).json
    assert {mine, other} <= {job["appId"] for job in whole["jobs"]["waiting"]}
    assert whole["jobs"]["open"]["scheduled"] >= 2


async def test_many_who_look_cost_one_look(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    really = house.store.processes.list

    async def count() -> object:
        nonlocal looks
        looks += 1
        return await really()

    monkeypatch.setattr(house.store.processes, "list", count)
    monkeypatch.setattr(overview, "SECONDS", 3_600.0)
    client = fresh(house)
    for _ in range(20):
        assert (await client.get("/overview")).status == 200
    assert looks == 1
