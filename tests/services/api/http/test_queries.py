"""Queries are as strict as bodies: a parameter that a route does not know is refused, and nothing is done."""

import re
from typing import Any

import pytest
import pytest_asyncio
from litestar.routes import HTTPRoute

from services.api.http.rights import OnBus
from services.api.http.routes import Route
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import ROOT_KEY, House
from tests.services.api.test_bad_input import is_problem

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ID = "01900000-0000-7000-8000-000000000000"
JOB = {"service": "apns"}
CALLBACK = {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}
# Providers, probes, browsers and trackers add parameters of their own here.
LENIENT = {
    "/", "/callbacks/{credential_id:str}", "/callbacks/{credential_id:str}/{message_id:str}", "/docs",
    "/docs/{name:str}", "/health", "/health/ping", "/health/ping.json", "/healthcheck", "/openapi.json",
    "/u/{token:str}",
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app_id(house: House) -> str:
    return await house.app_with_template()


@pytest.fixture(scope="module")
def lenient(house: House) -> Client:
    """A deployment that takes Marathon's jobs as Marathon did."""
    settings = ApiSettings(first_admin=ADMIN, lenient_jobs=True)
    return Client(house.build(settings), {"x-forwarded-email": ADMIN})


def routes(house: House) -> list[Route]:
    found = [route for route in house.admin.app.routes if isinstance(route, HTTPRoute)]
    handlers = [each.opt for route in found for each in route.route_handlers]
    return [each["route"] for each in handlers if "route" in each]


async def test_every_route_refuses_a_parameter_that_it_does_not_know_but_for_a_list(house: House) -> None:
    published = {route.path for route in routes(house) if isinstance(route.who, OnBus)}
    assert {route.path for route in routes(house) if route.ignores_unknown} == LENIENT | published
    strict = [route for route in routes(house) if not route.ignores_unknown]
    assert len(strict) > 120
    for route in strict:
        path = re.sub(r"\{\w+:\w+\}", ID, route.path)
        refused = await house.admin.send(route.method, f"{path}?utm_source=x")
        is_problem(refused, 422, "utm_source")
        assert "unknown query parameter 'utm_source'; this route takes" in refused.json["reason"], route


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "reason"),
    [
        ("POST", "/jobs?template=like&dryRun=true", JOB, "dryRun", "this route takes template"),
        ("POST", "/jobs?template=like&dry_run=true", JOB, "dry_run", "this route takes template"),
        ("POST", "/jobs?template=like&templates=other", JOB, "templates", "did you mean template?"),
        ("POST", "/jobs?template=like&template=other", JOB, "template", "template 2 times"),
        ("POST", "/messages?dryRun=true", {}, "dryRun", "this route takes none"),
        ("POST", "/messages/bulk?dry-run=1", [{}], "dry-run", "this route takes none"),
        ("POST", "/suppressions?dryRun", {}, "dryRun", "this route takes none"),
        ("DELETE", "?dryRun=true", None, "dryRun", "this route takes none"),
        ("DELETE", "?force=true", None, "force", "this route takes none"),
        ("PUT", f"/jobs/{ID}/stop?dryrun=true", None, "dryrun", "did you mean dryRun?"),
        ("PUT", f"/jobs/{ID}/stop?DryRun=true", None, "DryRun", "did you mean dryRun?"),
        ("PUT", f"/jobs/{ID}/pause?dry_run=true", None, "dry_run", "did you mean dryRun?"),
        ("PUT", f"/groups/{ID}/stop?DRY-RUN=true", None, "DRY-RUN", "did you mean dryRun?"),
        ("PUT", f"/jobs/{ID}/stop?dryRun=", None, "dryRun", "dryRun is empty"),
        ("PUT", f"/jobs/{ID}/stop?dryRun", None, "dryRun", "dryRun is empty"),
        ("PUT", f"/jobs/{ID}/stop?dryRun=false&dryRun=true", None, "dryRun", "dryRun 2 times"),
        ("GET", "/jobs?templat=like", None, "templat", "did you mean template?"),
        ("GET", "/jobs?status=paused", None, "status", "this route takes template, limit, cursor"),
        ("GET", f"/jobs/{ID}/messages?states=failed", None, "states", "did you mean state?"),
        ("GET", "/suppressions?address=", None, "address", "address is empty"),
        ("POST", "/templates?multiple=1", {}, "multiple", "multiple must be true or false"),
        ("POST", "/templates?multiple=", {}, "multiple", "multiple is empty"),
    ],
)  # fmt: skip
async def test_a_query_of_an_app_is_refused(
    house: House, app_id: str, method: str, path: str, body: Any, field: str, reason: str
) -> None:
    reply = await house.admin.send(method, f"/apps/{app_id}{path}", body)
    is_problem(reply, 422, field)
    assert reason in reply.json["reason"]
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []
    assert (await house.admin.get(f"/apps/{app_id}")).status == 200


@pytest.mark.parametrize("value", ["yes", "1", "True", "TRUE", "on", "0", ""])
async def test_a_dry_run_that_is_neither_true_nor_false_moves_nothing(house: House, app_id: str, value: str) -> None:
    job_id = (await house.admin.post(f"/apps/{await house.app_with_template()}/jobs?template=like", JOB)).json
    path = f"/apps/{job_id['appId']}/jobs/{job_id['id']}"
    is_problem(await house.admin.put(f"{path}/stop?dryRun={value}"), 422, "dryRun")
    assert (await house.admin.get(path)).json["status"] != "stopped"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/schedules?states=paused", "states"),
        ("/schedules?state=", "state"),
        ("/schedules?namespace=&prefix=a", "namespace"),
        ("/dead-letters?keys=invoices", "keys"),
        ("/jobs?state=paused", "state"),
        ("/jobs?app=", "app"),
        ("/bus/topics?name=a", "name"),
        ("/tokens?page=2", "page"),
        ("/users?email=a@example.com", "email"),
        ("/apps?=x", ""),
    ],
)
async def test_a_list_is_not_shown_whole_where_a_filter_was_meant(house: House, path: str, field: str) -> None:
    is_problem(await house.admin.get(path), 422, field)


async def test_several_labels_may_be_given_one_by_one(house: House) -> None:
    schedule = {"key": "labelled", "every": 60, "callback": CALLBACK, "labels": {"a": "b", "c": "d"}}
    assert (await house.admin.post("/schedules", schedule)).status == 201
    for query, found in (("label=a:b&label=c:d", ["labelled"]), ("label=a:b&label=c:x", [])):
        assert [each["key"] for each in (await house.admin.get(f"/schedules?{query}")).json] == found


@pytest.mark.parametrize(
    "key", ["dryrun", "dry_run", "DryRun", "dry-run", "DRY_RUN", "dry run", "dry.run", "dry\u200brun", "dry\uff32un"]
)
async def test_metadata_that_only_looks_like_a_dry_run_is_refused(
    house: House, lenient: Client, app_id: str, key: str
) -> None:
    path = f"/apps/{app_id}/jobs?template=like"
    for client in (house.admin, lenient):
        reply = await client.post(path, JOB | {"metadata": {key: True}})
        is_problem(reply, 422, f"metadata.{key}")
        assert reply.json["reason"] == f"invalid metadata: write dryRun in place of {key!r}"
        is_problem(await client.post(path, JOB | {key: True}), 422, key)
    for value in ("true", 1, None):
        is_problem(await house.admin.post(path, JOB | {"metadata": {"dryRun": value}}), 422, "metadata.dryRun")
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_a_lenient_deployment_ignores_parameters_of_marathons_clients(
    house: House, lenient: Client, app_id: str
) -> None:
    own = await house.app_with_template()
    assert (await lenient.post(f"/apps/{own}/jobs?template=like&source=cron", JOB)).status == 201
    assert len((await lenient.get(f"/apps/{own}/jobs?_=1&template=")).json) == 1
    for path in (f"/apps/{own}?dry_run=1", f"/apps/{own}?dryRun=true"):
        assert (await lenient.delete(path)).status == 422
    is_problem(await lenient.post(f"/apps/{own}/jobs?template=like&dryrun=true", JOB), 422, "dryrun")
    is_problem(await lenient.get("/schedules?states=paused"), 422, "states")
    is_problem(await lenient.post(f"/apps/{own}/messages?source=cron", {}), 422, "source")
    assert len((await lenient.get(f"/apps/{own}/jobs")).json) == 1


async def test_routemasters_routes_ignore_queries_but_for_dry_runs(house: House) -> None:
    root = house.admin.client(ROOT_KEY)
    made = (await root.post("/api_tokens?source=x", {"name": "queries"})).json["token"]
    client = root.client(made)
    assert (await client.get("/topics?dryRun=true&x=1")).status == 200
    refused = await root.delete(f"/api_tokens/{made}?dry_run=true")
    is_problem(refused, 400, "dry_run")
    assert (await client.get("/topics")).status == 200
    for name in ("dryRun", "dry_run", "DRYRUN"):
        event = {"type": "update", "url": "https://example.com/1"}
        is_problem(await client.post(f"/topics/widgets?{name}=true", event), 400, name)
    is_problem(await root.send("DELETE", f"/api_tokens/{made}", {"dryRun": True}), 400, "body")
    assert (await root.send("DELETE", f"/api_tokens/{made}", {"x": 1})).status == 204


async def test_an_act_with_a_body_that_it_does_not_read_is_refused(house: House, app_id: str) -> None:
    schedule = {"key": "unread", "every": 60, "callback": CALLBACK}
    assert (await house.admin.post("/schedules", schedule)).status == 201
    for body in (b"key=x", b'{"key": "x"}', b"[]"):
        is_problem(await house.admin.send("DELETE", "/schedules/unread", body), 422, "body")
        is_problem(await house.admin.post("/schedules/unread/pause", body), 422, "body")
    assert (await house.admin.get("/schedules/unread")).json["state"] == "active"
    assert (await house.admin.post("/schedules/unread/pause", b" {} ")).status == 200
    # Marathon ignores these bodies.
    for body, status in ((b'{"dryRun": true}', 422), (b"dry_run=true", 422), (b'{"status": "paused"}', 200)):
        job = (await house.admin.post(f"/apps/{await house.app_with_template()}/jobs?template=like", JOB)).json
        path = f"/apps/{job['appId']}/jobs/{job['id']}"
        assert (await house.admin.send("PUT", f"{path}/stop", body)).status == status


@pytest.mark.parametrize("route", ["/dead-letters/retry", "/bus/dead-letters/retry"])
async def test_a_retry_with_an_empty_or_misplaced_filter_retries_nothing(house: House, route: str) -> None:
    nothing: list[Any] = [None, {}]
    no_keys: list[Any] = ["", None, []]
    for body in nothing:
        is_problem(await house.admin.post(f"{route}?key=invoices", body), 422, "key")
        assert (await house.admin.post(route, body)).status == 200
    for key in no_keys:
        is_problem(await house.admin.post(route, {"key": key}), 422, "key")
    is_problem(await house.admin.post(route, {"keys": []}), 422, "keys")


@pytest.mark.parametrize("filter", [{"app": ID, "status": ""}, {"app": ID, "by": ""}, {"app": ""}, {"status": None}])
async def test_a_bulk_action_takes_no_empty_filter(house: House, filter: dict[str, Any]) -> None:
    body = {"act": "job.stop", "filter": filter, "reason": "test"}
    is_problem(await house.admin.post("/bulk-actions?dryRun=true", body), 422, f"filter.{list(filter)[-1]}")
