"""What is true of every route: health, documentation, outages, faults, logs and metrics."""

import asyncio
import gc
import re
import warnings
from typing import Any, cast

import pytest
from openapi_spec_validator import validate

from services.api.app import Application
from services.api.http.health import HealthResource
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience
from shared.runtime.metrics import REGISTRY
from shared.runtime.server_settings import BlobSettings, Section
from shared.runtime.settings import ApiSettings
from shared.store import Store
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


def rebuilt(house: House, *sections: Section, **servers: Any) -> Application:
    return house.build(ApiSettings(first_admin=ADMIN), BlobSettings(), *sections, **servers)


async def test_the_health_check_asks_both_databases(house: House) -> None:
    reply = await house.admin.get("/healthcheck")
    assert (reply.status, reply.json) == (200, {"healthy": True})
    assert reply.headers["marathon-version"] == "3.1.11"
    gone = Audience.open("postgresql://nobody@127.0.0.1:1/none", pool_size=1, statement_timeout_seconds=1)
    reply = await Client(rebuilt(house, audience=gone)).get("/healthcheck")
    assert (reply.status, reply.json) == (500, {"healthy": False})
    await gone.close()


async def test_one_look_serves_all_who_ask_for_health_within_a_second(house: House) -> None:
    class Pinged:
        pings = 0

        async def ping(self) -> None:
            self.pings += 1

    store, audience, now = Pinged(), Pinged(), 100.0
    health = HealthResource(cast("Store", store), cast("Audience", audience), monotonic=lambda: now)
    replies = await asyncio.gather(*(health.check_health() for _ in range(20)))
    assert {reply.status_code for reply in replies} == {200}
    assert (store.pings, audience.pings) == (1, 1)
    now += 1
    await health.check_health()
    assert (store.pings, audience.pings) == (2, 2)


async def test_a_server_that_is_away_is_a_503_that_says_when_to_come_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.store.CONNECT_MS", 50)
    for reply in await replies_without_a_store(house):
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) > 0
        assert reply.headers["content-type"] == "application/problem+json"
        assert "127.0.0.1" not in reply.body.decode()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # PyMongo drops the socket that its monitor was connecting when it was closed


async def replies_without_a_store(house: House) -> list[Reply]:
    away = Store.open("mongodb://127.0.0.1:1/none", timeout_seconds=1)
    app = rebuilt(house, store=away)
    clients = [Client(app, {"x-forwarded-email": ADMIN}), Client(app, {"authorization": "Bearer x"})]
    replies = [await client.get("/apps") for client in clients]
    await away.close()
    await asyncio.sleep(0)  # its cancelled tasks end
    return replies


async def test_a_fault_of_ours_tells_nothing_about_the_inside(house: House) -> None:
    class Broken:
        async def check(self, *_: object) -> None:
            raise RuntimeError("secret of the inside")

    app_id = await house.app_with_template()
    client = Client(rebuilt(house, audience=Broken()), house.admin.headers)
    reply = await client.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    assert reply.status == 500
    assert reply.headers["content-type"] == "application/problem+json"
    assert "secret" not in reply.body.decode()
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_a_client_that_leaves_in_the_middle_is_no_fault_of_ours(house: House) -> None:
    headers = [(b"x-forwarded-email", ADMIN.encode())]
    reply = await house.admin.exchange("POST", "/apps", b'{"name":"left","bundleId":"a.b.left"}', headers, leaves=True)
    assert reply.status == 400
    assert "a.b.left" not in [app["bundleId"] for app in (await house.admin.get("/apps")).json]


async def test_a_first_admin_that_is_no_address_is_refused_at_the_start(house: House) -> None:
    with pytest.raises(Invalid):
        rebuilt(house, ApiSettings(first_admin="root"))


async def test_requests_are_measured_by_route_and_never_by_id(house: House) -> None:
    app_id = await house.app()
    labels = {"route": "/apps/{app_id}", "method": "GET", "status": "200"}
    before = REGISTRY.get_sample_value("carillon_http_requests_total", labels) or 0
    await house.admin.get(f"/apps/{app_id}")
    await house.admin.send("BREW", f"/{app_id}")
    assert REGISTRY.get_sample_value("carillon_http_requests_total", labels) == before + 1
    seen = {
        (sample.labels["route"], sample.labels["method"])
        for family in REGISTRY.collect()
        for sample in family.samples
        if family.name == "carillon_http_requests"
    }
    assert ("unknown", "unknown") in seen
    assert not any(re.search(r"[0-9a-f]{8}-", route) for route, _ in seen)


async def test_the_document_is_valid_and_tells_every_route(house: House) -> None:
    reply = await house.admin.get("/openapi.json")
    document = reply.json
    validate(document)
    routes = {
        (method, re.sub(r"\{\w+\}", "{}", path)) for path, methods in document["paths"].items() for method in methods
    }
    for method, path in [
        ("get", "/apps"), ("post", "/apps"), ("put", "/apps/{}"), ("delete", "/apps/{}"),
        ("post", "/apps/{}/templates"),
        ("put", "/apps/{}/templates/{}"), ("post", "/apps/{}/jobs"), ("put", "/apps/{}/jobs/{}/pause"),
        ("put", "/apps/{}/jobs/{}/resume"), ("put", "/apps/{}/jobs/{}/stop"), ("put", "/users/{}"), ("post", "/tokens"),
        ("delete", "/tokens/{}"), ("get", "/healthcheck"),
    ]:  # fmt: skip
        assert (method, path) in routes
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["summary"] for operation in operations)


async def test_the_page_and_all_it_names_come_from_here(house: House) -> None:
    stranger = Client(house.admin.app, {}, "203.0.113.9")
    page = (await stranger.get("/docs")).body.decode()
    assert "://" not in page
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) >= 4
    for path in named:
        reply = await stranger.get(path)
        assert reply.status == 200
        assert reply.body
    assert "default-src 'self'" in (await stranger.get("/docs/")).headers["content-security-policy"]
