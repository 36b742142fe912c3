"""`/namespaces`: which there are, for whoever has a role over them."""

import secrets
from typing import Any

import pytest

from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House
from tests.services.api.jobs.test_job_lists import follow

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {
    "every": 3600,
    "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"id": 1}}},
}


async def issued(house: House, **more: Any) -> tuple[Client, str]:
    """A service, and the id of its token."""
    made = (await house.admin.post("/tokens", {"name": "service"} | more)).json
    return house.admin.service(made["token"]), made["id"]


async def listed(client: Client, limit: int = 1_000) -> dict[str, tuple[int, int]]:
    """The tokens and schedules of each namespace. The list is in order, and has none twice."""
    found = await follow(client, f"/namespaces?limit={limit}")
    names = [each["namespace"] for each in found]
    assert names == sorted(set(names))
    return {each["namespace"]: (each["tokens"], each["schedules"]) for each in found}


async def test_an_admin_sees_all_there_are_with_what_they_have(house: House) -> None:
    shared = f"token:shared-{secrets.token_hex(4)}"
    email = f"{secrets.token_hex(4)}@example.com"
    await house.admin.post("/users", {"email": email})
    service, own = await issued(house)
    leaving, left = await issued(house)
    for key in ("a", "b"):
        assert (await service.post("/schedules", SCHEDULE | {"key": key})).status == 201
    assert (await leaving.post("/schedules", SCHEDULE | {"key": "a"})).status == 201
    for _ in range(2):
        await issued(house, namespace=shared)
    await issued(house, namespace=f"token:{own}")
    await house.admin.delete(f"/tokens/{left}")
    expected = {shared: (2, 0), f"user:{email}": (0, 0), f"token:{own}": (2, 2), f"token:{left}": (0, 1)}
    whole = await listed(house.admin)
    assert whole | expected == whole
    assert f"user:{ADMIN}" in whole
    for limit in (1, 2, 3):
        assert await listed(house.admin, limit) == whole


async def test_there_may_be_names_alone(house: House) -> None:
    service, own = await issued(house)
    assert (await service.get("/namespaces?counts=false")).json == [{"namespace": f"token:{own}"}]
    refused = await service.get("/namespaces?counts=no")
    assert (refused.status, refused.json["field"]) == (422, "counts")


async def test_others_see_those_over_which_they_have_a_role(house: House) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _, other = await issued(house)
    roles = {f"namespace/user:{email}": "viewer", f"namespace/token:{other}": "operator"}
    service, own = await issued(house, roles=roles)
    for limit in (1, 1_000):
        found = await listed(service, limit)
        assert found == {f"token:{own}": (1, 0), f"token:{other}": (1, 0), f"user:{email}": (0, 0)}
    everywhere, _ = await issued(house, roles={"*": "viewer"})
    assert await listed(everywhere) == await listed(house.admin)


async def test_counting_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.api.console.overview.COUNTED", 2)
    service, own = await issued(house)
    for key in "abcde":
        await service.post("/schedules", SCHEDULE | {"key": key})
    assert (await listed(service))[f"token:{own}"] == (1, 3)
