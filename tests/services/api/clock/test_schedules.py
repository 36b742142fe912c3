"""Schedules over HTTP: every route, idempotence, namespaces, pages, bulk and dead letters."""

import base64
import json
import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import BulkWriteError

from services.api.http.bodies import ITEM_BYTES
from shared.clock.rules.callbacks import HttpCallback, RabbitCallback
from shared.clock.rules.occurrences import HELD_BACK, Occurrence, OccurrenceKind
from shared.clock.rules.outcomes import DeadLetter, Outcome, OutcomeResult
from shared.clock.rules.schedules import Schedule, ScheduleState, schedule_id
from shared.console.store_idempotency import FirstUse
from shared.core.instants import format_instant, read_instant
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACE = f"user:{ADMIN}"
SECRET = "whsec_" + "QUJD" * 10
QUEUE = {"type": "rabbitmq", "data": {"queue": "invitations", "payload": {"id": "42"}}}


def fresh_key() -> str:
    return f"k-{secrets.token_hex(6)}"


def ahead(*hours: float) -> list[str]:
    """Instants so many hours from now, on whole seconds."""
    now = datetime.now(UTC).replace(microsecond=0)
    return [format_instant(now + timedelta(hours=each)) for each in hours]


def body(key: str, *instants: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "schedules": list(instants or ahead(1, 2)), "callback": QUEUE} | fields


def recurring(key: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "callback": QUEUE} | fields


async def schedule(house: House, key: str) -> Schedule:
    found = await house.store.schedules.get(schedule_id(NAMESPACE, key))
    assert found is not None
    return found


async def occurrences(house: House, key: str) -> list[Occurrence]:
    return await house.store.occurrences.find_upcoming((await schedule(house, key)).owner, 100)


async def made(house: House, key: str, **fields: Any) -> dict[str, Any]:
    reply = await house.admin.post("/schedules", body(key, **fields))
    assert reply.status == 201, reply.body
    return dict(reply.json)


async def other(house: House) -> Client:
    """A service with a namespace of its own."""
    issued = await house.admin.post("/tokens", {"name": "other"})
    return house.admin.service(issued.json["token"])


# making and replacing


async def test_the_published_request_works_unchanged(house: House) -> None:
    year = datetime.now(UTC).year + 1
    request = (
        b'{"key":"training-invitations-42",\n "schedules":["%d-12-24T14:00:00Z","%d-12-25T14:00:00Z"],\n "callback":'
        b'{"type":"rabbitmq","data":{"queue":"training.invitations.notifications","payload":{"id":"42"}}}}'
        % (year, year)
    )
    reply = await house.admin.post("/schedules", request)
    assert reply.status == 201
    assert reply.json["next"] == reply.json["schedules"] == [f"{year}-12-24T14:00:00Z", f"{year}-12-25T14:00:00Z"]
    stored = await schedule(house, "training-invitations-42")
    assert stored.definition.callback == RabbitCallback(
        queue="training.invitations.notifications", payload='{"id":"42"}'
    )
    assert [format_instant(each.due) for each in await occurrences(house, stored.key)] == reply.json["schedules"]


async def test_a_schedule_is_answered_with_every_field(house: House) -> None:
    key, instants = fresh_key(), ahead(2, 1, 1)
    created = await house.admin.post(
        "/schedules",
        body(
            key, *instants, misfire={"fire_within_seconds": 60}, retry={"attempts": 3}, labels={"team": "a"},
            callback={"type": "http", "data": {"url": "https://example.com/x", "payload": [1.0], "secret": SECRET}},
        ),
    )  # fmt: skip
    assert created.status == 201, created.body
    answer = created.json
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", answer.pop("created_at"))
    answer.pop("updated_at")
    assert answer == {
        "key": key,
        "schedules": [instants[1], instants[0]],
        "window_seconds": 0.0,
        "misfire": {"fire_within_seconds": 60.0},
        "retry": {"attempts": 3, "first_delay_seconds": 5.0, "factor": 3.0, "cap_seconds": 3600.0},
        "labels": {"team": "a"},
        "callback": {
            "type": "http",
            "data": {
                "url": "https://example.com/x", "method": "POST", "headers": {}, "payload": [1.0],
                "secret": "whsec_***",
            },
        },
        "state": "active",
        "next": [instants[1], instants[0]],
        "skipped": [],
        "redacted": False,
    }  # fmt: skip
    callback = (await schedule(house, key)).definition.callback
    assert isinstance(callback, HttpCallback)
    assert callback.secret == SECRET
    assert SECRET.encode() not in (await house.admin.get(f"/schedules/{key}")).body


async def test_a_payload_is_kept_and_shown_as_the_text_that_it_was(house: House) -> None:
    key = fresh_key()
    payload = '{ "n": 1.00, "big": 123456789012345678901234567890, "e": 1e999, "t": "\\u00e9é", "n": 2 }'
    text = json.dumps(body(key)).replace('{"id": "42"}', payload)
    reply = await house.admin.post("/schedules", text.encode())
    assert reply.status == 201, reply.body
    assert payload.encode() in reply.body
    assert (await schedule(house, key)).definition.callback.payload == payload
    assert payload.encode() in (await house.admin.get(f"/schedules/{key}")).body


async def test_the_largest_payload_and_the_longest_list_are_taken(house: House) -> None:
    key = fresh_key()
    start = datetime(2100, 1, 1, tzinfo=UTC)
    instants = [format_instant(start + timedelta(seconds=n)) for n in range(10_000)]
    data = {"queue": "q", "payload": "x" * (256 * 1024 - 2)}
    reply = await house.admin.post("/schedules", body(key, *instants, callback={"type": "rabbitmq", "data": data}))
    assert reply.status == 201, reply.body[:500]
    assert reply.json["next"] == instants[:20]
    owner = (await schedule(house, key)).owner
    assert await house.store._database["occurrences"].count_documents({"owner": owner}) == 10_000
    assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    assert await house.store._database["occurrences"].count_documents({"owner": owner}) == 0


async def test_past_instants_are_skipped_and_told(house: House) -> None:
    key, instants = fresh_key(), ahead(-2, -1, 1)
    reply = await house.admin.post("/schedules", body(key, *instants))
    assert reply.status == 201
    assert reply.json["skipped"] == instants[:2]
    assert reply.json["next"] == instants[2:]
    assert [format_instant(each.due) for each in await occurrences(house, key)] == instants[2:]


async def test_post_again_changes_nothing_and_another_content_is_a_conflict(house: House) -> None:
    key, instants = fresh_key(), ahead(1, 2)
    first = await house.admin.post("/schedules", body(key, *instants))
    before = await schedule(house, key)
    again = await house.admin.post("/schedules", body(key, instants[1], *instants))  # sorted, each once
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    conflict = await house.admin.post("/schedules", body(key, *instants, labels={"a": "b"}))
    assert (conflict.status, conflict.json["field"]) == (409, "key")
    assert await schedule(house, key) == before


_PAYLOAD, _ANOTHER = '{"report": "sales", "n": [1, 2.50]}', "callback.data.payload"


@pytest.mark.parametrize(
    ("payload", "more", "differs"),
    [
        (_PAYLOAD, {}, ""),
        ('{"n":[1,2.50],"report":"s\\u0061les"}', {}, ""),
        ('{"report":\n"sales","n":[1,2.50]}', {"retry": {"attempts": 10}, "labels": {}}, ""),
        ('{"report": "sales", "n": [1.0, 2.50]}', {}, _ANOTHER),
        ('{"report": "sales", "n": [1, 2.5]}', {}, _ANOTHER),
        ('{"report": "sales", "n": ["1", 2.50]}', {}, _ANOTHER),
        ('{"report": "sales", "n": [2.50, 1]}', {}, _ANOTHER),
        ('{"report": "Sales", "n": [1, 2.50]}', {"retry": {"attempts": 3}}, f"{_ANOTHER}, retry.attempts"),
        (_PAYLOAD, {"labels": {"team": "a"}, "misfire": "skip"}, "misfire, labels.team"),
        (_PAYLOAD, {"every": None, "cron": "0 9 * * *"}, "cron, timezone, every"),
        (_PAYLOAD, {"starts_at": "2020-01-01T00:00:00Z"}, "starts_at"),
    ],
)  # fmt: skip
async def test_json_that_is_spelled_otherwise_is_the_same_and_a_conflict_names_the_fields(
    house: House, payload: str, more: dict[str, Any], differs: str
) -> None:
    def spell(payload: str, more: dict[str, Any]) -> bytes:
        callback = b'{"type":"rabbitmq","data":{"queue":"invitations","payload":%b}}' % payload.encode()
        fields = {"key": key, "every": 3600} | more
        return json.dumps(fields)[:-1].encode() + b',"callback":' + callback + b"}"

    key = fresh_key()
    assert (await house.admin.post("/schedules", spell(_PAYLOAD, {}))).status == 201
    before = await schedule(house, key)
    again = await house.admin.post("/schedules", spell(payload, more))
    if not differs:
        assert again.status == 200
        assert (await house.admin.put(f"/schedules/{key}", spell(payload, more))).status == 200
    else:
        assert again.status == 409
        named = again.json["detail"].partition("differs in: ")[2]
        assert set(named.split(", ")) == set(differs.split(", "))
        assert b"ales" not in again.body
    assert await schedule(house, key) == before  # with the text that it came with


async def test_put_makes_keeps_and_replaces(house: House) -> None:
    key, instants, moved = fresh_key(), ahead(1, 2), ahead(3)
    path = f"/schedules/{key}"
    without_key = {name: value for name, value in body(key, *instants).items() if name != "key"}
    first = await house.admin.put(path, without_key)
    assert (first.status, first.json["next"]) == (201, instants)
    before = await schedule(house, key)
    assert (await house.admin.put(path, body(key, *instants))).status == 200
    assert await schedule(house, key) == before
    replaced = await house.admin.put(path, body(key, *moved))
    assert (replaced.status, replaced.json["next"]) == (200, moved)
    assert replaced.json["created_at"] == first.json["created_at"]
    assert [format_instant(each.due) for each in await occurrences(house, key)] == moved
    assert (await schedule(house, key)).generation != before.generation


async def test_a_recurrence_does_not_depend_on_when_it_was_asked_for(house: House) -> None:
    key = fresh_key()
    first = await house.admin.post("/schedules", recurring(key, every=3600, max_occurrences=3))
    assert first.status == 201, first.body
    assert len(first.json["next"]) == 3
    assert all(instant.endswith(":00:00Z") for instant in first.json["next"])
    assert (await house.admin.post("/schedules", recurring(key, every=3600, max_occurrences=3))).status == 200
    [series] = await occurrences(house, key)
    assert series.kind is OccurrenceKind.SERIES
    shown = (await house.admin.get(f"/schedules/{key}")).json
    assert shown["next"] == first.json["next"]
    assert shown["every"] == 3600
    assert shown["max_occurrences"] == 3
    assert "cron" not in shown
    assert "schedules" not in shown


async def test_cron_has_a_zone_and_bounds(house: House) -> None:
    key = fresh_key()
    wanted = recurring(
        key, cron="30 9 * * *", timezone="Europe/Paris", starts_at="2100-07-01T00:00:00+02:00",
        ends_at="2100-07-03T00:00:00Z",
    )  # fmt: skip
    reply = await house.admin.post("/schedules", wanted)
    assert reply.status == 201, reply.body
    assert reply.json["next"] == ["2100-07-01T07:30:00Z", "2100-07-02T07:30:00Z"]
    assert reply.json["starts_at"] == "2100-06-30T22:00:00Z"
    assert (reply.json["cron"], reply.json["timezone"]) == ("30 9 * * *", "Europe/Paris")


async def test_a_window_delays_by_the_key_within_its_bounds(house: House) -> None:
    keys, instant = [fresh_key() for _ in range(8)], datetime(2100, 1, 1, tzinfo=UTC)
    firsts = set()
    for key in keys:
        reply = await house.admin.post("/schedules", body(key, format_instant(instant), window_seconds=60))
        [due] = reply.json["next"]
        assert instant <= read_instant(due, field="next") < instant + timedelta(seconds=60)
        assert [format_instant(each.due) for each in await occurrences(house, key)] == [due]
        firsts.add(due)
    assert len(firsts) > 1


async def test_every_kind_of_target_is_taken(house: House) -> None:
    for callback in (
        {
            "type": "rabbitmq",
            "data": {"exchange": "orders", "routing_key": "new", "payload": None, "headers": {"a": "b"}},
        },
        {"type": "kafka", "data": {"topic": "orders", "key": "42", "payload": "text", "headers": {"a": "b"}}},
        {"type": "http", "data": {"url": "https://example.com/", "method": "GET", "headers": {"X-A": "b"}}},
    ):
        reply = await house.admin.post("/schedules", body(fresh_key(), callback=callback))
        assert reply.status == 201, reply.body
        shown = reply.json["callback"]
        assert shown["type"] == callback["type"]
        assert shown["data"].items() >= callback["data"].items()  # type: ignore[attr-defined]


# reading, pausing, firing


async def test_show_tells_what_is_pending_and_what_became_of_the_rest(house: House) -> None:
    key, instants = fresh_key(), ahead(1, 2, 3)
    await house.admin.post("/schedules", body(key, *instants))
    stored = await schedule(house, key)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    await house.store.outcomes.add([
        Outcome(
            id=f"{key}-{n}", owner=stored.owner, due=at, at=at + timedelta(milliseconds=n), late_ms=0, attempt=1,
            result=OutcomeResult.FAILED, error="503",
        )
        for n in range(25)
    ])  # fmt: skip
    shown = (await house.admin.get(f"/schedules/{key}")).json
    assert shown["next"] == instants
    assert [outcome["late_ms"] for outcome in shown["outcomes"]] == list(range(24, 4, -1))
    assert shown["outcomes"][0] == {
        "due": "2026-01-01T00:00:00Z", "at": "2026-01-01T00:00:00.024Z", "late_ms": 24, "attempt": 1,
        "result": "failed", "error": "503",
    }  # fmt: skip


async def test_one_instant_is_cancelled(house: House) -> None:
    key, instants = fresh_key(), ahead(1, 2)
    await made(house, key, schedules=instants)
    path = f"/schedules/{key}/occurrences/"
    assert (await house.admin.delete(path + instants[0])).status == 204
    assert (await house.admin.delete(path + instants[0])).status == 404
    assert (await house.admin.get(f"/schedules/{key}")).json["next"] == instants[1:]
    assert (await house.admin.delete(path + instants[1].replace("Z", "%2B00:00"))).status == 204


async def test_an_instant_of_a_recurrence_cannot_be_cancelled(house: House) -> None:
    key = fresh_key()
    first = (await house.admin.post("/schedules", recurring(key, every=3600))).json["next"][0]
    reply = await house.admin.delete(f"/schedules/{key}/occurrences/{first}")
    assert (reply.status, reply.json["field"]) == (409, "timestamp")


async def test_a_schedule_is_removed_with_all_that_is_pending(house: House) -> None:
    key = fresh_key()
    await made(house, key)
    owner = (await schedule(house, key)).owner
    assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    assert (await house.admin.delete(f"/schedules/{key}")).status == 404
    assert (await house.admin.get(f"/schedules/{key}")).status == 404
    assert await house.store.occurrences.find_upcoming(owner, 10) == []


async def test_pause_and_resume_are_idempotent(house: House) -> None:
    key = fresh_key()
    await made(house, key)
    for _ in range(2):
        paused = await house.admin.post(f"/schedules/{key}/pause")
        assert (paused.status, paused.json["state"]) == (200, "paused")
        assert {each.visible_at for each in await occurrences(house, key)} == {HELD_BACK}
    for _ in range(2):
        resumed = await house.admin.post(f"/schedules/{key}/resume")
        assert (resumed.status, resumed.json["state"]) == (200, "active")
        assert all(each.visible_at == each.due for each in await occurrences(house, key))


async def test_what_has_finished_cannot_be_paused(house: House) -> None:
    key = fresh_key()
    await made(house, key)
    await house.store.schedules.finish(
        [(await schedule(house, key)).id], before=datetime(2200, 1, 1, tzinfo=UTC), at=datetime.now(UTC)
    )
    for move in ("pause", "resume"):
        assert (await house.admin.post(f"/schedules/{key}/{move}")).status == 409


async def test_fire_asks_for_one_more_now_and_a_repeated_request_for_none(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    answer = await made(house, key)
    fired = await house.admin.post(f"/schedules/{key}/fire", idempotency_key=token)
    assert fired.status == 202
    asked = [each for each in await occurrences(house, key) if each.kind is OccurrenceKind.ASKED]
    assert [(each.message_id, format_instant(each.due)) for each in asked] == [(fired.json["id"], fired.json["due"])]
    again = await house.admin.post(f"/schedules/{key}/fire", idempotency_key=token)
    assert again.status == 202
    assert len([each for each in await occurrences(house, key) if each.kind is OccurrenceKind.ASKED]) == 1
    assert (await house.admin.get(f"/schedules/{key}")).json["next"] == answer["next"]
    assert (await house.admin.post(f"/schedules/{key}/fire")).status == 202
    assert len([each for each in await occurrences(house, key) if each.kind is OccurrenceKind.ASKED]) == 2


async def test_preview_tells_20_instants_and_stores_nothing(house: House) -> None:
    before = await house.store._database["schedules"].count_documents({})
    wanted = {"cron": "0 0 * * *", "starts_at": "2100-01-01T00:00:00Z", "callback": QUEUE}
    reply = await house.admin.post("/schedules/preview", wanted)
    assert reply.status == 200
    assert reply.json == {"next": [f"2100-01-{day:02}T00:00:00Z" for day in range(1, 21)]}
    past = await house.admin.post("/schedules/preview", {"schedules": ahead(-1), "callback": QUEUE})
    assert (past.status, past.json["field"]) == (422, "schedules")
    assert await house.store._database["schedules"].count_documents({}) == before


# idempotency keys


async def test_a_repeated_request_does_not_make_anew_what_was_deleted(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    wanted = body(key)
    first = await house.admin.post("/schedules", wanted, idempotency_key=token)
    assert first.status == 201
    assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    again = await house.admin.post("/schedules", wanted, idempotency_key=token)
    assert again.status == 200
    assert again.json == first.json | {"state": "finished", "next": []}
    assert (await house.admin.get(f"/schedules/{key}")).status == 404
    # Another request, and one without a key, may make it.
    assert (await house.admin.post("/schedules", wanted)).status == 201


async def test_a_repeated_request_leaves_what_has_replaced_its_schedule(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    wanted = body(key)
    assert (await house.admin.post("/schedules", wanted, idempotency_key=token)).status == 201
    replaced = await house.admin.put(f"/schedules/{key}", body(key, *ahead(5)))
    assert replaced.status == 200
    again = await house.admin.post("/schedules", wanted, idempotency_key=token)
    assert (again.status, again.json["schedules"], again.json["next"]) == (200, wanted["schedules"], [])
    assert (await house.admin.get(f"/schedules/{key}")).json["next"] == replaced.json["next"]


async def test_a_key_whose_request_was_refused_makes_what_it_asks_for_later(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    await made(house, key, schedules=ahead(3))
    wanted = body(key, *ahead(4))
    assert (await house.admin.post("/schedules", wanted, idempotency_key=token)).status == 409
    assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    assert (await house.admin.post("/schedules", wanted, idempotency_key=token)).status == 201


async def test_repeated_bulk_makes_only_what_it_could_not_make_before(house: House) -> None:
    taken, deleted, kept, token = fresh_key(), fresh_key(), fresh_key(), secrets.token_hex(6)
    await made(house, taken, schedules=ahead(3))
    items = [body(taken), body(deleted), {"key": "?"}, body(kept)]
    first = await house.admin.post("/schedules/bulk", items, idempotency_key=token)
    assert [each["status"] for each in first.json] == [409, 201, 422, 201]
    for key in (taken, deleted):
        assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    for status in (201, 200):
        again = await house.admin.post("/schedules/bulk", items, idempotency_key=token)
        assert [each["status"] for each in again.json] == [status, 200, 422, 200]
        assert [each["key"] for each in again.json] == [taken, deleted, "?", kept]
    assert (await house.admin.get(f"/schedules/{deleted}")).status == 404


async def test_equal_bulk_requests_at_the_same_time_keep_what_each_of_them_made(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late, token = fresh_key(), fresh_key(), secrets.token_hex(6)
    items = [body(early), body(late)]
    await made(house, late, schedules=ahead(3))
    claim = house.store.idempotency.claim

    async def claim_and_be_overtaken(*args: Any) -> FirstUse:
        first = await claim(*args)
        monkeypatch.undo()
        other_one = await house.admin.post("/schedules/bulk", items, idempotency_key=token)
        assert [each["status"] for each in other_one.json] == [201, 409]
        for key in (early, late):
            assert (await house.admin.delete(f"/schedules/{key}")).status == 204
        await made(house, early, schedules=ahead(3))
        return first

    monkeypatch.setattr(house.store.idempotency, "claim", claim_and_be_overtaken)
    overtaken = await house.admin.post("/schedules/bulk", items, idempotency_key=token)
    assert [each["status"] for each in overtaken.json] == [409, 201]
    for key in (early, late):
        assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    again = await house.admin.post("/schedules/bulk", items, idempotency_key=token)
    assert [each["status"] for each in again.json] == [200, 200]


async def test_a_repeated_fire_does_not_fire_what_has_come_in_its_place(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    await made(house, key)
    fired = await house.admin.post(f"/schedules/{key}/fire", idempotency_key=token)
    assert (await house.admin.put(f"/schedules/{key}", body(key, *ahead(5)))).status == 200
    again = await house.admin.post(f"/schedules/{key}/fire", idempotency_key=token)
    assert (again.status, again.json) == (202, fired.json)
    assert [each.kind for each in await occurrences(house, key)] == [OccurrenceKind.ONCE]


async def test_a_database_that_steps_down_is_a_503(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped_down = {"code": 11602, "errmsg": "operation was interrupted"}

    class SteppingDown:
        async def insert_many(self, documents: object, *, ordered: bool) -> None:
            raise BulkWriteError({"writeErrors": [], "writeConcernErrors": [stepped_down]})

    monkeypatch.setattr(house.store.occurrences, "_occurrences", SteppingDown())
    assert (await house.admin.post("/schedules", body(fresh_key()))).status == 503


async def test_an_idempotency_key_belongs_to_one_request(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    wanted = body(key)
    assert (await house.admin.post("/schedules", wanted, idempotency_key=token)).status == 201
    assert (await house.admin.post("/schedules", wanted, idempotency_key=token)).status == 200
    spelled = json.dumps(dict(reversed(wanted.items())), indent=2).encode()
    assert (await house.admin.post("/schedules", spelled, idempotency_key=token)).status == 200
    another = fresh_key()
    for path, content in (("/schedules", body(another)), ("/schedules/bulk", [body(another)])):
        refused = await house.admin.post(path, content, idempotency_key=token)
        assert (refused.status, refused.json["field"]) == (422, "Idempotency-Key")
    assert (await house.admin.get(f"/schedules/{another}")).status == 404
    elsewhere = await (await other(house)).post("/schedules", body(another), idempotency_key=token)
    assert elsewhere.status == 201


async def test_a_request_with_a_mistake_can_be_corrected_under_its_key(house: House) -> None:
    key, token = fresh_key(), secrets.token_hex(6)
    assert (await house.admin.post("/schedules", body(key, *ahead(-1)), idempotency_key=token)).status == 422
    assert (await house.admin.post("/schedules", body(key, x=1), idempotency_key=token)).status == 422
    assert (await house.admin.post("/schedules", body(key), idempotency_key=token)).status == 201


# namespaces and pages


async def test_two_callers_may_use_one_key_and_see_only_their_own(house: House) -> None:
    key, stranger = fresh_key(), await other(house)
    await made(house, key)
    assert (await stranger.get(f"/schedules/{key}")).status == 404
    assert (await stranger.delete(f"/schedules/{key}")).status == 404
    assert (await stranger.post(f"/schedules/{key}/pause")).status == 404
    assert (await stranger.post(f"/schedules/{key}/fire")).status == 404
    assert (await stranger.get("/schedules")).json == []
    mine = ahead(5)
    theirs = await stranger.post("/schedules", body(key, *mine))
    assert (theirs.status, theirs.json["next"]) == (201, mine)
    assert (await stranger.delete(f"/schedules/{key}")).status == 204
    assert (await house.admin.get(f"/schedules/{key}")).status == 200


async def test_pages_are_by_key_with_a_prefix_and_a_state(house: House) -> None:
    client, prefix = await other(house), "page:"
    for n in range(5):
        assert (await client.post("/schedules", body(f"{prefix}{n}"))).status == 201
    await client.post("/schedules", body("zz"))
    await client.post(f"/schedules/{prefix}3/pause")
    keys, path = [], f"/schedules?prefix={prefix}&limit=2"
    sizes = []
    while path:
        reply = await client.get(path)
        assert reply.status == 200
        keys += [each["key"] for each in reply.json]
        sizes.append(len(reply.json))
        path = following(reply)
    assert (keys, sizes) == ([f"{prefix}{n}" for n in range(5)], [2, 2, 1])
    paused = (await client.get("/schedules?state=paused")).json
    assert [each["key"] for each in paused] == [f"{prefix}3"]
    assert not paused[0].keys() & {"schedules", "next", "outcomes", "skipped"}
    assert [each["key"] for each in (await client.get("/schedules")).json][-1] == "zz"


@pytest.mark.parametrize("asked", ["label=team:billing,env:prod", "label=team:billing&label=env:prod"])
async def test_pages_of_labels_keep_what_was_asked_for(house: House, asked: str) -> None:
    client = await other(house)
    for n in range(5):
        await client.post("/schedules", body(f"k{n}", labels={"team": "billing", "env": "prod" if n < 4 else "test"}))
    keys, path = [], f"/schedules?{asked}&limit=3"
    while path:
        reply = await client.get(path)
        keys.append([each["key"] for each in reply.json])
        path = following(reply)
    assert keys == [["k0", "k1", "k2"], ["k3"]]


def following(reply: Reply) -> str:
    link = re.fullmatch(r'<(.+)>; rel="next"', reply.headers.get("link", ""))
    return link[1] if link else ""


# many at once


async def test_bulk_answers_each_item_and_one_bad_one_does_not_spoil_the_others(house: House) -> None:
    taken, key = fresh_key(), fresh_key()
    await made(house, taken, schedules=ahead(1))
    same = body(key)
    items = [
        same, same, body(key, labels={"a": "b"}), body(taken, *ahead(9)), body("a b"), 7, None,
        body(fresh_key(), *ahead(-1)), body(fresh_key(), x=1), body(fresh_key()),
        body(fresh_key(), labels={"a": "x" * ITEM_BYTES}),
    ]  # fmt: skip
    reply = await house.admin.post("/schedules/bulk", items)
    assert reply.status == 200
    assert [item["index"] for item in reply.json] == list(range(11))
    assert [item["status"] for item in reply.json] == [201, 200, 409, 409, 422, 422, 422, 422, 422, 201, 422]
    fields = [item["error"] and item["error"]["field"] for item in reply.json]
    assert fields == [None, None, "key", "key", "key", None, None, "schedules", "x", None, None]
    assert [item["key"] for item in reply.json][:7] == [key, key, key, taken, "a b", None, None]
    assert all(item["error"]["reason"] for item in reply.json if item["status"] >= 400)
    assert (await schedule(house, key)).generation == (await occurrences(house, key))[0].generation


async def test_bulk_in_lines_answers_in_lines_and_bad_json_spoils_only_its_line(house: House) -> None:
    keys = [fresh_key() for _ in range(3)]
    lines = [json.dumps(body(key)).encode() for key in keys]
    content = lines[0] + b"\r\n\n{\n\xff\n" + lines[1] + b"\n" + b"[" * 5000 + b"\n" + lines[2]
    reply = await house.admin.post("/schedules/bulk", content, content_type="application/x-ndjson; charset=utf-8")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    answers = [json.loads(line) for line in reply.body.splitlines()]
    assert [(each["index"], each["status"]) for each in answers] == list(enumerate([201, 422, 422, 201, 422, 201]))
    assert [each["key"] for each in answers] == [keys[0], None, None, keys[1], None, keys[2]]
    for key in keys:
        assert (await schedule(house, key)).state is ScheduleState.ACTIVE


@pytest.mark.slow
async def test_bulk_takes_ten_thousand_and_again_changes_nothing(house: House) -> None:
    client = await other(house)
    instant = ahead(1)
    content = b"\n".join(json.dumps(body(f"bulk-{n:05}", *instant)).encode() for n in range(10_000))
    for status in (201, 200):
        reply = await client.post("/schedules/bulk", content, content_type="application/x-ndjson")
        answers = [json.loads(line) for line in reply.body.splitlines()]
        assert [(each["index"], each["status"]) for each in answers] == [(n, status) for n in range(10_000)]
    page = (await client.get("/schedules?prefix=bulk-0999&limit=1000")).json
    assert [each["key"] for each in page] == [f"bulk-{n:05}" for n in range(9_990, 10_000)]


# dead letters


async def buried(house: House, key: str, *numbers: int, namespace: str = NAMESPACE) -> list[str]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    letters = [
        DeadLetter(
            id=f"{key}-{n:04}", death=f"{key}-{n:04}",
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g",
            due=at + timedelta(minutes=n), died_at=at + timedelta(hours=1), attempts=10, error="404 Not Found",
        )
        for n in numbers
    ]  # fmt: skip
    await house.store.dead_letters.add(letters)
    return [letter.id for letter in letters]


async def test_dead_letters_are_listed_by_page_and_key(house: House) -> None:
    key = fresh_key()
    ids = await buried(house, key, 0, 1, 2)
    await buried(house, fresh_key(), 0)
    await buried(house, key, 3, namespace="user:other@example.com")
    first = await house.admin.get(f"/dead-letters?key={key}&limit=2")
    rest = await house.admin.get(following(first))
    assert [each["id"] for each in first.json + rest.json] == ids[::-1]
    assert following(rest) == ""
    assert rest.json[0] == {
        "id": ids[0], "namespace": NAMESPACE, "key": key, "due": "2026-01-01T00:00:00Z",
        "died_at": "2026-01-01T01:00:00Z", "attempts": 10, "error": "404 Not Found", "redacted": False,
    }  # fmt: skip
    assert len((await house.admin.get("/dead-letters")).json) >= 4


async def test_a_dead_letter_is_tried_again_or_given_up(house: House) -> None:
    key = fresh_key()
    await made(house, key)
    ids = await buried(house, key, 0, 1)
    stranger = await other(house)
    for move in ("retry", "discard"):
        assert (await stranger.post(f"/dead-letters/{ids[0]}/{move}")).status == 404
    retried = await house.admin.post(f"/dead-letters/{ids[0]}/retry")
    assert (retried.status, retried.json) == (202, {"id": ids[0]})
    asked = [each for each in await occurrences(house, key) if each.kind is OccurrenceKind.ASKED]
    assert [format_instant(each.due) for each in asked] == ["2026-01-01T00:00:00Z"]
    assert (await house.admin.post(f"/dead-letters/{ids[0]}/retry")).status == 404
    assert (await house.admin.post(f"/dead-letters/{ids[1]}/discard")).status == 204
    assert (await house.admin.post(f"/dead-letters/{ids[1]}/discard")).status == 404
    assert (await house.admin.get(f"/dead-letters?key={key}")).json == []


async def test_a_dead_letter_whose_schedule_is_gone_can_only_be_given_up(house: House) -> None:
    [letter] = await buried(house, fresh_key(), 0)
    assert (await house.admin.post(f"/dead-letters/{letter}/retry")).status == 409
    assert (await house.admin.post(f"/dead-letters/{letter}/discard")).status == 204


async def test_all_dead_letters_of_a_key_or_of_a_caller_are_tried_again(house: House) -> None:
    client = await other(house)
    keys = [fresh_key() for _ in range(3)]
    for key in keys[:2]:
        assert (await client.post("/schedules", body(key))).status == 201
    namespace = await namespace_of(house, keys[0])
    for key in keys:
        await buried(house, key, *range(160), namespace=namespace)
    reply = await client.post("/dead-letters/retry", {"key": keys[0]})
    assert (reply.status, reply.json) == (200, {"retried": 160})
    assert (await client.post("/dead-letters/retry")).json == {"retried": 160}
    assert {each["key"] for each in (await client.get("/dead-letters")).json} == {keys[2]}
    refused = await client.post("/dead-letters/retry", {"keys": []})
    assert (refused.status, refused.json["field"]) == (422, "keys")


async def namespace_of(house: House, key: str) -> str:
    found = await house.store._database["schedules"].find_one({"key": key})
    assert found is not None
    return str(found["namespace"])


async def test_a_dead_letter_is_shown_with_what_a_retry_would_do(house: House) -> None:
    key = fresh_key()
    await made(house, key)
    [letter] = await buried(house, key, 0)
    shown = (await house.admin.get(f"/dead-letters/{letter}")).json
    assert (shown["id"], shown["key"], shown["error"]) == (letter, key, "404 Not Found")
    assert shown["callback"] == (await house.admin.get(f"/schedules/{key}")).json["callback"]
    assert (await house.admin.delete(f"/schedules/{key}")).status == 204
    assert (await house.admin.get(f"/dead-letters/{letter}")).json["callback"] is None
    assert (await (await other(house)).get(f"/dead-letters/{letter}")).status == 404


async def test_who_has_a_role_everywhere_sees_all_dead_letters_at_once(house: House) -> None:
    keys = [fresh_key(), fresh_key()]
    ids = await buried(house, keys[0], 0) + await buried(house, keys[1], 0, namespace="user:other@example.com")
    everywhere = (await house.admin.get("/dead-letters?namespace=*")).json
    assert set(ids) <= {each["id"] for each in everywhere}
    assert (await house.admin.get(f"/dead-letters/{ids[1]}?namespace=*")).json["namespace"] == "user:other@example.com"
    stranger = await other(house)
    assert (await stranger.get("/dead-letters?namespace=*")).status == 403
    assert (await house.admin.post(f"/dead-letters/{ids[0]}/discard?namespace=*")).status == 422


async def test_dead_letters_are_grouped_by_what_they_died_of(house: House) -> None:
    key = fresh_key()
    await buried(house, key, 0, 1, 2)
    [error] = (await house.admin.get(f"/dead-letters/errors?key={key}")).json
    assert error == {"error": "404 Not Found", "count": 3, "last_died_at": "2026-01-01T01:00:00Z"}


@pytest.mark.parametrize(
    "position", ['"an id"', '["0001-01-01T00:00:00+14:00","a"]', '["9999-12-31T23:59:59-14:00","a"]']
)
async def test_a_cursor_of_another_order_is_refused(house: House, position: str) -> None:
    cursor = base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")
    reply = await house.admin.get(f"/dead-letters?cursor={cursor}")
    assert (reply.status, reply.json["field"]) == (422, "cursor")
