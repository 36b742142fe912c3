"""The pages of bulk actions: figures before anything begins, how far one is, and its end."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from services.api.console.pages import bulk_actions
from services.api.console.pages.bulk_actions import tell_filter
from services.wiring.rooms import Rooms
from services.worker.console.bulk import BulkRunner
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.console.rules.bulk_actions import RunBulkAction
from tests.services.api.clock.pages.seen import Seen, fill, look, person
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {"every": 3600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}}
PAUSE = {"act": "schedule.pause", "prefix": "order."}


def typed(page: Seen, **fields: str) -> dict[str, str]:
    """The form as the page has it, with these fields typed into it."""
    kept = {name: values[-1] for name, values in page.fields.items() if name.startswith("filter.")}
    return kept | {name: page.fields[name][-1] for name in ("act", "key", "matched")} | fields


async def scheduled(house: House, count: int) -> Any:
    client, _ = await person(house)
    for n in range(count):
        assert (await client.post("/schedules", SCHEDULE | {"key": f"order.{n}"})).status == 201
    return client


async def test_acts_are_offered_and_none_is_told_as_such(house: House) -> None:
    client, _ = await person(house)
    assert "Create a bulk action" in (await look(client, "/bulk-actions")).text
    page = await look(client, "/bulk-actions/new")
    assert {f"/ui/bulk-actions/new?act={act}" for act in ("schedule.pause", "job.stop")} <= set(page.links)
    jobs = await look(client, "/bulk-actions/new", act="job.stop")
    assert "Choose at least one" in jobs.text
    refused = await look(client, "/bulk-actions/new", act="job.stop", status="running")
    assert "needs the role operator everywhere" in refused.text


async def test_one_begins_after_its_figures_were_seen_and_is_followed_to_its_end(house: House) -> None:
    client = await scheduled(house, 3)
    page = await look(client, "/bulk-actions/new", **PAUSE)
    assert "This pauses 3 schedules. Nothing fires" in page.text
    assert "Reason (required, kept in the audit)" in page.text
    raw = await client.get("/ui/bulk-actions/new?act=schedule.pause&prefix=order.")
    assert b'name="reason" maxlength="1000"' in raw.body
    assert (await client.get("/bulk-actions")).json == []
    form = typed(page, reason="<marquee>a drill</marquee>")
    begun, again = [await fill(client, "/bulk-actions/new", form) for _ in range(2)]
    assert begun.headers["location"] == again.headers["location"]  # twice sent is once meant
    [action] = (await client.get("/bulk-actions")).json
    assert begun.headers["location"] == f"/ui/bulk-actions/{action['id']}?said=begun"
    await BulkRunner(Rooms(house.servers).console.bulk).run(RunBulkAction(action_id=action["id"]))
    shown = await look(client, f"/bulk-actions/{action['id']}")
    assert "Done 3 100 %" in shown.text
    assert "with keys that begin with “order.”" in shown.text
    assert "<marquee>a drill" in shown.text
    assert shown.is_clean
    assert not [act for act in shown.actions if act.endswith("/cancel")]
    assert {each["state"] for each in (await client.get("/schedules")).json} == {"paused"}
    assert "3 of 3" in (await look(client, "/bulk-actions")).text


async def test_a_filter_calls_states_as_the_pages_of_jobs_do() -> None:
    told = [tell_filter({"status": status, "by": "ana"}, {}) for status in ("scheduled", "circuitbreak", "paused")]
    assert told == [f"that are {word}, created by ana" for word in ("waiting", "tripped", "paused")]
    assert tell_filter({"state": "paused"}, {}) == "that are paused"


async def test_where_more_match_than_was_seen_nothing_begins_and_the_page_tells_the_new_figure(house: House) -> None:
    client = await scheduled(house, 2)
    form = typed(await look(client, "/bulk-actions/new", **PAUSE), reason="typed")
    assert (await fill(client, "/bulk-actions/new", form | {"matched": "9" * 5_000})).status == 409
    assert (await client.post("/schedules", SCHEDULE | {"key": "order.new"})).status == 201
    page = Seen(await fill(client, "/bulk-actions/new", form))
    assert page.status == 409
    assert "3 match, which is more than 2" in page.text
    assert (page.fields["matched"], page.fields["reason"]) == (["3"], ["typed"])
    without = Seen(await fill(client, "/bulk-actions/new", typed(page, reason=" ")))
    assert (without.status, "a reason is needed" in without.wrong["reason"]) == (422, True)


async def test_what_is_much_is_named_before(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_actions, "MANY_THINGS", 1)
    client = await scheduled(house, 2)
    page = await look(client, "/bulk-actions/new", **PAUSE)
    assert "type order. to confirm" in page.text
    bare, forged = {"reason": "r"}, {"reason": "r", "name": "other", "named": "other"}
    refused, forgery = [Seen(await fill(client, "/bulk-actions/new", typed(page, **each))) for each in (bare, forged)]
    assert "to confirm" in refused.wrong["named"]
    assert "to confirm" in forgery.wrong["named"]
    assert (await client.get("/bulk-actions")).json == []
    begun = await fill(client, "/bulk-actions/new", typed(refused, reason="r", named="order."))
    assert begun.status == 303


async def test_one_is_cancelled(house: House) -> None:
    client, namespace = await person(house)
    letter = DeadLetter(
        id="0" * 32, death="0" * 32,
        namespace=namespace, key="k", schedule_id=schedule_id(namespace, "k"), generation="g",
        due=datetime(2026, 1, 1, tzinfo=UTC), died_at=datetime(2026, 1, 1, tzinfo=UTC), attempts=1, error="HTTP 410",
    )  # fmt: skip
    await house.store.dead_letters.add([letter])
    page = await look(client, "/bulk-actions/new", act="dead-letter.discard", key="k", error="HTTP 410")
    assert "This discards 1 dead letter. Nothing is called." in page.text
    await house.store.dead_letters.add([replace(letter, id="1" * 32)])  # they go on dying while somebody reads
    begun = await fill(client, "/bulk-actions/new", typed(page, reason="r"))
    path = begun.headers["location"].partition("?")[0].removeprefix("/ui")
    assert f"/ui{path}/cancel" in (await look(client, path)).actions
    await fill(client, f"{path}/cancel", {"reason": "a mistake"})
    assert (await client.get(path)).json["state"] == "cancelled"
    again = Seen(await fill(client, f"{path}/cancel"))
    assert (again.status, "this action is over" in again.text.lower()) == (409, True)
    assert len((await client.get("/dead-letters")).json) == 2
