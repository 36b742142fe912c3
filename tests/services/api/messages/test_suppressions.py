"""Suppressions over the API: who gets nothing more, entered and found by hand."""

import json
from typing import Any

import pytest

from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import listing_of, suppression_id, unsubscribe_listing
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

NDJSON = "application/x-ndjson"


def path(app_id: str, *rest: str) -> str:
    return "/".join((f"/apps/{app_id}/suppressions", *rest))


def mail(address: str = "ana@example.com", **fields: Any) -> dict[str, Any]:
    return {"channel": "mail", "address": address} | fields


async def over(house: House, app_id: str, role: str) -> Client:
    made = await house.admin.post("/tokens", {"name": role, "roles": {f"app/{app_id}": role}})
    assert made.status == 201, made.body
    return house.admin.service(made.json["token"])


async def add(house: House, app_id: str, **fields: Any) -> dict[str, Any]:
    made: Reply = await house.admin.post(path(app_id), mail(**fields))
    assert made.status in (200, 201), made.body
    shown: dict[str, Any] = made.json
    return shown


async def test_somebody_is_entered_listed_and_taken_out(house: House) -> None:
    app_id = await house.app()
    made = await house.admin.post(path(app_id), mail(" Ana@EXAMPLE.com ", list="news"))
    assert made.status == 201, made.body
    assert made.json == {
        "id": suppression_id(app_id, Channel.MAIL, "Ana@example.com", "news"),
        "appId": app_id,
        "channel": "mail",
        "address": "Ana@example.com",
        "list": "news",
        "cause": "hand",
        "messageId": "",
        "at": made.json["at"],
        "unsubscribedAt": None,
        "redacted": False,
    }
    assert (await house.admin.get(path(app_id))).json == [made.json]
    assert (await house.admin.delete(path(app_id, made.json["id"]))).status == 204
    assert (await house.admin.get(path(app_id))).json == []
    gone = await house.admin.delete(path(app_id, made.json["id"]))
    assert (gone.status, gone.json["field"]) == (404, "suppression")


async def test_who_is_there_stays_and_a_bar_takes_the_place_of_a_wish(house: House) -> None:
    app_id = await house.app()
    first = await house.admin.post(path(app_id), mail(cause="unsubscribe"))
    again = await house.admin.post(path(app_id), mail(cause="unsubscribe"))
    assert (first.status, again.status, again.json) == (201, 200, first.json)
    assert first.json["unsubscribedAt"] == first.json["at"]
    barred = await house.admin.post(path(app_id), mail(cause="complaint"))
    assert (barred.status, barred.json["id"], barred.json["cause"]) == (200, first.json["id"], "complaint")
    assert barred.json["unsubscribedAt"] == first.json["at"]
    causes = []
    while found := (await house.admin.get(path(app_id))).json:
        causes.append(found[0]["cause"])
        assert (await house.admin.delete(path(app_id, first.json["id"]))).status == 204
    assert causes == ["complaint", "unsubscribe"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channel": "pigeon"}, "channel"),
        ({"channel": None}, "channel"),
        ({"address": ""}, "address"),
        ({"address": "ana"}, "address"),
        ({"address": "ana@example.com\nbcc: bo@example.com"}, "address"),
        ({"address": 5}, "address"),
        ({"channel": "sms", "address": "91234567"}, "address"),
        ({"channel": "sms", "address": "91234567", "defaultRegion": "Singapore"}, "defaultRegion"),
        ({"channel": "other", "address": "x" * 1_025}, "address"),
        ({"list": " news"}, "list"),
        ({"list": "x" * 101}, "list"),
        ({"cause": "whim"}, "cause"),
        ({"reason": "x"}, "reason"),
    ],
)
async def test_what_cannot_be_is_refused_and_shows_no_address(house: House, fields: dict[str, Any], field: str) -> None:
    app_id = await house.app()
    refused = await house.admin.post(path(app_id), mail() | fields)
    assert (refused.status, refused.json["field"]) == (422, field), refused.body
    assert "example.com" not in refused.body.decode()
    assert (await house.admin.get(path(app_id))).json == []


async def test_a_body_without_what_it_needs_names_it(house: House) -> None:
    app_id = await house.app()
    for body, field in (({"channel": "mail"}, "address"), ({"address": "a@b.example"}, "channel")):
        refused = await house.admin.post(path(app_id), body)
        assert (refused.status, refused.json["field"]) == (422, field)


@pytest.mark.parametrize("spelled", ["+65 9123 4567", "+6591234567", "%2B6591234567"])
async def test_an_address_is_found_in_any_spelling(house: House, spelled: str) -> None:
    app_id = await house.app()
    number = await add(house, app_id, channel="sms", address="91234567", defaultRegion="SG")
    await add(house, app_id, address="bo@example.com")
    query = spelled.replace("+", "%2B").replace(" ", "%20")
    assert (await house.admin.get(f"{path(app_id)}?address={query}")).json == [number]


@pytest.mark.parametrize("address", ["ana+news@example.com", "+6591234567"])
async def test_a_plus_that_became_a_blank_is_refused(house: House, address: str) -> None:
    app_id = await house.app()
    refused = await house.admin.get(f"{path(app_id)}?address={address}")
    assert (refused.status, refused.json["field"]) == (422, "address")
    assert "%2B" in refused.json["reason"]


async def test_a_domain_is_one_in_both_its_forms(house: House) -> None:
    app_id = await house.app()
    one = await add(house, app_id, address="ana@xn--bcher-kva.de")
    assert one["address"] == "ana@bücher.de"
    assert (await house.admin.get(f"{path(app_id)}?address=ana@B%C3%9CCHER.de")).json == [one]


async def test_who_unsubscribed_by_a_link_is_found_by_the_address_too(house: House) -> None:
    app_id = await house.app()
    link = unsubscribe_listing(listing_of(app_id, Channel.MAIL, "ana@example.com", "news"), at=house.clock.now())
    await house.store.suppressions.add([link])
    by_hand = await add(house, app_id)
    found = (await house.admin.get(f"{path(app_id)}?address=ana@EXAMPLE.com")).json
    assert {each["id"]: each["address"] for each in found} == {link.id: "", by_hand["id"]: "ana@example.com"}
    assert (await house.admin.get(f"{path(app_id)}?address=bo@example.com")).json == []
    assert (await house.admin.get(f"{path(app_id)}?address=%20")).status == 422


async def test_pages_lead_to_each_other(house: House) -> None:
    app_id = await house.app()
    ids = sorted([(await add(house, app_id, address=f"u{number}@example.com"))["id"] for number in range(5)])
    first = await house.admin.get(f"{path(app_id)}?limit=3")
    link = first.headers["link"].partition("<")[2].partition(">")[0]
    second = await house.admin.get(link)
    assert [[each["id"] for each in page.json] for page in (first, second)] == [ids[:3], ids[3:]]
    assert "link" not in second.headers


async def test_roles_see_and_do_what_is_theirs(house: House) -> None:
    app_id = await house.app()
    made = await add(house, app_id)
    viewer, operator = await over(house, app_id, "viewer"), await over(house, app_id, "operator")
    [shown] = (await viewer.get(path(app_id))).json
    assert (shown["id"], shown["address"], shown["redacted"]) == (made["id"], "…", True)
    searched = await viewer.get(f"{path(app_id)}?address=ana@example.com")
    assert (searched.status, searched.json["field"]) == (403, "address")
    assert (await viewer.post(path(app_id), mail())).status == 403
    assert (await viewer.post(path(app_id, "bulk"), [mail()])).status == 403
    assert (await viewer.delete(path(app_id, made["id"]))).status == 403
    assert (await operator.get(f"{path(app_id)}?address=ana@example.com")).json == [made]
    assert (await operator.delete(path(app_id, made["id"]))).status == 204
    assert (await operator.post(path(app_id), mail())).status == 201


async def test_another_apps_suppressions_are_not_there(house: House) -> None:
    mine, theirs = await house.app(), await house.app()
    made = await add(house, theirs)
    service = await over(house, mine, "admin")
    assert (await service.delete(path(mine, made["id"]))).status == 404
    assert (await service.get(f"{path(mine)}?address=ana@example.com")).json == []
    for reply in (
        await service.get(path(theirs)),
        await service.post(path(theirs), mail()),
        await service.post(path(theirs, "bulk"), [mail()]),
        await service.delete(path(theirs, made["id"])),
    ):
        assert reply.status == 403
    assert (await house.admin.get(path(theirs))).json == [made]
    nowhere = "0190b5a2-0000-7000-8000-000000000000"
    assert (await house.admin.get(path(nowhere))).status == 404
    assert (await house.admin.post(path(nowhere), mail())).status == 404


async def test_many_have_an_answer_each_and_one_bad_item_does_not_spoil_them(house: House) -> None:
    app_id = await house.app()
    await add(house, app_id, address="there@example.com")
    items = [
        mail("new@example.com"),
        mail("there@example.com"),
        mail("nobody"),
        mail("new@EXAMPLE.com"),
        {"channel": "sms", "address": "+6591234567", "list": "news", "cause": "bounce"},
        {"address": "x"},
        5,
    ]
    for content_type, body in (
        ("application/json", json.dumps(items).encode()),
        (NDJSON, b"\n\n".join(json.dumps(item).encode() for item in items)),
    ):
        answer = await house.admin.send("POST", path(app_id, "bulk"), body, headers={"content_type": content_type})
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"].startswith(content_type)
        lines = content_type == NDJSON
        told = [json.loads(line) for line in answer.body.splitlines()] if lines else answer.json
        assert [each["index"] for each in told] == list(range(len(items)))
        made = 200 if lines else 201
        assert [each["status"] for each in told] == [made, 200, 422, 200, made, 422, 422]
        assert [each["error"] and each["error"]["field"] for each in told] == [
            None, None, "address", None, None, "channel", None,
        ]  # fmt: skip
        assert told[0]["id"] == told[3]["id"] == suppression_id(app_id, Channel.MAIL, "new@example.com")
    assert len((await house.admin.get(path(app_id))).json) == 3


async def test_ten_thousand_are_taken_and_no_more(house: House) -> None:
    app_id = await house.app()
    items = [mail(f"u{number}@example.com") for number in range(10_001)]
    refused = await house.admin.post(path(app_id, "bulk"), items)
    assert (refused.status, refused.json["value"]) == (422, "over 10,000")
    assert (await house.admin.post(path(app_id, "bulk"), [])).status == 422
    answer = await house.admin.post(path(app_id, "bulk"), items[:10_000])
    assert [each["status"] for each in answer.json] == [201] * 10_000


async def test_an_app_that_is_being_deleted_takes_none(house: House) -> None:
    app_id = await house.app()
    await house.store.apps.begin_removal(app_id)
    assert (await house.admin.post(path(app_id), mail())).status == 409
    assert (await house.admin.post(path(app_id, "bulk"), [mail()])).status == 409


async def test_a_deleted_app_leaves_none(house: House) -> None:
    app_id, other = await house.app(), await house.app()
    await house.admin.post(path(app_id, "bulk"), [mail(f"u{number}@example.com") for number in range(1_500)])
    kept = await add(house, other)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    assert await house.store.suppressions.page(app_id, limit=1) == []
    assert (await house.admin.get(path(other))).json == [kept]


async def test_the_audit_tells_the_act_and_no_address(house: House) -> None:
    app_id = await house.app()
    made = await add(house, app_id)
    await house.admin.delete(path(app_id, made["id"]))
    records = (await house.admin.get(f"/apps/{app_id}/audit")).json
    acts = {each["act"]: each for each in records if each["act"].startswith("suppression.")}
    assert {act: each["on"]["id"] for act, each in acts.items()} == {
        "suppression.create": made["id"],
        "suppression.delete": made["id"],
    }
    assert "ana@example.com" not in json.dumps(records)
