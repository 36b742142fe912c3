"""What bad input gets: a 4xx that names the field and the rule, and nothing stored."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.services.api.client import Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = {"service": "apns"}
TEMPLATE = {"name": "n", "locale": "en", "body": {"alert": "x"}}
DEEP = b'{"service":"apns","context":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}"
DEEPER = b"[" * 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app_id(house: House) -> str:
    """An app with a template that stays without jobs."""
    return await house.app_with_template()


def is_problem(reply: Reply, status: int, field: str | None) -> None:
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers.get("content-length") == str(len(reply.body))
    problem = reply.json
    assert set(problem) == {"type", "title", "status", "detail", "reason", "field", "value", "requestId"}
    assert problem["status"] == status
    assert problem["reason"] == problem["detail"] != ""
    assert problem["field"] == field


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b"", None, "the body is empty"),
        (b"   ", None, "the body is empty"),
        (b"{", None, "the body is not JSON"),
        (b"\xef\xbb\xbf{}", "service", "invalid service"),
        (b"\xff", None, "the body is not JSON"),
        (b"[]", None, "the body must be a JSON object"),
        (b'"text"', None, "the body must be a JSON object"),
        (b"null", "service", "invalid service"),
        (b"{}", "service", "invalid service"),
        (b'{"service":"sms"}', "service", "invalid service"),
        (b'{"service":1}', "service", "service must be a string, not an integer"),
        (b'{"service":"apns","service":"gcm"}', "service", "occurs twice"),
        (b'{"service":"apns","SERVICE":"gcm"}', "service", "occurs twice"),
        (b'{"service":"apns","context":{"a":1,"a":2}}', "context.a", "occurs twice"),
        (b'{"service":"apns","filters":{"locale":"en","locale":"pt"}}', "filters.locale", "occurs twice"),
        (b'{"service":"apns","context":{"l":[{},{"a":{},"a":{}}]}}', "context.l[1].a", "occurs twice"),
        (b'{"service":"apns","expiresAt":1}', "expiresAt", "invalid expiresAt"),
        (b'{"service":"apns","expiresAt":-1}', "expiresAt", "invalid expiresAt"),
        (b'{"service":"apns","expiresAt":1.0}', "expiresAt", "expiresAt must be an integer, not a number"),
        (b'{"service":"apns","expiresAt":1e18}', "expiresAt", "expiresAt must be an integer, not a number"),
        (b'{"service":"apns","expiresAt":true}', "expiresAt", "expiresAt must be an integer, not true or false"),
        (b'{"service":"apns","expiresAt":"1"}', "expiresAt", "a timestamp is a date, a time and a zone"),
        (b'{"service":"apns","startsAt":"2126-12-24T09:00:00"}', "startsAt", "a timestamp needs a zone, as in 2026-12"),
        (b'{"service":"apns","startsAt":"2011-12-24T09:00:00Z"}', "startsAt", "or be left out to start at once"),
        (b'{"service":"apns","startsAt":"1970-01-01T00:00:00Z"}', "startsAt", "it must lie in the future"),
        (b'{"service":"apns","localized":true,"expiresAt":"2126-12-24T09:00"}', "expiresAt", "needs a zone"),
        (b'{"service":"apns","localized":true,"startsAt":"2126-12-24T09:00Z"}', "startsAt", "without `Z` or an offset"),
        (b'{"localized":true,"startsAt":"2126-12-24T09:00+01:00"}', "startsAt", "start is a date and a time without"),
        (b'{"service":"apns","expiresAt":9223372036854775808}', "expiresAt", "64 bits"),
        (b'{"service":"apns","expiresAt":' + b"9" * 5000 + b"}", "expiresAt", "64 bits"),
        (b'{"service":"apns","context":{"n":' + b"9" * 30 + b"}}", "context.n", "64 bits"),
        (b'{"service":"apns","context":{"n":-' + b"9" * 24 + b"}}", "context.n", "64 bits"),
        (b'{"service":"apns","context":{"n":[0,1e999]}}', "context.n[1]", "64 bits"),
        (b'{"service":"apns","expiresAt":1e999}', "expiresAt", "64 bits"),
        (b'{"service":"apns","controlGroup":1e999}', "controlGroup", "64 bits"),
        (b'{"service":"apns","metadata":{"n":[1E400]}}', "metadata.n[0]", "64 bits"),
        (b'{"service":"apns","metadata":{"n":0.1234567890123456789}}', "metadata.n", "write fewer digits, or a string"),
        (b'{"service":"apns","metadata":{"n":1e-400}}', "metadata.n", "64 bits"),
        (b'{"service":"apns","metadata":{"n":9007199254740993.0}}', "metadata.n", "64 bits"),
        (b'{"service":"apns","context":{"n":NaN}}', None, "the body is not JSON"),
        (b'{"service":"apns","startsAt":1}', "startsAt", "invalid startsAt"),
        (b'{"service":"apns","startsAt":-1}', "startsAt", "invalid startsAt"),
        (b'{"service":"apns","localized":true,"startsAt":1795327415}', "startsAt", "send 1795327415000000000"),
        (b'{"service":"apns","startsAt":4102444800000}', "startsAt", "milliseconds: send 4102444800000000000"),
        (b'{"service":"apns","expiresAt":4102444800000000}', "expiresAt", "this looks like microseconds"),
        (b'{"service":"apns","expiresAt":12}', "expiresAt", "lie in the future, in nanoseconds since 1970"),
        (b'{"service":"apns","localized":true,"startsAt":-1}', "startsAt", "nanoseconds since 1970"),
        (b'{"service":"apns","pastTimeStrategy":"tomorrow"}', "pastTimeStrategy", "it must be skip or nextDay"),
        (b'{"service":"apns","startsAt":1.5}', "startsAt", "startsAt must be an integer, not a number"),
        (b'{"service":"apns","startsAt":7289654400000000000}', "startsAt", "before the year 2201"),
        (b'{"service":"apns","startsAt":2000000000000000000,"expiresAt":1900000000000000000}', "expiresAt", "after st"),
        (b'{"service":"apns","startsAt":2000000000000000000,"expiresAt":2000000000000000000}', "expiresAt", "after st"),
        (b'{"service":"apns","controlGroup":1}', "controlGroup", "invalid controlGroup"),
        (b'{"service":"apns","controlGroup":-0.1}', "controlGroup", "invalid controlGroup"),
        (b'{"service":"apns","context":"text"}', "context", "context must be an object, not a string"),
        (b'{"service":"apns","metadata":[]}', "metadata", "metadata must be an object, not an array"),
        (b'{"service":"apns","filters":{"locale":1}}', "filters.locale", "must be a string"),
        (b'{"service":"apns","filters":{"locale":null}}', "filters.locale", "must be a string"),
        (b'{"service":"apns","filters":{"shoe":"1"}}', "filters.shoe", "column"),
        (b'{"service":"apns","filters":{"seq_id":"x"}}', "filters.seq_id", ""),
        (b'{"service":"apns","filters":{"a":"b"},"csvPath":"b/k"}', "filters", "send filters or csvPath, not both"),
        (b'{"service":"apns","csvPath":"s3://b/k"}', "csvPath", "leave out s3://"),
        (b'{"service":"apns","context":{"k":"a\\u0000b"}}', "context.k", "NUL"),
        (b'{"service":"apns","context":{"a\\u0000b":1}}', "context.a\0b", "NUL"),
        (b'{"service":"apns","filters":{"locale":"\\u0000"}}', "filters.locale", "NUL"),
        (b'{"service":"apns","context":{"k":"\\ud800"}}', "context.k", "surrogate"),
        (b'{"service":"apns","context":{"\\ud800":"k"}}', "context.?", "surrogate"),
        (b'{"service":"apns","context":{"k":"\xff"}}', "context.k", "surrogate"),
        (b'{"service":"\\ud800"}', "service", ""),
        (b'{"service":"apns","context":{"k":"' + b"x" * 65_537 + b'"}}', "context.k", "65536 bytes"),
        (b'{"service":"apns","filters":{"locale":"' + b"x" * 65_537 + b'"}}', "filters.locale", "65536 bytes"),
        (DEEP, "context", "deep"),
        (DEEPER, None, "deep"),
        (b'{"service":"apns","id":"nonsense"}', "id", "UUID"),
        (b'{"service":"apns","csvPath":"carillon/a\\u0000b"}', "csvPath", "NUL"),
        (b'{"service":"apns","id":"0_000000000000000000000000000000 "}', "id", "UUID"),
    ],
)  # fmt: skip
async def test_a_job_with(house: House, app_id: str, body: bytes, field: str | None, reason: str) -> None:
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", body)
    is_problem(reply, 422, field)
    assert reason in reply.json["reason"]
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"localized": True}, "localized", "a localized job needs a start: send `startsAt`"),
        (
            {"localized": True, "startsAt": 2 * 10**18, "pastTimeStrategy": "never"},
            "pastTimeStrategy",
            "skip or nextDay",
        ),
        ({"pastTimeStrategy": "Skip"}, "pastTimeStrategy", "skip or nextDay"),
        ({"localized": True, "startsAt": 10**18, "pastTimeStrategy": "skip"}, "startsAt", "passed in every time zone"),
        ({"csvPath": "elsewhere/users.csv"}, "csvPath", "the bucket must be one of carillon"),
        ({"csvPath": "carillon/none.csv"}, "csvPath", "none.csv"),
        ({"csvPath": "carillon"}, "csvPath", "bucket"),
        ({"csvPath": "carillon/../secret"}, "csvPath", ""),
        ({"csvPath": "carillon/large.csv"}, "csvPath", "100 are allowed"),
    ],
)
async def test_what_can_be_known_of_an_audience_is_told_after_the_checks(
    house: House, fields: dict[str, Any], field: str, reason: str
) -> None:
    await house.file("large.csv", b"x" * 101)
    app_id = await house.app_with_template()
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", JOB | fields)
    is_problem(reply, 422, field)
    assert reason in reply.json["reason"]
    unknown = await house.admin.post(f"/apps/{app_id}/jobs?template=none", JOB | fields)
    is_problem(unknown, 422, "template")
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_the_checks_of_post_job_come_in_marathons_order(house: House) -> None:
    app_id, nobody = await house.app_with_template(), "00000000-0000-4000-8000-000000000000"
    post = house.admin.post
    is_problem(await post("/apps/nonsense/jobs", b"{"), 422, "appId")
    unknown = await post(f"/apps/{nobody}/jobs", b"{")
    is_problem(unknown, 422, "appId")
    assert unknown.json["reason"] == "App not found with given id."
    nameless = await post(f"/apps/{app_id}/jobs?template=", b"{")
    is_problem(nameless, 422, "template")
    assert nameless.json["reason"] == "name a template: ?template=NAME"
    is_problem(await post(f"/apps/{app_id}/jobs?template=none", b"{"), 422, None)
    is_problem(await post(f"/apps/{app_id}/jobs?template=none", {"service": "x"}), 422, "service")
    is_problem(await post(f"/apps/{app_id}/jobs?template=none", JOB), 422, "template")


async def test_a_job_needs_each_template_and_each_in_english(house: House) -> None:
    app_id = await house.app_with_template()
    await house.admin.post(f"/apps/{app_id}/templates", TEMPLATE | {"locale": "pt"})
    for query in ("n", "like,n"):
        reply = await house.admin.post(f"/apps/{app_id}/jobs?template={query}", JOB)
        is_problem(reply, 422, "template")
        assert reply.json["reason"] == "Cannot create job if there is no template for locale 'en'."
    for query in ("like,", "like, n", "LIKE", "%00"):
        is_problem(await house.admin.post(f"/apps/{app_id}/jobs?template={query}", JOB), 422, "template")


async def test_a_job_needs_its_apps_table(house: House) -> None:
    app_id = await house.app("tableless")
    await house.admin.post(f"/apps/{app_id}/templates", TEMPLATE)
    is_problem(await house.admin.post(f"/apps/{app_id}/jobs?template=n", JOB), 422, "app")
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "x" * 51}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "ä"}, "name"),
        ({"name": 'x"; DROP TABLE y'}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": 1}, "name"),
        ({"bundleId": ""}, "bundleId"),
        ({"bundleId": "com.example"}, "bundleId"),
        ({"bundleId": "com.Example.game"}, "bundleId"),
        ({"bundleId": "com..game"}, "bundleId"),
        ({"bundleId": "com.example.game\n"}, "bundleId"),
        ({"bundleId": "a.b." + "c" * 255}, "bundleId"),
    ],
)
async def test_an_app_with(house: House, change: dict[str, Any], field: str) -> None:
    app = {"name": "game", "bundleId": "com.example.bad"}
    is_problem(await house.admin.post("/apps", app | change), 422, field)
    bundles = [app["bundleId"] for app in (await house.admin.get("/apps")).json]
    assert app["bundleId"] not in bundles


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"locale": ""}, "locale"),
        ({"locale": "x" * 11}, "locale"),
        ({"body": {}}, "body"),
        ({"body": None}, "body"),
        ({"body": "text"}, "body"),
        ({"body": {"alert": "{{user"}}, "body.alert"),
        ({"body": {"alert": "{{#if user}}Hi{{/if}}"}}, "body.alert"),
        ({"body": {"alert": "{{user.name}}"}}, "body.alert"),
        ({"body": {"alert": "\0"}}, "body.alert"),
        ({"defaults": []}, "defaults"),
        ({"defaults": {"a": "x" * 65_537}}, "defaults.a"),
    ],
)
async def test_a_template_with(house: House, change: dict[str, Any], field: str) -> None:
    app_id = await house.app()
    is_problem(await house.admin.post(f"/apps/{app_id}/templates", TEMPLATE | change), 422, field)
    several = await house.admin.post(f"/apps/{app_id}/templates?multiple=true", [TEMPLATE, TEMPLATE | change])
    is_problem(several, 422, f"[1].{field}")
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


@pytest.mark.parametrize("body", [b"{}", b"[]", b"[1]", b"null", b'[{"name":"a","name":"b"}]'])
async def test_several_templates_that_are_no_array_of_templates(house: House, body: bytes) -> None:
    app_id = await house.app()
    reply = await house.admin.post(f"/apps/{app_id}/templates?multiple=true", body)
    assert reply.status == 422
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "email"),
        ({"email": "a@b"}, "email"),
        ({"email": "a b@example.com"}, "email"),
        ({"email": "a@@example.com"}, "email"),
        ({"email": ".a@example.com"}, "email"),
        ({"email": "a@-x.com"}, "email"),
        ({"email": "a@example.com\n"}, "email"),
        ({"email": "x" * 250 + "@example.com"}, "email"),
        ({"email": "a@example.com", "isAdmin": "yes"}, "isAdmin"),
        ({"email": "a@example.com", "allowedApps": ["x"]}, "allowedApps[0]"),
        ({"email": "a@example.com", "allowedApps": "x"}, "allowedApps"),
        ({"email": "a@example.com", "allowedApps": [None]}, "allowedApps[0]"),
    ],
)
async def test_a_user_with(house: House, body: dict[str, Any], field: str) -> None:
    is_problem(await house.admin.post("/users", body), 422, field)


@pytest.mark.parametrize(("name", "field"), [("", "name"), ("x" * 256, "name"), ("a\nb", "name"), (7, "name")])
async def test_a_token_with(house: House, name: object, field: str) -> None:
    is_problem(await house.admin.post("/tokens", {"name": name}), 422, field)


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/apps/nonsense", "appId"),
        ("DELETE", "/apps/0", "appId"),
        ("GET", "/apps/x/templates", "appId"),
        ("GET", "/apps/{app}/templates/x", "templateId"),
        ("DELETE", "/apps/{app}/templates/x", "templateId"),
        ("GET", "/apps/{app}/jobs/x", "jobId"),
        ("PUT", "/apps/{app}/jobs/{app}0/stop", "jobId"),
        ("GET", "/users/x", "userId"),
        ("DELETE", "/users/x", "userId"),
        ("DELETE", "/tokens/x", "tokenId"),
        ("GET", "/apps?limit=0", "limit"),
        ("GET", "/apps?limit=1001", "limit"),
        ("GET", "/apps?limit=x", "limit"),
        ("GET", "/apps?limit=%D9%A1", "limit"),
        ("GET", "/apps?cursor=%00", "cursor"),
        ("GET", "/apps?cursor=WzFd", "cursor"),
        ("GET", "/apps/{app}/jobs?cursor=IjEi", "cursor"),
        ("GET", "/apps/{app}/jobs?cursor=WzE4NDQ2NzQ0MDczNzA5NTUxNjE2LCJhIl0", "cursor"),
    ],
)
async def test_a_path_or_query_with(house: House, method: str, path: str, field: str) -> None:
    app_id = await house.app()
    is_problem(await house.admin.send(method, path.format(app=app_id)), 422, field)


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/apps/{id}", "appId"),
        ("DELETE", "/apps/{id}", "appId"),
        ("GET", "/apps/{app}/templates/{id}", "templateId"),
        ("DELETE", "/apps/{app}/templates/{id}", "templateId"),
        ("GET", "/apps/{app}/jobs/{id}", "jobId"),
        ("PUT", "/apps/{app}/jobs/{id}/pause", "jobId"),
        ("PUT", "/apps/{app}/jobs/{id}/resume", "jobId"),
        ("PUT", "/apps/{app}/jobs/{id}/stop", "jobId"),
        ("GET", "/users/{id}", "userId"),
        ("DELETE", "/users/{id}", "userId"),
        ("DELETE", "/tokens/{id}", "tokenId"),
        ("GET", "/apps/{app}/nothing", None),
        ("PATCH", "/apps", None),
        ("GET", "/nothing", None),
        ("GET", "/docs/nothing", None),
    ],
)
async def test_what_is_not_there(house: House, method: str, path: str, field: str | None) -> None:
    app_id = await house.app()
    target = path.format(app=app_id, id="00000000-0000-4000-8000-000000000000")
    is_problem(await house.admin.send(method, target), 404, field)


async def test_put_of_what_is_not_there_after_a_valid_body(house: House) -> None:
    app_id, nobody = await house.app(), "00000000-0000-4000-8000-000000000000"
    app = {"name": "game", "bundleId": "com.example.nobody"}
    is_problem(await house.admin.put(f"/apps/{nobody}", {}), 422, "name")
    is_problem(await house.admin.put(f"/apps/{nobody}", app), 404, "appId")
    is_problem(await house.admin.put(f"/apps/{app_id}/templates/{nobody}", TEMPLATE), 404, "templateId")
    is_problem(await house.admin.put(f"/users/{nobody}", {}), 422, "email")
    is_problem(await house.admin.put(f"/users/{nobody}", {"email": "a@example.com"}), 404, "userId")


async def test_a_key_that_stands_twice_in_one_of_several_templates(house: House) -> None:
    app_id = await house.app()
    body = b'[{"name":"n","locale":"en","body":{"a":1}},{"name":"n","locale":"pt","body":{"a":1,"a":2}}]'
    is_problem(await house.admin.post(f"/apps/{app_id}/templates?multiple=true", body), 422, "[1].body.a")
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


@pytest.mark.parametrize("number", ["1E400", "0.1234567890123456789", "9" * 30])
@pytest.mark.parametrize("field", ["body", "defaults"])
async def test_a_template_has_no_number_that_would_change(house: House, field: str, number: str) -> None:
    app_id = await house.app()
    texts = {"body": '{"a":1}', "defaults": "{}"} | {field: '{"a":[' + number + "]}"}
    body = '{"name":"n","locale":"en",' + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}"
    is_problem(await house.admin.post(f"/apps/{app_id}/templates", body.encode()), 422, f"{field}.a[0]")


async def test_what_is_not_read_may_hold_anything(house: House) -> None:
    app_id = await house.app_with_template()
    body = b'{"service":"apns","feedbacks":{"a":1,"a":1e999,"n":' + b"9" * 24 + b"}}"
    assert (await house.admin.post(f"/apps/{app_id}/jobs?template=like", body)).status == 201


async def test_templates_that_are_too_large_to_be_copied(house: House) -> None:
    app_id = await house.app_with_template()
    text = {str(number): "x" * 60_000 for number in range(16)}
    for locale in [f"l{number}" for number in range(9)]:
        template = {"name": "large", "locale": locale if locale != "l0" else "en", "body": text}
        assert (await house.admin.post(f"/apps/{app_id}/templates", template)).status == 201
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like,large", JOB)
    is_problem(reply, 422, "template")
    assert "8388608 bytes" in reply.json["reason"]
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_a_body_over_its_limit(house: House) -> None:
    app_id = await house.app_with_template()
    context = {str(number): "x" * 60_000 for number in range(18)}
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", JOB | {"context": context})
    is_problem(reply, 413, None)
    fits = {str(number): "x" * 60_000 for number in range(17)}
    assert (await house.admin.post(f"/apps/{app_id}/jobs?template=like", JOB | {"context": fits})).status == 201


async def test_a_method_that_a_public_path_does_not_answer(house: House) -> None:
    reply = await house.admin.post("/healthcheck")
    is_problem(reply, 405, None)
    assert "GET" in reply.headers["allow"]
    assert "POST" not in reply.headers["allow"]


async def test_a_method_that_a_native_path_does_not_answer(house: House) -> None:
    app_id = await house.app_with_template()
    natives = [
        "/schedules",
        "/schedules/bulk",
        f"/apps/{app_id}/credentials",
        f"/apps/{app_id}/jobs/preview",
        "/tokens",
        "/bus/topics",
    ]
    for path in [*natives, f"/apps/{app_id}/templates/render", f"/apps/{app_id}/jobs/{app_id}/retry", "/audit"]:
        reply = await house.admin.send("PATCH", path)
        is_problem(reply, 405, None)
        assert {"GET", "POST"} & {*reply.headers["allow"].split(", ")}, path


async def test_a_method_that_a_published_path_does_not_answer(house: House) -> None:
    app_id = await house.app_with_template()
    job = f"/apps/{app_id}/jobs/{app_id}"
    paths = ["/apps", "/apps/", f"/apps/{app_id}", f"/apps/{app_id}/templates", f"/apps/{app_id}/templates/{app_id}"]
    for path in [*paths, f"/apps/{app_id}/jobs", job, f"{job}/pause", "/users", f"/users/{app_id}", "/uploadurl"]:
        is_problem(await house.admin.send("PATCH", path), 404, None)


async def test_a_value_in_a_problem_is_short(house: House) -> None:
    reply = await house.admin.post("/apps", {"name": "x" * 60_000, "bundleId": "a.b.c"})
    is_problem(reply, 422, "name")
    assert len(reply.json["value"]) < 300
    assert len(json.dumps(reply.json)) < 1_000
