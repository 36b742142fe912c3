"""`/api_tokens`: tokens of the bus, which open the bus and nothing else, and are kept as digests."""

import re
from base64 import b64encode

import pytest
from structlog.testing import capture_logs

from shared.accounts.rules.callers import bus_digest, secret_digest
from tests.services.api.bus.conftest import Bus, event, is_empty, is_refused, subscription
from tests.services.api.client import Client
from tests.services.api.conftest import ROOT_KEY

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_where_there_is_no_token_the_list_is_empty(bus: Bus) -> None:
    await bus.house.store.tokens._tokens.delete_many({"scope": "bus"})
    assert is_empty(await bus.root.get("/api_tokens"), 204)


async def test_a_token_is_made_of_its_name_as_clients_take_it(bus: Bus) -> None:
    made = await bus.root.post("/api_tokens", {"name": "my-service"})
    assert (made.status, made.headers["content-type"], set(made.json)) == (201, "application/json", {"name", "token"})
    assert re.fullmatch(r"my-service--[0-9a-f]{32}", made.json["token"])
    assert (await bus.root.client(made.json["token"]).get("/pulse")).status == 204


async def test_whatever_its_name_a_token_has_the_clients_alphabet(bus: Bus) -> None:
    made = await bus.root.post("/api_tokens", {"name": "Étienne's Billing Service, the second one"})
    assert re.fullmatch(r"[a-z0-9:_-]{30}--[0-9a-f]{32}", made.json["token"])


async def test_a_given_token_is_taken_and_making_it_again_changes_nothing(bus: Bus) -> None:
    given = {"name": "alice", "token": "alice:0000-1111_2222"}
    assert (await bus.root.post("/api_tokens", given)).json == given
    listed = (await bus.root.get("/api_tokens")).json
    assert (await bus.root.post("/api_tokens", given)).status == 201
    assert (await bus.root.get("/api_tokens")).json == listed
    assert is_refused(await bus.root.post("/api_tokens", given | {"name": "bob"}), 400)
    assert (await bus.root.client(given["token"]).get("/pulse")).status == 204


async def test_a_password_may_have_colons_and_so_may_a_token(bus: Bus) -> None:
    plain = bus.topic()
    colon = f"{plain}:more"
    for token in (plain, colon):
        assert (await bus.root.post("/api_tokens", {"name": token, "token": token})).status == 201

    def show(user_pass: str) -> Client:
        return Client(bus.root.app, {"authorization": f"Basic {b64encode(user_pass.encode()).decode()}"})

    for token, password in (
        (plain, ":pass:word"),
        (plain, "::"),
        (plain, ":"),
        (plain, ""),
        (colon, ":x"),
        (colon, ":"),
    ):
        caller = show(token + password)
        assert is_empty(await caller.post("/subscriber", subscription(bus.topic())), 204), password
        assert token in [each["subscriber"] for each in (await caller.get("/subscribers")).json], password
    for user_pass in ("nobody:pass:word", ":", ":x", f":{plain}:x", f"x:{plain}:x"):
        assert is_refused(await show(user_pass).get("/subscribers"), 401), user_pass


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"no json", None),
        (b"[]", None),
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "alice", "token": "Alice"}, "token"),
        ({"name": "alice", "token": ""}, "token"),
        ({"name": "alice", "token": "x" * 65}, "token"),
        ({"name": "alice", "token": 7}, "token"),
    ],
)
async def test_what_is_no_token_is_refused(bus: Bus, body: object, field: str | None) -> None:
    before = (await bus.root.get("/api_tokens")).body
    reply = await bus.root.post("/api_tokens", body)
    assert is_refused(reply, 400)
    assert reply.json["field"] == field
    assert "regex" not in reply.json["reason"]
    assert (await bus.root.get("/api_tokens")).body == before


async def test_lists_show_ids_and_no_token(bus: Bus) -> None:
    made = (await bus.root.post("/api_tokens", {"name": "shown"})).json["token"]
    listed = await bus.root.get("/api_tokens")
    assert listed.headers["content-type"] == "application/json"
    [shown] = [each["token"] for each in listed.json if each["name"] == "shown"]
    assert shown != made
    assert is_refused(await bus.root.client(shown).get("/pulse"), 401)
    stored = await bus.house.store.tokens.get(shown)
    assert stored is not None
    assert stored.digest == bus_digest(made) != secret_digest(made)


async def test_a_token_goes_by_itself_or_by_its_id_with_its_subscription(bus: Bus) -> None:
    for by_id in (False, True):
        topic = bus.topic()
        token = (await bus.root.post("/api_tokens", {"name": topic})).json["token"]
        client = bus.root.client(token)
        assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
        [id] = [each["token"] for each in (await bus.root.get("/api_tokens")).json if each["name"] == topic]
        assert is_empty(await bus.root.delete(f"/api_tokens/{id if by_id else token}"), 204)
        assert is_refused(await client.get("/pulse"), 401)
        assert [each for each in (await bus.root.get("/subscribers")).json if topic in each["topics"]] == []


async def test_deleting_is_answered_alike_where_there_is_nothing_to_delete(bus: Bus) -> None:
    other = (await bus.house.admin.post("/tokens", {"name": "no token of the bus"})).json
    for token in ("foobar", other["id"], other["token"]):
        assert is_empty(await bus.root.delete(f"/api_tokens/{token}"), 204)
    assert (await bus.house.admin.service(other["token"]).get("/whoami")).status == 200


async def test_a_token_of_the_bus_opens_the_bus_alone(bus: Bus) -> None:
    token = (await bus.root.post("/api_tokens", {"name": "alice"})).json["token"]
    for path in ("/whoami", "/schedules", "/apps", "/tokens", "/topics", "/api_tokens"):
        reply = await bus.house.admin.service(token).get(path)
        assert is_refused(reply, 401), path
    assert is_refused(await bus.root.client(token).get("/schedules"), 401)


async def test_rotated_it_is_still_one_that_clients_take(bus: Bus) -> None:
    old = (await bus.root.post("/api_tokens", {"name": "turned"})).json["token"]
    [id] = [each["token"] for each in (await bus.root.get("/api_tokens")).json if each["name"] == "turned"]
    new = (await bus.house.admin.post(f"/tokens/{id}/rotate")).json
    assert re.fullmatch(r"turned--[0-9a-f]{32}", new["token"])
    assert new["scope"] == "bus"
    assert (await bus.root.client(new["token"]).get("/pulse")).status == 204
    assert is_refused(await bus.root.client(old).get("/pulse"), 401)
    assert is_refused(await bus.house.admin.service(new["token"]).get("/whoami"), 401)


async def test_who_needs_another_kind_of_credential_is_asked_for_it(bus: Bus) -> None:
    admin_token = (await bus.house.admin.post("/tokens", {"name": "ops", "isAdmin": True})).json["token"]
    service, client = await bus.house.service(), await bus.client()
    roots = (bus.root, bus.root.client(admin_token))
    strangers = (bus.house.admin, service, bus.root.client("nobody"), bus.root.client(""))
    for caller in (*strangers, client):
        reply = await caller.get("/api_tokens")
        assert is_refused(reply, 401)
        assert reply.headers["www-authenticate"].startswith("Basic ")
    topic = bus.topic()
    for caller in (*strangers, *roots):
        assert is_refused(await caller.post(f"/topics/{topic}", event()), 401)
        assert is_refused(await caller.post("/subscriber", subscription(topic)), 401)
    assert topic not in await bus.topics()
    assert [(await root.get("/pulse")).status for root in roots] == [204, 204]


async def test_a_token_of_everything_is_a_client_too(bus: Bus) -> None:
    topic = bus.topic()
    token = (await bus.house.admin.post("/tokens", {"name": "billing"})).json["token"]
    assert is_empty(await bus.root.client(token).post(f"/topics/{topic}", event()), 200)
    assert (await bus.topics())[topic] == "billing"


async def test_without_a_root_key_none_opens_anything(bus: Bus) -> None:
    from shared.runtime.bus_settings import BusSettings

    closed = Client(bus.house.build(BusSettings()))
    for key in (ROOT_KEY, "", "x"):
        assert is_refused(await closed.client(key).get("/api_tokens"), 401)


async def test_neither_logs_nor_the_audit_show_a_token(bus: Bus) -> None:
    token = f"hush-{bus.topic()}"
    with capture_logs() as lines:
        await bus.root.post("/api_tokens", {"name": "shy", "token": token})
        await bus.root.client(token).get("/pulse")
        await bus.root.delete(f"/api_tokens/{token}")
        await bus.root.delete(f"/api_tokens/{token}/")
        await bus.root.get(f"/api_tokens/{token}/nothing")
    assert len([line for line in lines if line["event"] == "request answered"]) == 5
    assert token not in str(lines)
    database = bus.house.store._database
    for name in await database.list_collection_names():
        assert token not in str(await database[name].find().to_list()), name
    acts = await database["audit"].find({"on.name": "shy"}).to_list()
    assert [act["act"] for act in acts] == ["token.create", "token.revoke"]
