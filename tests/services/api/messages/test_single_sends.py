"""Single messages over the API: what is accepted, what is refused and stores nothing, and what is taken back."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from services.api.http.bodies import ITEM_BYTES
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message
from shared.messages.rules.singles import SINGLE_QUEUE, Pending, SingleWish
from shared.messages.store_credentials import Granted
from tests.clocks import ManualClock
from tests.services.api.client import Client, Reply
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ANA: dict[str, Any] = {"to": "ana@example.com", "body": {"text": "Hi"}}


@dataclass
class Shop:
    """An app with a template and a credential, and a service that may send a thousand a second."""

    desk: Desk
    app_id: str
    credential_id: str
    service: Client

    @property
    def path(self) -> str:
        return f"/apps/{self.app_id}/messages"

    async def post(self, *, by: Client | None = None, key: str = "", **fields: Any) -> Reply:
        wanted = {"credential": "play"} | fields
        headers = {"idempotency_key": key} if key else {}
        return await (by or self.service).post(self.path, wanted, **headers)

    async def caller(self, rate: float) -> Client:
        """A service of its own with this rate."""
        body = {"name": "sender", "roles": {f"app/{self.app_id}": "operator"}, "messagesPerSecond": rate}
        made = await self.desk.admin.post("/tokens", body)
        assert made.status == 201, made.body
        assert made.json["messagesPerSecond"] == rate
        return self.desk.admin.service(made.json["token"])

    async def stored(self, message_id: str) -> Message:
        message: Message | None = await self.desk.house.store.messages.get(message_id)
        assert message is not None
        return message

    async def says(self, message_id: str) -> dict[str, Any]:
        """What a message says, as it is stored."""
        found = await self.desk.house.store.single_contents.find([message_id], most_bytes=0)
        said: dict[str, Any] = msgspec.json.decode(found[message_id])
        return said

    async def count(self) -> int:
        """How many messages of the app there are."""
        count: int = await self.desk.house.store.messages._messages.count_documents({"app_id": self.app_id})
        return count


@pytest_asyncio.fixture(loop_scope="module")
async def shop(desk: Desk) -> AsyncIterator[Shop]:
    app_id = await desk.house.app()
    template = {"name": "hello", "locale": "en", "body": {"text": "Hi {{name}}"}, "defaults": {"name": "you"}}
    assert (await desk.admin.post(f"/apps/{app_id}/templates", template)).status == 201
    made = await desk.made(app_id, desk.in_sandbox())
    shop = Shop(desk, app_id, made["id"], desk.admin)
    shop.service = await shop.caller(1_000)
    yield shop


@pytest.fixture
def standing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which callers' rates are kept: it stands still."""
    clock, limits = ManualClock(), shop.desk.house.store.send_limits
    take = limits.take

    async def take_now(namespace: str, count: int, *, rate: float, now: datetime) -> Granted:
        return await take(namespace, count, rate=rate, now=clock.now())

    monkeypatch.setattr(limits, "take", take_now)
    return clock


async def test_a_message_is_stored_and_a_worker_is_told(shop: Shop) -> None:
    broker = shop.desk.house.broker
    before = await broker.depth(SINGLE_QUEUE)
    made = await shop.post(**ANA)
    assert made.status == 201, made.body
    assert made.json["state"] == "unsent"
    assert (made.json["recipient"], made.json["template"], made.json["expiresAt"]) == ("ana@example.com", "", None)
    assert await broker.depth(SINGLE_QUEUE) == before + 1
    assert await shop.says(made.json["id"]) == {"text": "Hi"}
    shown = await shop.service.get(f"{shop.path}/{made.json['id']}")
    assert shown.json == made.json


@pytest.mark.parametrize("wish", [{"body": {"text": "Hi"}}, {"template": "hello"}], ids=["body", "template"])
async def test_no_locale_means_english(shop: Shop, wish: dict[str, Any]) -> None:
    made = await shop.post(to="ana@example.com", locale="", **wish)
    assert made.status == 201, made.body


async def test_a_template_is_filled_by_parameters_and_defaults(shop: Shop) -> None:
    made = [
        await shop.post(to="ana@example.com", template="hello", parameters=parameters)
        for parameters in ({"Name": "Ana"}, {})
    ]
    said = [await shop.says(one.json["id"]) for one in made]
    assert said == [{"text": "Hi Ana"}, {"text": "Hi you"}]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"body": {"text": "Hi"}}, "to"),
        ({"to": "ana@example.com"}, "template"),
        (ANA | {"template": "hello"}, "template"),
        (ANA | {"body": {}}, "body"),
        (ANA | {"to": "  "}, "to"),
        (ANA | {"to": "a" * 1_025}, "to"),
        (ANA | {"credential": "nobody"}, "credential"),
        (ANA | {"what": 1}, "what"),
        (ANA | {"body": {"text": "Hi {{name}}"}}, "template"),
        (ANA | {"body": {"text": "Hi {{a.b}}"}}, "body.text"),
        (ANA | {"sendAt": "tomorrow"}, "sendAt"),
        (ANA | {"sendAt": "2201-01-01T00:00:00Z"}, "sendAt"),
        (ANA | {"sendAt": "2100-01-01T00:00:00Z", "expiresAt": "2100-01-01T00:00:00Z"}, "expiresAt"),
        (ANA | {"expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
        (ANA | {"list": "x" * 256}, "list"),
        (ANA | {"defaultRegion": "XX"}, "defaultRegion"),
        ({"to": "ana@example.com", "template": "nobody"}, "template"),
        ({"to": "ana@example.com", "template": "hello", "locale": "fr"}, "template"),
        ({"to": "ana@example.com", "body": {"text": "{{unsubscribe_url}}"}}, "template"),
        (
            {"to": "ana@example.com", "body": {"text": "{{x}}" * 20}, "parameters": {"x": "x" * 100_000}},
            "parameters",
        ),
    ],
)
async def test_what_breaks_a_rule_is_named_and_not_stored(shop: Shop, fields: dict[str, Any], field: str) -> None:
    refused = await shop.post(**fields)
    assert refused.status == 422, refused.body
    assert refused.json["field"] == field
    assert await shop.count() == 0


@pytest.mark.parametrize("value", ["0.1234567890123456789", "9" * 30, "[" * 64 + "]" * 64, "1E400", '"\\ud800"'])
@pytest.mark.parametrize("field", ["parameters", "body"])
async def test_a_value_that_is_not_kept_is_refused(shop: Shop, field: str, value: str) -> None:
    wish = ANA | {"credential": "play", field: {"x": 0}}
    body = json.dumps(wish).replace('{"x": 0}', '{"x": ' + value + "}").encode()
    refused = await shop.service.post(shop.path, body)
    assert refused.status == 422, refused.body
    assert "ud800" in value or refused.json["field"].startswith(field)
    told = await shop.service.post(f"{shop.path}/bulk", b"[" + body + b"]")
    assert 422 in {told.status, told.json[0]["status"] if told.status == 200 else 0}
    assert await shop.count() == 0


async def test_a_message_that_is_empty_or_too_long_once_it_is_filled_is_refused(shop: Shop) -> None:
    now = datetime(2026, 12, 24, tzinfo=UTC)
    account = Credential(
        id=str(uuid.uuid4()), app_id=shop.app_id, name="sms", kind="twilio", fields={}, rate=10, max_in_flight=20,
        test_recipient="+6591234567", created_by="me", created_at=now, updated_at=now,
    )  # fmt: skip
    assert await shop.desk.house.store.credentials.add(account)
    wish: dict[str, Any] = {"credential": "sms", "to": "+6591234567", "body": {"text": "{{text}}"}}
    for text, status in ((" ", 422), ("x" * 1_601, 422), ("x" * 1_600, 201)):
        answer = await shop.post(**wish, parameters={"text": text})
        assert answer.status == status, answer.body
        if status == 422:
            assert answer.json["field"] == "parameters"
            assert answer.json["reason"].endswith("an SMS needs 1 to 1,600 characters")
    assert await shop.count() == 1


async def test_another_apps_credential_and_messages_are_not_there(shop: Shop) -> None:
    made = await shop.post(**ANA)
    other = await shop.desk.house.app()
    stranger = await shop.desk.house.service(other)
    assert (await shop.post(by=stranger, **ANA)).status == 403
    theirs = f"/apps/{other}/messages"
    named = await stranger.post(theirs, ANA | {"credential": shop.credential_id})
    assert (named.status, named.json["field"]) == (422, "credential")
    assert (await stranger.delete(f"{theirs}/{made.json['id']}")).status == 404


async def test_nothing_is_accepted_by_a_suspended_credential(shop: Shop) -> None:
    path = f"/apps/{shop.app_id}/credentials/{shop.credential_id}"
    assert (await shop.desk.admin.post(f"{path}/suspend", {})).status == 200
    refused = await shop.post(**ANA)
    assert (refused.status, refused.json["field"], await shop.count()) == (409, "credential", 0)


async def test_who_is_faster_than_its_rate_is_told_and_nothing_is_stored(shop: Shop, standing: ManualClock) -> None:
    slow = await shop.caller(1)
    answers = await asyncio.gather(*(shop.post(by=slow, **ANA) for _ in range(4)))
    assert sorted(one.status for one in answers) == [201, 429, 429, 429]
    refused = next(one for one in answers if one.status == 429)
    assert refused.headers["retry-after"] == "1"
    assert await shop.count() == 1
    standing.advance(1)
    assert (await shop.post(by=slow, **ANA)).status == 201


async def test_no_namespace_has_too_many_that_are_due_and_wait(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messages.singles._COUNTED_FOR_SECONDS", -1.0)
    made = await shop.post(**ANA)
    known = await shop.stored(made.json["id"])
    assert known.single is not None
    due = datetime.now(UTC) + timedelta(hours=1)
    single = SingleWish(channel=known.single.channel, namespace="n", created_at=due, due=due)
    namespace = known.single.namespace
    waits = Pending(credential_id=shop.credential_id, namespace=namespace, due=due)
    many = [
        Message(
            id=f"w{number}", app_id="x", credential_id=shop.credential_id, to="x", v=1, single=single, pending=waits
        )
        for number in range(10_000 - 1)
    ]
    await shop.desk.house.store.singles.add(many)
    stored = shop.desk.house.store.messages._messages
    ahead = await shop.post(**ANA)
    await stored.update_many({"app_id": "x"}, {"$set": {"pending.due": due - timedelta(hours=2)}})
    refused = await shop.post(**ANA)
    await stored.delete_many({"app_id": "x"})
    assert (ahead.status, refused.status, await shop.count()) == (201, 429, 2)
    assert "providers.waiting_singles allows 10,000" in refused.json["reason"]


async def test_a_repeated_request_sends_nothing_again(shop: Shop) -> None:
    answers = [await shop.post(key="order-42", **ANA) for _ in range(2)]
    assert [one.status for one in answers] == [201, 200]
    assert answers[0].json["id"] == answers[1].json["id"]
    assert await shop.count() == 1
    other = await shop.post(key="order-42", **ANA | {"to": "bob@example.com"})
    assert (other.status, other.json["field"]) == (422, "Idempotency-Key")
    mistaken = await shop.post(key="order-43", to="", body={"text": "Hi"})
    corrected = await shop.post(key="order-43", **ANA)
    assert (mistaken.status, corrected.status) == (422, 201)


async def test_many_are_answered_one_by_one(shop: Shop) -> None:
    items = [ANA, ANA | {"to": ""}, ANA | {"credential": "nobody"}, {"nonsense": 1}, ANA | {"to": "bob@example.com"}]
    body = [{"credential": "play"} | item for item in items]
    body += [ANA | {"credential": "play", "parameters": {"unused": "x" * ITEM_BYTES}}]
    first, again = [await shop.service.post(f"{shop.path}/bulk", body, idempotency_key="many") for _ in range(2)]
    assert [one["status"] for one in first.json] == [201, 422, 422, 422, 201, 422]
    assert [one["status"] for one in again.json] == [200, 422, 422, 422, 200, 422]
    assert [one["index"] for one in first.json] == [*range(6)]
    assert first.json[1]["error"]["field"] == "to"
    assert await shop.count() == 2


async def test_of_many_no_more_are_taken_than_the_rate_allows(shop: Shop, standing: ManualClock) -> None:
    slow = await shop.caller(3)
    body = [ANA | {"credential": "play"}] * 5
    answer = await slow.post(f"{shop.path}/bulk", body)
    assert [one["status"] for one in answer.json] == [201, 201, 201, 429, 429]
    assert (await slow.post(f"{shop.path}/bulk", body)).status == 429
    assert await shop.count() == 3


async def test_one_for_later_waits_for_its_instant(shop: Shop) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    made = await shop.post(sendAt=at.isoformat(), expiresAt=(at + timedelta(hours=1)).isoformat(), **ANA)
    assert made.json["sendAt"] == at.isoformat().replace("+00:00", "Z")
    store = shop.desk.house.store
    owner = f"message/{shop.credential_id}"
    assert await store.occurrences._occurrences.count_documents({"owner": owner}) == 1
    other = await shop.post(sendAt=at.isoformat(), **ANA)
    for _ in range(2):
        assert (await shop.service.delete(f"{shop.path}/{made.json['id']}")).status == 204
    assert await store.occurrences._occurrences.count_documents({"owner": owner}) == 1, "another one waits for it"
    assert (await shop.service.delete(f"{shop.path}/{other.json['id']}")).status == 204
    assert await store.occurrences._occurrences.count_documents({"owner": owner}) == 0
    shown = (await shop.service.get(f"{shop.path}/{made.json['id']}")).json
    assert (shown["state"], shown["reason"]) == ("failed", "cancelled")
    assert await store.single_contents.find([made.json["id"]], most_bytes=0) == {}


async def test_an_instant_is_there_for_one_that_comes_while_another_is_taken_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    made = await shop.post(sendAt=at.isoformat(), **ANA)
    store = shop.desk.rooms.messages.singles._store
    remove = store.occurrences.remove

    async def remove_late(id_: str) -> bool:
        assert (await shop.post(sendAt=at.isoformat(), **ANA)).status == 201
        return await remove(id_)

    monkeypatch.setattr(store.occurrences, "remove", remove_late)
    assert (await shop.service.delete(f"{shop.path}/{made.json['id']}")).status == 204
    owner = f"message/{shop.credential_id}"
    assert await store.occurrences._occurrences.count_documents({"owner": owner}) == 1


async def test_an_app_that_goes_meanwhile_takes_no_message(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is deleted between our look at it and the message."""
    store = shop.desk.rooms.messages.singles._store
    add, stored = store.singles.add, list[str]()

    async def add_late(messages: Sequence[Message]) -> set[str]:
        await store.apps.begin_removal(shop.app_id)
        stored.extend(message.id for message in messages)
        return await add(messages)

    monkeypatch.setattr(store.singles, "add", add_late)
    refused = await shop.post(**ANA)
    assert (refused.status, refused.json["field"]) == (409, "appId")
    assert await shop.count() == 0
    assert await store.single_contents.find(stored, most_bytes=0) == {}
    assert len(stored) == 1


async def test_an_app_whose_messages_wait_for_anothers_account_is_not_deleted(shop: Shop) -> None:
    guest = await shop.desk.house.app()
    made = await shop.desk.made(shop.app_id, shop.desk.in_sandbox() | {"name": "shared", "sharedWith": [guest]})
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    wish = ANA | {"credential": made["id"], "sendAt": at}
    waits = await shop.desk.admin.post(f"/apps/{guest}/messages", wish)
    assert waits.status == 201, waits.body
    refused = await shop.desk.admin.delete(f"/apps/{guest}")
    assert (refused.status, refused.json["field"]) == (409, "appId")
    assert (await shop.desk.admin.delete(f"/apps/{guest}/messages/{waits.json['id']}")).status == 204
    assert (await shop.desk.admin.delete(f"/apps/{guest}")).status == 204


async def test_a_repeat_of_one_that_was_taken_back_sends_nothing(shop: Shop) -> None:
    made = await shop.post(key="gone", **ANA)
    assert (await shop.service.delete(f"{shop.path}/{made.json['id']}")).status == 204
    again = await shop.post(key="gone", **ANA)
    assert (again.status, again.json["id"], again.json["reason"]) == (200, made.json["id"], "cancelled")


async def test_of_many_under_a_key_the_rest_goes_when_there_is_room(shop: Shop, standing: ManualClock) -> None:
    slow = await shop.caller(3)
    body = [ANA | {"credential": "play"}] * 5
    statuses = []
    for _ in range(2):
        answer = await slow.post(f"{shop.path}/bulk", body, idempotency_key="rest")
        statuses.append([one["status"] for one in answer.json])
        standing.advance(1)
    assert statuses == [[201, 201, 201, 429, 429], [200, 200, 200, 201, 201]]
    assert await shop.count() == 5


async def test_what_is_sent_cannot_be_taken_back(shop: Shop) -> None:
    made = await shop.post(**ANA)
    messages = shop.desk.house.store.messages._messages
    await messages.update_one({"_id": made.json["id"]}, {"$set": {"state": "sending"}})
    refused = await shop.service.delete(f"{shop.path}/{made.json['id']}")
    assert (refused.status, refused.json["reason"]) == (409, "the message is sending")


async def test_a_credential_with_waiting_messages_is_not_deleted(shop: Shop) -> None:
    made = await shop.post(**ANA)
    path = f"/apps/{shop.app_id}/credentials/{shop.credential_id}"
    assert (await shop.desk.admin.delete(path)).status == 409
    assert (await shop.service.delete(f"{shop.path}/{made.json['id']}")).status == 204
    assert (await shop.desk.admin.delete(path)).status == 204
