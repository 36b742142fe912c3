"""Credentials: what the provider says to a test message decides, and no secret comes out again."""

import asyncio
from typing import Any

import pytest

from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from shared.core.errors import Unavailable
from shared.messages.rules.credentials import CredentialStatus
from shared.messages.rules.pacing import Pace
from shared.runtime.server_settings import ProviderSettings
from tests.providers.fakes import fake_process
from tests.providers.rules import Cut, Rule
from tests.services.api.client import Client, Reply
from tests.services.api.messages.conftest import SECRET, Desk, capabilities_with

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

STANDING = {"effectiveRate", "limitedBy", "holdUntil", "queue"}
HIDDEN = ("hush-hush-hush", SECRET["signingSecret"], SECRET["signingSecret"].removeprefix("whsec_"))


def path(app_id: str, *rest: str) -> str:
    return "/".join((f"/apps/{app_id}/credentials", *rest))


async def over(desk: Desk, app_id: str, role: str) -> Client:
    """Somebody with this role over the app."""
    made = await desk.admin.post("/tokens", {"name": role, "roles": {f"app/{app_id}": role}})
    assert made.status == 201, made.body
    return desk.admin.service(made.json["token"])


async def stored(desk: Desk, app_id: str) -> list[dict[str, Any]]:
    return [dict(each) async for each in desk.house.store.credentials._credentials.find({"app_id": app_id})]


def kept_of(reply: Reply) -> dict[str, Any]:
    """A credential as it is stored, without how it stands."""
    return {name: value for name, value in reply.json.items() if name not in STANDING}


async def test_a_test_message_goes_first_and_then_it_is_there(desk: Desk) -> None:
    app_id = await desk.house.app()
    made = await desk.admin.post(path(app_id), desk.body())
    assert made.status == 201, made.body
    view = made.json
    assert (view["appId"], view["name"], view["kind"], view["status"]) == (app_id, "main", "http", "active")
    assert (view["rate"], view["maxInFlight"], view["order"], view["onUnknown"]) == (50, 25, "age", "hold")
    assert view["retry"] == {"attempts": 3, "firstDelaySeconds": 5, "factor": 4, "capSeconds": 300}
    assert view["fingerprint"]
    [message] = (await desk.provider.tell()).arrived
    assert "the credential main" in message.body
    assert message.headers["authorization"] == SECRET["authorization"]
    assert kept_of(await desk.admin.get(path(app_id, view["id"]))) == view
    assert (await desk.admin.get(path(app_id))).json == [view]
    traffic = await desk.house.store.credentials.get_traffic(view["id"])
    assert traffic is not None and (traffic.pace, traffic.flows) == (Pace(), True)


@pytest.mark.parametrize(
    ("rule", "status", "field", "words"),
    [
        (Rule(status=400, text="no such sender hush-hush-hush"), 422, "testRecipient", "refuses the test message"),
        (Rule(status=404), 422, "fields.url", "refuses the test message"),
        (Rule(status=503, text="Later."), 422, "fields.url", "HTTP 503: Later; check fields.url"),
        (Rule(status=401, text="who are you, Bearer hush-hush-hush"), 422, "secret", "does not let us in"),
        (Rule(status=503), 422, "fields.url", "does not take the test message now"),
        (Rule(status=429), 422, "fields.url", "does not take the test message now"),
        (Rule(status=500), 422, "fields.url", "gave no answer"),
        pytest.param(Rule(hang=True), 422, "fields.url", "gave no answer", marks=pytest.mark.slow),
        (Rule(cut=Cut.CALL), 422, "fields.url", "gave no answer"),
    ],
)
async def test_what_the_provider_does_not_take_is_not_stored(
    desk: Desk, rule: Rule, status: int, field: str | None, words: str
) -> None:
    app_id = await desk.house.app()
    await desk.provider.answer(always=rule)
    refused = await desk.admin.post(path(app_id), desk.body())
    assert (refused.status, refused.json["field"]) == (status, field), refused.body
    assert words in refused.json["detail"]
    assert [word for word in HIDDEN if word in str(refused.json)] == []
    assert await stored(desk, app_id) == []


SMTP = {"host": "127.0.0.1", "port": 1, "from": "news@example.com"}


@pytest.mark.parametrize(
    ("kind", "fields", "secret", "field", "advice"),
    [
        ("http", {"url": "http://127.0.0.1:1/send"}, SECRET, "fields.url", "check fields.url"),
        ("smtp", SMTP, {}, "fields.host", "check fields.host and fields.port"),
        ("smtp", SMTP | {"host": "mx.invalid"}, {}, "fields.host", "mx.invalid cannot be found"),
    ],
)
async def test_a_provider_that_is_not_there_is_the_callers_mistake_and_no_outage(
    desk: Desk, kind: str, fields: dict[str, Any], secret: dict[str, str], field: str, advice: str
) -> None:
    app_id = await desk.house.app()
    refused = await desk.admin.post(path(app_id), desk.body(kind=kind, fields=fields, secret=secret))
    assert (refused.status, refused.json["field"]) == (422, field), refused.body
    assert "does not take the test message now" in refused.json["detail"]
    assert advice in refused.json["detail"]
    assert await stored(desk, app_id) == []


async def test_a_mail_server_without_starttls_marks_the_field_tls(desk: Desk) -> None:
    app_id = await desk.house.app()
    async with fake_process("smtp_fake") as server:
        fields = SMTP | {"port": server.port}
        refused = await desk.admin.post(path(app_id), desk.body(kind="smtp", fields=fields, secret={}))
        assert (refused.status, refused.json["field"]) == (422, "fields.tls")
        assert refused.json["detail"] == (
            "The server offers no STARTTLS. Set fields.tls to never (this machine only), implicit (port 465) or "
            "offered."
        )
        made = await desk.admin.post(path(app_id), desk.body(kind="smtp", fields=fields | {"tls": "never"}, secret={}))
        assert made.status == 201, made.body


async def test_a_store_that_is_away_is_an_outage_of_ours(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_away(*_: object) -> None:
        raise Unavailable("MongoDB is away")

    app_id = await desk.house.app()
    monkeypatch.setattr(desk.flow._store.credentials, "add", is_away)
    assert (await desk.admin.post(path(app_id), desk.body())).status == 503


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": ""}, "name", "1 to 50"),
    ({"name": "SMS"}, "name", "1 to 50"),
    ({"name": None}, "name", "str"),
    ({"kind": "pigeon"}, "kind", "one of"),
    ({"fields": {}}, "fields.url", "url"),
    ({"fields": {"url": "http://10.0.0.1/"}}, "fields.url", ""),
    ({"fields": {"url": 5}}, "fields.url", ""),
    ({"fields": []}, "fields", "object"),
    ({"secret": {}}, "secret.signingSecret", ""),
    ({"secret": {"signingSecret": "hush-hush-hush"}}, "secret.signingSecret", ""),
    ({"secret": SECRET | {"other": "hush-hush-hush"}}, "secret.other", ""),
    ({"secret": "hush-hush-hush"}, "secret", "object"),
    ({"secret": {"signingSecret": {"hush-hush-hush": 1}}}, "secret[...]", "str"),
    ({"secret": {"hush-hush-hush": ["hush-hush-hush"]}}, None, "str"),  # type: ignore[list-item]
    ({"rate": 0}, "rate", "0.01"),
    ({"rate": 10_001}, "rate", "10000"),
    ({"rate": "5"}, "rate", "a number, not a string"),
    ({"maxInFlight": 0}, "maxInFlight", "1"),
    ({"maxInFlight": 2_001}, "maxInFlight", "2000"),
    ({"maxInFlight": 1.5}, "maxInFlight", "int"),
    ({"order": "random"}, "order", "random"),
    ({"onUnknown": "panic"}, "onUnknown", "panic"),
    ({"retry": {"attempts": 0}}, "retry.attempts", "1"),
    ({"retry": {"capSeconds": 4}}, "retry.capSeconds", "from retry.firstDelaySeconds"),
    ({"retry": {"tries": 4}}, "retry.tries", "no field"),
    ({"testRecipient": ""}, "testRecipient", "1 to 4,096"),
    ({"testRecipient": "a\nb"}, "testRecipient", "printable"),
    ({"testContent": "Hi"}, "testContent", "object"),
    ({"testContent": {"n": [10**30]}}, "testContent.n[0]", "64 bits"),
    ({"fields": {"port": 10**30}}, "fields.port", "64 bits"),
    ({"sharedWith": ["x"]}, "sharedWith[0]", "UUID"),
    ({"sharedWith": ["0190b5a2-0000-7000-8000-000000000000"]}, "sharedWith[0]", "no app"),
    ({"ratee": 5}, "ratee", "no field"),
]


@pytest.mark.parametrize(("change", "field", "words"), BAD, ids=[f"{change}"[:60] for change, _, _ in BAD])
async def test_bad_input_is_named_and_nothing_is_sent(
    desk: Desk, change: dict[str, Any], field: str | None, words: str
) -> None:
    app_id = await desk.house.app()
    refused = await desk.admin.post(path(app_id), desk.body(**change))
    assert refused.status == 422, refused.body
    assert field is None or refused.json["field"] == field
    assert words in refused.json["detail"]
    assert [word for word in HIDDEN if word in str(refused.json["value"])] == []
    assert await desk.arrived() == 0
    assert await stored(desk, app_id) == []


@pytest.mark.parametrize("field", ["name", "kind", "testRecipient"])
async def test_a_missing_field_is_named(desk: Desk, field: str) -> None:
    app_id = await desk.house.app()
    body = desk.body()
    del body[field]
    refused = await desk.admin.post(path(app_id), body)
    assert (refused.status, refused.json["field"]) == (422, field)
    assert "needed" in refused.json["detail"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"hush-hush-hush"', b"\xff"])
async def test_what_is_no_object_is_refused(desk: Desk, content: bytes) -> None:
    refused = await desk.admin.post(path(await desk.house.app()), content)
    assert refused.status == 422
    assert b"hush" not in refused.body


async def test_without_a_key_the_setting_is_named_and_nothing_is_sent(desk: Desk) -> None:
    bare = Rooms(capabilities_with(desk.house, ProviderSettings(allowed_networks=("127.0.0.0/8",))))

    admin, app_id = Client(build_api(bare), desk.admin.headers), await desk.house.app()
    refused = await admin.post(path(app_id), desk.body())
    assert (refused.status, refused.json["field"]) == (422, "secret")
    assert "providers.secret_keys" in refused.json["detail"]
    assert (await admin.post("/credentials/reencrypt")).status == 422
    assert await desk.arrived() == 0


async def test_the_sandbox_needs_no_secret(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id, desk.in_sandbox(rate=0.5, testContent={"text": "Hi"}))
    assert (view["fingerprint"], view["maxInFlight"]) == ("", 20)
    assert desk.noted()[-1]["content"] == {"text": "Hi"}
    lost = await desk.admin.post(path(app_id), desk.in_sandbox(name="lost", testRecipient="a+lost@example.com"))
    bounces = await desk.admin.post(path(app_id), desk.in_sandbox(name="no", testRecipient="a+bounce@example.com"))
    assert (lost.status, lost.json.get("field"), bounces.status) == (422, None, 422)
    assert (await desk.admin.post(path(app_id, view["id"], "test"))).status == 204


async def test_a_name_is_unique_in_its_app_and_is_looked_up_before_a_message_goes_out(desk: Desk) -> None:
    app_id, other = await desk.house.app(), await desk.house.app()
    await desk.made(app_id)
    await desk.made(other)
    sent = await desk.arrived()
    taken = await desk.admin.post(path(app_id), desk.body())
    assert (taken.status, taken.json["field"]) == (409, "name")
    assert await desk.arrived() == sent
    second = await desk.made(app_id, desk.body(name="second"))
    renamed = await desk.admin.put(path(app_id, second["id"]), {"name": "main"})
    assert (renamed.status, renamed.json["field"]) == (409, "name")


async def test_an_app_has_a_hundred_at_most(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messages.credentials.CREDENTIALS_OF_AN_APP", 1)
    app_id = await desk.house.app()
    await desk.made(app_id)
    refused = await desk.admin.post(path(app_id), desk.body(name="second"))
    assert (refused.status, refused.json["field"]) == (409, "appId")


async def test_the_same_request_again_makes_nothing_and_sends_nothing(desk: Desk) -> None:
    app_id = await desk.house.app()
    first = await desk.admin.post(path(app_id), desk.body(), idempotency_key="k1")
    again = await desk.admin.post(path(app_id), desk.body(), idempotency_key="k1")
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert await desk.arrived() == 1
    other = await desk.admin.post(path(app_id), desk.body(name="other"), idempotency_key="k1")
    assert (other.status, other.json["field"]) == (422, "Idempotency-Key")


async def test_a_refused_request_can_be_corrected_under_its_key(desk: Desk) -> None:
    app_id = await desk.house.app()
    await desk.provider.answer(Rule(status=401))
    refused = await desk.admin.post(path(app_id), desk.body(), idempotency_key="k2")
    corrected = await desk.admin.post(path(app_id), desk.body(rate=5), idempotency_key="k2")
    assert (refused.status, corrected.status) == (422, 201)


async def test_equal_requests_at_once_make_one(desk: Desk) -> None:
    app_id = await desk.house.app()
    replies = await asyncio.gather(
        *(desk.admin.post(path(app_id), desk.body(), idempotency_key="k3") for _ in range(5))
    )
    assert {reply.status for reply in replies} <= {200, 201}
    assert len({reply.json["id"] for reply in replies}) == 1
    [only] = await stored(desk, app_id)
    assert desk.rooms.servers.key_ring.open(only["secret"], only["_id"]) == SECRET


async def test_a_change_leaves_what_it_does_not_name(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    sent = await desk.arrived()
    changed = await desk.admin.put(path(app_id, view["id"]), {"rate": 500, "order": "shares"})
    assert changed.status == 200, changed.body
    expected = view | {"rate": 500, "maxInFlight": 250, "order": "shares", "updatedAt": changed.json["updatedAt"]}
    assert changed.json == expected
    every = {
        "name": "renamed",
        "rate": 0.01,
        "maxInFlight": 3,
        "order": "age",
        "onUnknown": "retry",
        "retry": {"attempts": 1, "firstDelaySeconds": 1.5, "factor": 1, "capSeconds": 1.5},
        "testRecipient": "bea@example.com",
        "testContent": {"text": "Hi"},
        "sharedWith": [],
    }
    changed = await desk.admin.put(path(app_id, view["id"]), every)
    assert {name: changed.json[name] for name in every} == every
    assert changed.json["fingerprint"] == view["fingerprint"]
    assert await desk.arrived() == sent


@pytest.mark.parametrize(
    ("change", "field"),
    [({"rate": 0}, "rate"), ({"rate": 10_001}, "rate"), ({"maxInFlight": 2_001}, "maxInFlight"),
     ({"name": "A"}, "name"), ({"kind": "sandbox"}, "kind"), ({"secret": SECRET}, "secret"),
     ({"testRecipient": ""}, "testRecipient"), ({"retry": {"factor": 0}}, "retry.factor")],
)  # fmt: skip
async def test_a_bad_change_is_named_and_changes_nothing(desk: Desk, change: dict[str, Any], field: str) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    refused = await desk.admin.put(path(app_id, view["id"]), change)
    assert (refused.status, refused.json["field"]) == (422, field)
    assert kept_of(await desk.admin.get(path(app_id, view["id"]))) == view


async def test_changes_at_once_all_count(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    one = path(app_id, view["id"])
    changes: list[dict[str, Any]] = [
        {"rate": 7},
        {"order": "shares"},
        {"onUnknown": "retry"},
        {"testRecipient": "c@example.com"},
    ]
    assert {reply.status for reply in await asyncio.gather(*(desk.admin.put(one, each) for each in changes))} == {200}
    shown = (await desk.admin.get(one)).json
    assert [shown[name] for each in changes for name in each] == [7, "shares", "retry", "c@example.com"]


NEW = SECRET | {"authorization": "Bearer quiet-quiet-quiet"}


async def test_a_new_secret_is_tested_and_then_swapped(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    await desk.provider.forget()
    swapped = await desk.admin.put(path(app_id, view["id"], "secret"), {"secret": NEW})
    assert swapped.status == 200, swapped.body
    assert swapped.json["fingerprint"] != view["fingerprint"]
    [message] = (await desk.provider.tell()).arrived
    assert message.headers["authorization"] == NEW["authorization"]
    assert message.headers["x-team"] == "push"
    assert (await desk.admin.post(path(app_id, view["id"], "test"))).status == 204
    assert (await desk.provider.tell()).arrived[-1].headers["authorization"] == NEW["authorization"]


async def test_fields_of_the_kind_change_with_the_secret(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    fields = {"url": f"{desk.provider.url}/other"}
    swapped = await desk.admin.put(path(app_id, view["id"], "secret"), {"secret": SECRET, "fields": fields})
    assert swapped.json["fields"] == fields
    assert swapped.json["fingerprint"] == view["fingerprint"]
    assert (await desk.provider.tell()).arrived[-1].path == "/other"


@pytest.mark.parametrize(
    ("rule", "status"), [(Rule(status=401), 422), (Rule(status=503), 422), (Rule(cut=Cut.CALL), 422)]
)
async def test_a_new_secret_that_does_not_work_leaves_the_old_one(desk: Desk, rule: Rule, status: int) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    await desk.provider.answer(always=rule)
    refused = await desk.admin.put(path(app_id, view["id"], "secret"), {"secret": NEW})
    assert refused.status == status
    await desk.provider.answer()
    assert (await desk.admin.post(path(app_id, view["id"], "test"))).status == 204
    assert (await desk.provider.tell()).arrived[-1].headers["authorization"] == SECRET["authorization"]
    assert kept_of(await desk.admin.get(path(app_id, view["id"]))) == view


async def test_a_rejected_one_sends_again_by_a_new_secret(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    credential = await desk.flow.require(view["id"])
    assert await desk.flow.reject(credential, "401: who are you")
    assert not await desk.flow.reject(credential, "401: who are you")
    shown = (await desk.admin.get(path(app_id, view["id"]))).json
    assert (shown["status"], shown["why"]) == ("rejected", "401: who are you")
    swapped = await desk.admin.put(path(app_id, view["id"], "secret"), {"secret": NEW})
    assert (swapped.json["status"], swapped.json["why"]) == ("active", "")
    assert not await desk.flow.reject(credential, "of the old secret")


@pytest.mark.parametrize(
    ("rule", "status"), [(Rule(), 204), (Rule(status=400), 422), (Rule(status=401), 422), (Rule(status=503), 422)]
)
async def test_a_test_tells_what_the_provider_says_and_changes_nothing(desk: Desk, rule: Rule, status: int) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    await desk.provider.answer(always=rule)
    assert (await desk.admin.post(path(app_id, view["id"], "test"))).status == status
    assert kept_of(await desk.admin.get(path(app_id, view["id"]))) == view


async def test_suspended_and_active_again(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    one = path(app_id, view["id"])
    suspended = await desk.admin.post(f"{one}/suspend", x_carillon_reason="the bill is not paid")
    assert (suspended.status, suspended.json["status"], suspended.json["why"]) == (
        200, "suspended", "the bill is not paid",
    )  # fmt: skip
    again = await desk.admin.post(f"{one}/suspend")
    assert (again.status, again.json["field"], again.json["value"]) == (409, "status", "suspended")
    traffic = await desk.house.store.credentials.get_traffic(view["id"])
    assert traffic is not None and not traffic.flows
    assert (await desk.admin.put(f"{one}/secret", {"secret": NEW})).json["status"] == "suspended"
    active = await desk.admin.post(f"{one}/activate")
    assert (active.status, active.json["status"], active.json["why"]) == (200, "active", "")
    assert (await desk.admin.post(f"{one}/activate")).status == 409


async def test_what_is_deleted_is_gone(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    assert (await desk.admin.delete(path(app_id, view["id"]))).status == 204
    for reply in (await desk.admin.get(path(app_id, view["id"])), await desk.admin.delete(path(app_id, view["id"]))):
        assert (reply.status, reply.json["field"]) == (404, "credentialId")
    assert (await desk.admin.get(path(app_id))).json == []


async def test_what_an_open_job_uses_is_not_deleted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)

    async def is_in_use(credential_id: str) -> bool:
        return credential_id == str(view["id"])

    monkeypatch.setattr(desk.flow, "_is_in_use", is_in_use)
    refused = await desk.admin.delete(path(app_id, view["id"]))
    assert refused.status == 409
    assert "open jobs" in refused.json["detail"]
    assert (await desk.admin.get(path(app_id, view["id"]))).status == 200


async def test_they_go_with_their_app(desk: Desk) -> None:
    app_id = await desk.house.app()
    await desk.made(app_id)
    assert (await desk.admin.delete(f"/apps/{app_id}")).status == 204
    assert await stored(desk, app_id) == []


async def test_an_app_that_is_being_deleted_takes_none(desk: Desk) -> None:
    app_id = await desk.house.app()
    await desk.house.store.apps.begin_removal(app_id)
    assert (await desk.admin.post(path(app_id), desk.body())).status == 409
    assert await desk.arrived() == 0


async def test_one_whose_app_goes_while_the_provider_is_asked_goes_with_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, ask_provider = await desk.house.app(), desk.flow._send_trial

    async def ask_while_the_app_goes(*given: Any) -> None:
        await ask_provider(*given)
        assert (await desk.admin.delete(f"/apps/{app_id}")).status == 204

    monkeypatch.setattr(desk.flow, "_send_trial", ask_while_the_app_goes)
    assert (await desk.admin.post(path(app_id), desk.body())).status == 409
    assert await stored(desk, app_id) == []


@pytest.mark.parametrize("app", ["0190b5a2-0000-7000-8000-000000000000"])
async def test_an_app_that_is_not_there_has_none(desk: Desk, app: str) -> None:
    assert (await desk.admin.get(path(app))).status == 404
    assert (await desk.admin.post(path(app), desk.body())).status == 404


async def test_another_apps_are_not_there(desk: Desk) -> None:
    mine, other = await desk.house.app(), await desk.house.app()
    view = await desk.made(other)
    one = path(mine, view["id"])
    replies: list[Reply] = [
        await desk.admin.get(one),
        await desk.admin.put(one, {"rate": 1}),
        await desk.admin.delete(one),
        await desk.admin.put(f"{one}/secret", {"secret": SECRET}),
        await desk.admin.post(f"{one}/test"),
        await desk.admin.post(f"{one}/suspend"),
        await desk.admin.post(f"{one}/activate"),
    ]
    assert {(reply.status, reply.json["field"]) for reply in replies} == {(404, "credentialId")}
    assert kept_of(await desk.admin.get(path(other, view["id"]))) == view
    assert (await desk.admin.get(path(mine, "x"))).status == 422


async def test_shared_ones_are_seen_and_not_changed(desk: Desk) -> None:
    owner, user = await desk.house.app(), await desk.house.app()
    view = await desk.made(owner, desk.body(sharedWith=[user]))
    [seen] = (await desk.admin.get(path(user))).json
    assert (seen["id"], seen["appId"], seen["redacted"]) == (view["id"], owner, True)
    assert (seen["fields"], seen["testRecipient"]) == ({"url": "…", "headers": "…"}, "…")
    one = path(user, view["id"])
    assert kept_of(await desk.admin.get(one)) == seen
    replies = [
        await desk.admin.put(one, {"rate": 1}),
        await desk.admin.delete(one),
        await desk.admin.put(f"{one}/secret", {"secret": SECRET}),
        await desk.admin.post(f"{one}/test"),
        await desk.admin.post(f"{one}/suspend"),
    ]
    assert {(reply.status, reply.json["field"]) for reply in replies} == {(403, "credentialId")}
    await desk.admin.put(path(owner, view["id"]), {"sharedWith": []})
    assert (await desk.admin.get(one)).status == 404


async def test_only_admins_share(desk: Desk) -> None:
    owner, user = await desk.house.app(), await desk.house.app()
    mine = await over(desk, owner, "admin")
    refused = await mine.post(path(owner), desk.body(sharedWith=[user]))
    assert (refused.status, refused.json["field"]) == (403, "sharedWith")
    view = await desk.made(owner)
    one = path(owner, view["id"])
    assert (await mine.put(one, {"sharedWith": [user]})).status == 403
    assert (await desk.admin.put(one, {"sharedWith": [user, user]})).json["sharedWith"] == [user]
    assert (await mine.put(one, {"sharedWith": [user], "rate": 9})).json["rate"] == 9
    assert (await mine.put(one, {"sharedWith": []})).status == 403


async def test_each_role_may_what_it_may(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    one = path(app_id, view["id"])
    asked: dict[str, list[int]] = {}
    for role in ("viewer", "operator", "admin"):
        caller = await over(desk, app_id, role)
        replies = [
            await caller.get(one),
            await caller.post(f"{one}/test"),
            await caller.post(f"{one}/suspend"),
            await caller.post(f"{one}/activate"),
            await caller.put(one, {"rate": 5}),
            await caller.put(f"{one}/secret", {"secret": SECRET}),
            await caller.post(path(app_id), desk.in_sandbox(name=role)),
            await caller.post("/credentials/reencrypt"),
            await caller.delete(one),
        ]
        asked[role] = [reply.status for reply in replies]
    assert asked == {
        "viewer": [200] + [403] * 8,
        "operator": [200, 204, 200, 200] + [403] * 5,
        "admin": [200, 204, 200, 200, 200, 200, 201, 403, 204],
    }


async def test_a_viewer_sees_nothing_personal(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id, desk.body(testContent={"text": "for ana"}))
    viewer = await over(desk, app_id, "viewer")
    for shown in ((await viewer.get(path(app_id, view["id"]))).json, (await viewer.get(path(app_id))).json[0]):
        assert (shown["testRecipient"], shown["testContent"], shown["redacted"]) == ("…", {}, True)
        assert (shown["fields"], shown["name"], shown["rate"]) == ({"url": "…", "headers": "…"}, "main", 50)


async def test_lists_have_pages(desk: Desk) -> None:
    app_id = await desk.house.app()
    ids = sorted([(await desk.made(app_id, desk.in_sandbox(name=f"n{number}")))["id"] for number in range(3)])
    first = await desk.admin.get(path(app_id) + "?limit=2")
    assert [each["id"] for each in first.json] == ids[:2]
    following = first.headers["link"].partition("<")[2].partition(">")[0]
    assert [each["id"] for each in (await desk.admin.get(following)).json] == ids[2:]


async def test_no_secret_comes_out_anywhere(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    one = path(app_id, view["id"])
    replies = [
        await desk.admin.get(one),
        await desk.admin.get(path(app_id)),
        await desk.admin.put(one, {"rate": 3}),
        await desk.admin.put(f"{one}/secret", {"secret": NEW}),
        await desk.admin.post(f"{one}/suspend"),
        await desk.admin.post(f"{one}/activate"),
        await desk.admin.post("/credentials/reencrypt"),
        await desk.admin.get("/audit"),
        await desk.admin.get("/settings"),
    ]
    assert {reply.status for reply in replies} == {200}
    key = desk.rooms.servers.settings.providers.secret_keys
    told = "".join([*(reply.body.decode() for reply in replies), *capfd.readouterr()])
    dump = str([dict(each) async for each in desk.house.store.credentials._credentials.find({})])
    dump += str([dict(each) async for each in desk.house.store.audit._audit.find({})])
    dump += str([dict(each) async for each in desk.house.store.idempotency._keys.find({})])
    for word in (*HIDDEN, NEW["authorization"], "quiet-quiet-quiet", key):
        assert word not in told
        assert word not in dump


async def test_acts_are_written_down_with_what_they_changed(desk: Desk) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    one = path(app_id, view["id"])
    await desk.admin.put(one, {"rate": 3})
    await desk.admin.put(f"{one}/secret", {"secret": NEW})
    await desk.admin.post(f"{one}/test")
    await desk.admin.post(f"{one}/suspend", x_carillon_reason="unpaid")
    await desk.admin.delete(one)
    records = list(reversed((await desk.admin.get(f"/audit?on={view['id']}")).json))
    acts = ["create", "update", "replace-secret", "test", "suspend", "delete"]
    assert [record["act"] for record in records] == [f"credential.{act}" for act in acts]
    assert {(record["on"]["kind"], record["on"]["id"], record["on"]["name"]) for record in records} == {
        ("credential", view["id"], "main")
    }
    assert (records[1]["before"], records[1]["after"]) == (
        {"rate": 50, "maxInFlight": 25}, {"rate": 3, "maxInFlight": 20},
    )  # fmt: skip
    assert set(records[2]["after"]) == {"fingerprint"}
    assert records[4]["after"] == {"status": "suspended", "why": "unpaid"}
    assert records[5]["after"] == {}
    assert records[0]["after"]["name"] == "main"


@pytest.mark.parametrize("status", CredentialStatus)
async def test_a_status_survives_a_change_of_something_else(desk: Desk, status: CredentialStatus) -> None:
    app_id = await desk.house.app()
    view = await desk.made(app_id)
    credential = await desk.flow.require(view["id"])
    if not status.value.startswith("active"):
        await desk.house.store.credentials.move(credential.id, status, why="w", at=desk.flow.now())
    assert (await desk.admin.put(path(app_id, view["id"]), {"rate": 9})).json["status"] == status.value
