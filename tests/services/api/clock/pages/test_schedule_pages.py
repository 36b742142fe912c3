"""The pages of schedules: what fires next, a search, one schedule, and its form."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from services.api.clock.pages.schedules import picture_due
from shared.accounts.removal import make_sign_in_link
from shared.clock.rules.schedules import schedule_id
from tests.services.api.client import ADMIN, Client
from tests.services.api.clock.pages.seen import Seen, fill, look, person
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import Browser, text_of

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HOSTILE = "<marquee>x</marquee>"
CALLBACK: dict[str, Any] = {
    "type": "http",
    "data": {"url": "https://example.com/secret-path", "payload": {"text": HOSTILE}, "headers": {"x-a": HOSTILE}},
}
TYPED = {
    "schedule_key": "order.17",
    "when": "cron",
    "cron": "0 9 * * 1-5",
    "timezone": "Europe/Paris",
    "callback.type": "rabbitmq",
    "callback.data.queue": "orders",
    "callback.data.payload": '{"order": 17}',
    "misfire": "within",
    "misfire.fire_within_seconds": "600",
    "retry.attempts": "3",
    "labels": "team:crm",
}


async def scheduled(client: Client, key: str, **fields: Any) -> None:
    body = {"every": 3_600, "callback": CALLBACK, "labels": {"team": HOSTILE}} | fields
    assert (await client.post("/schedules", {"key": key} | body)).status == 201


def target(reply: Any) -> str:
    assert reply.status == 303, reply.body
    return str(reply.headers["location"]).removeprefix("/ui")


@pytest.mark.parametrize("key", ["due", "bulk", "preview", "a%2Fpause", "%2E%2E", "x%00", "%FF", "%20"])
async def test_no_key_of_a_page_reaches_another_route(house: House, key: str) -> None:
    client, _ = await person(house)
    for page in (
        *(f"/schedules/{key}", f"/schedules/{key}/edit", f"/dead-letters/{key}", "/dead-letters/errors"),
        *(f"/bus/subscriptions/{key}", f"/bus/topics/{key}", f"/bus/deliveries/{key}", f"/bus/dead-letters/{key}"),
        *(f"/bulk-actions/{key}", f"/jobs/{key}/{key}", f"/groups/{key}/{key}", f"/messages/jobs/{key}/{key}"),
        *(f"/messages/{key}/credentials/{key}", f"/messages/{key}/messages/{key}", f"/templates/{key}/edit/{key}"),
        *(f"/apps/{key}", f"/access/users/{key}"),
    ):
        assert 400 <= (await client.get(f"/ui{page}")).status < 500, page


async def test_a_schedule_is_shown_and_deleted_whatever_its_key(house: House) -> None:
    client, namespace = await person(house)
    await scheduled(client, "odd")
    store = house.store.schedules._schedules
    document = await store.find_one({"namespace": namespace, "key": "odd"})
    assert document is not None
    await store.insert_one(document | {"_id": schedule_id(namespace, "due"), "key": "due"})  # a release before had it
    page = await look(client, "/schedules/due")
    assert (page.status, "/ui/schedules/due/delete" in " ".join(page.actions)) == (200, True)
    assert target(await fill(client, "/schedules/due/delete")).startswith("/schedules?")
    assert (await look(client, "/schedules/due")).status == 404


async def test_the_picture_of_a_day_has_a_column_for_each_hour() -> None:
    fires = ("12:29:59", "12:30:00", "13:00:00", "13:59:59")
    instants = [{"at": f"2026-11-27T{at}.5Z"} for at in fires] + [{"at": "2026-11-28T12:30:00Z"}]
    shown = picture_due({"as_of": "2026-11-27T12:30:00Z", "until": "2026-11-28T12:30:00Z", "instants": instants})
    assert [column.size for column in shown["columns"]] == [2, 2, *[0] * 22, 1]
    assert [column.label for column in shown["columns"][:2]] == ["from 12:00 UTC", "from 13:00 UTC"]
    assert (shown["begin"].hour, shown["end"].hour, shown["is_whole"]) == (12, 13, True)


async def test_a_picture_that_ends_early_has_shorter_columns() -> None:
    instants = [{"at": f"2026-11-27T12:30:{second:02}Z"} for second in (5, 5, 9, 20)]
    shown = picture_due({"as_of": "2026-11-27T12:30:00Z", "until": "2026-11-27T12:30:20Z", "instants": instants})
    assert {column.label: column.size for column in shown["columns"] if column.size} == {
        "from 12:30:05 UTC": 2, "from 12:30:09 UTC": 1, "from 12:30:20 UTC": 1,
    }  # fmt: skip
    assert (shown["step"], shown["is_whole"]) == (timedelta(seconds=1), False)


async def test_a_picture_of_overdue_instants_alone_has_one_column() -> None:
    instants = [{"at": f"2026-11-27T12:29:{second:02}Z"} for second in range(50)]
    shown = picture_due({"as_of": "2026-11-27T12:30:00Z", "until": "2026-11-27T12:29:49Z", "instants": instants})
    assert [column.size for column in shown["columns"]] == [50]
    assert (shown["begin"].second, shown["end"].second) == (0, 1)


async def test_whoever_has_a_role_everywhere_sees_all_namespaces_and_a_viewer_no_payload(house: House) -> None:
    owner, namespace = await person(house)
    viewer, _ = await person(house, roles={"*": "viewer"})
    await scheduled(owner, "theirs", schedules=[(datetime.now(UTC) + timedelta(seconds=40)).isoformat()], every=None)
    assert "theirs" in (await look(viewer, "/schedules")).text
    page = await look(viewer, "/schedules/theirs", namespace=namespace)
    assert page.status == 200
    assert "https://example.com/…" in page.text
    assert "secret-path" not in page.text
    assert HOSTILE not in page.text.replace(f"team:{HOSTILE}", "")
    assert not [action for action in page.actions if "/schedules/" in action]
    stranger, _ = await person(house)
    assert (await look(stranger, "/schedules/theirs", namespace=namespace)).status == 403


async def test_whoever_has_roles_over_many_namespaces_types_the_one_they_mean(house: House) -> None:
    client, _ = await person(house, roles={f"namespace/token:n{n}": "viewer" for n in range(25)})
    page = await look(client, "/schedules", namespace="token:n24")
    assert (page.status, "datalist" in page.tags) == (200, True)
    assert page.fields["namespace"] == ["token:n24"]
    assert "select" in (await look((await person(house, roles={"namespace/token:n1": "viewer"}))[0], "/schedules")).tags


async def test_a_schedule_is_paused_resumed_fired_and_deleted(house: House) -> None:
    owner, namespace = await person(house)
    operator, _ = await person(house, roles={f"namespace/{namespace}": "operator"})
    await scheduled(owner, "k", cron="30 3 * * *", timezone="Asia/Tokyo", every=None)
    page = await look(operator, "/schedules/k", namespace=namespace)
    assert "Every day at 03:30, Asia/Tokyo time" in page.text
    assert "03:30 there" in page.text
    assert page.is_clean
    assert "/ui/schedules/k/edit" not in page.links  # the owner alone
    whose = namespace.removeprefix("user:")
    assert f"this belongs to {whose}. Only they can edit it." in page.text
    listed = await look(operator, "/schedules", namespace=namespace)
    assert f"these belong to {whose}. Only they can create" in listed.text
    for act, state in (("pause", "paused"), ("resume", "active")):
        done = await fill(operator, f"/schedules/k/{act}", {"reason": "a drill"}, namespace=namespace)
        assert "said=" in target(done)
        assert (await owner.get("/schedules/k")).json["state"] == state
    [key] = page.fields["key"]
    for _ in range(2):
        target(await fill(operator, "/schedules/k/fire", {"key": key}, namespace=namespace))
    due = (await owner.get("/schedules/due")).json["instants"]
    assert [each["kind"] for each in due if each["kind"] == "asked"] == ["asked"]
    back = target(await fill(operator, "/schedules/k/delete", namespace=namespace))
    assert "Deleted." in (await look(operator, back)).text
    assert (await owner.get("/schedules/k")).status == 404
    record = (await house.admin.get("/audit?act=schedule.pause")).json[0]
    assert record["reason"] == "a drill"


async def test_a_schedule_is_made_after_a_look_at_its_instants_and_changed(house: House) -> None:
    client, namespace = await person(house)
    assert (await look(client, "/new-schedule")).status == 200
    preview = Seen(await fill(client, "/new-schedule/preview", TYPED))
    assert (preview.status, "It would fire" in preview.text) == (200, True)
    assert preview.fields["cron"] == [TYPED["cron"]]
    assert (await client.get("/schedules/order.17")).status == 404
    made = await fill(client, "/new-schedule", TYPED)
    assert target(made).startswith(f"/schedules/order.17?namespace={quote(namespace, safe='')}")
    schedule = (await client.get("/schedules/order.17")).json
    assert (schedule["cron"], schedule["misfire"]) == (TYPED["cron"], {"fire_within_seconds": 600})
    assert (schedule["retry"]["attempts"], schedule["labels"]) == (3, {"team": "crm"})
    assert schedule["callback"]["data"] == {"queue": "orders", "payload": {"order": 17}}
    assert "A message to the queue orders" in (await look(client, "/schedules/order.17")).text
    listed = await look(client, "/schedules", namespace=namespace, label=TYPED["labels"])
    assert "team:crm" in listed.text
    assert "team:crm" not in (await look(client, "/schedules", namespace=namespace, label="team:shop")).text
    form = await look(client, "/schedules/order.17/edit")
    told = {name: values[-1] for name, values in form.fields.items() if name and name != "reason"}
    target(await fill(client, "/schedules/order.17/edit", told))
    again = (await client.get("/schedules/order.17")).json
    assert {**again, "updated_at": ""} == {**schedule, "updated_at": ""}
    target(await fill(client, "/schedules/order.17/edit", told | {"when": "every", "every": "90"}))
    assert (await client.get("/schedules/order.17")).json["every"] == 90


async def test_a_browser_by_the_link_and_the_command_line_are_one_person(house: House) -> None:
    """The command line of `carillon up` names the first admin, for whom `carillon dashboard` makes its link."""
    cli, browser = house.admin, Browser(house.admin.app)
    key = await make_sign_in_link(house.store, ADMIN, house.clock.now())
    assert (await browser.get(f"/welcome?key={key}")).status == 303
    assert (await cli.post("/schedules", {"key": "by-cli", "every": 3_600, "callback": CALLBACK})).status == 201
    form = Seen(await browser.get("/schedules/by-cli/edit"))
    told = {name: values[-1] for name, values in form.fields.items() if name}
    assert (await browser.post("/schedules/by-cli/edit", told | {"every": "90"})).status == 303
    assert (await cli.get("/schedules/by-cli")).json["every"] == 90
    assert (await browser.post("/new-schedule", TYPED | {"schedule_key": "by-page"})).status == 303
    changed = {"every": 60, "callback": CALLBACK}
    assert (await cli.put("/schedules/by-page", changed)).status == 200
    assert "You are signed in as" not in text_of(await browser.get("/schedules"))
    for key in ("by-cli", "by-page"):
        await cli.delete(f"/schedules/{key}")


@pytest.mark.parametrize("payload", ["[1]", "123", "hello", {"a": [1, "2"]}, 7, None])
async def test_a_payload_keeps_its_type_when_a_schedule_is_saved_as_it_stands(house: House, payload: Any) -> None:
    client, _ = await person(house)
    await scheduled(client, "k", callback={"type": "http", "data": CALLBACK["data"] | {"payload": payload}})
    form = await look(client, "/schedules/k/edit")
    told = {name: values[-1] for name, values in form.fields.items() if name and name != "reason"}
    target(await fill(client, "/schedules/k/edit", told))
    assert (await client.get("/schedules/k")).json["callback"]["data"]["payload"] == payload


async def test_numbers_keep_their_digits_when_a_schedule_is_saved_as_it_stands(house: House) -> None:
    client, _ = await person(house)
    numbers = {"window_seconds": 1234.5678, "misfire": {"fire_within_seconds": 12_345_678.0}}
    numbers |= {"retry": {"attempts": 3, "first_delay_seconds": 0.1, "factor": 1.0625, "cap_seconds": 604_799.5}}
    await scheduled(client, "digits", **numbers)
    before = (await client.get("/schedules/digits")).json
    form = await look(client, "/schedules/digits/edit")
    told = {name: values[-1] for name, values in form.fields.items() if name and name != "reason"}
    target(await fill(client, "/schedules/digits/edit", told))
    after = (await client.get("/schedules/digits")).json
    assert {name: after[name] for name in numbers} == {name: before[name] for name in numbers}


@pytest.mark.parametrize(
    ("typed", "field", "reason"),
    [
        ({"cron": "0 9 * *"}, "cron", "five fields"),
        ({"schedule_key": "a/b"}, "key", ""),
        ({"callback.data.payload": "{order"}, "callback.data.payload", "not JSON"),
        ({"callback.data.queue": "push.batch"}, "callback.data.queue", "reserved"),
        ({"labels": HOSTILE}, "labels", "each line"),
        ({"retry.attempts": HOSTILE}, "retry.attempts", "number"),
        ({"when": "schedules", "schedules": "soon"}, "schedules", "schedules[0]"),
    ],
)
async def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    house: House, typed: dict[str, str], field: str, reason: str
) -> None:
    client, _ = await person(house)
    page = Seen(await fill(client, "/new-schedule", TYPED | typed))
    assert page.status == 422
    assert reason in page.wrong[field]
    assert page.is_clean
    for name, value in typed.items():
        assert page.fields[name] == [value]
    assert (await client.get("/schedules")).json == []


async def test_a_schedule_may_have_the_key_new(house: House) -> None:
    client, namespace = await person(house)
    await scheduled(client, "new")
    assert "Every 1 h" in (await look(client, "/schedules/new", namespace=namespace)).text


EXACT = (
    r'{"b": 1.10, "a": 0.1234567890123456789, "a": [1E400, 1e309, -0, 12345678901234567890123], "e": "\u00e9\/"}',
    "1E400",
    r'"\u0000[1]"',
    "[1.0,\r\n2.50]",
    "null",
    "[" * 60 + "]" * 60,
)


@pytest.mark.parametrize("payload", EXACT)
async def test_a_payload_is_shown_and_saved_as_the_text_that_it_is(house: House, payload: str) -> None:
    client, _ = await person(house)
    url = '{"type":"http","data":{"url":"https://example.com/","payload":%s}}'
    body = '{"key":"exact","every":3600,"callback":' + url % payload + "}"
    assert (await client.post("/schedules", body.encode())).status == 201
    stored = (await client.get("/schedules/exact")).body
    assert payload.encode() in stored

    shown = msgspec.json.format(payload.encode(), indent=2).decode()
    for path in ("/schedules", "/schedules/exact", "/schedules/exact/edit"):
        assert (await look(client, path)).status == 200, path
    page = await look(client, "/schedules/exact/edit")
    assert page.fields["callback.data.payload"] == [shown]
    typed = {name: values[-1] for name, values in page.fields.items()} | {"when": "every", "callback.type": "http"}
    typed["callback.data.payload"] = shown.replace("\n", "\r\n")
    wrong = await fill(client, "/schedules/exact/edit", typed | {"every": "1,5"})
    assert (wrong.status, Seen(wrong).fields["callback.data.payload"]) == (422, [shown])
    target(await fill(client, "/schedules/exact/edit", typed | {"labels": "new:label"}))
    changed = (await client.get("/schedules/exact")).body
    assert payload.encode() in changed
    assert b"label" in changed

    target(await fill(client, "/schedules/exact/edit", typed | {"callback.data.payload": "[2.50]"}))
    assert b'"payload":[2.50]' in (await client.get("/schedules/exact")).body
