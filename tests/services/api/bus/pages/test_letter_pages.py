"""The pages of dead letters, replays and topics."""

import asyncio
from urllib.parse import urlencode

import pytest

from services.api.http.pages import routes as typed_module
from tests.services.api.bus.native.conftest import Delivered
from tests.services.api.bus.native.test_dead_letters import buried
from tests.services.api.bus.pages.conftest import ABOUT, People
from tests.services.api.bus.pages.looks import look, press

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_dead_letter_is_shown_and_delivered_again(delivered: Delivered, people: People) -> None:
    subscription = await buried(delivered, "dead", HOSTILE)
    listed = await look(people.viewer, "/bus/dead-letters", key="dead", **ABOUT)
    assert "Dead 1 events" in listed.words
    assert "not accepted in time" in listed.words
    assert listed.actions == []
    (link,) = {link for link in listed.links if "/bus/dead-letters/" in link}
    page = link.removeprefix("/ui").partition("?")[0]
    shown, hidden = await look(people.operator, page, **ABOUT), await look(people.viewer, page, **ABOUT)
    assert (HOSTILE in shown.words, shown.scripts) == (True, [])
    assert (HOSTILE in hidden.words, hidden.actions) == (False, [])
    assert (await press(people.viewer, f"{page}/retry", about=ABOUT)).status == 403
    retried = await press(people.operator, f"{page}/retry", {"reason": "mended"}, ABOUT)
    assert retried.reply.headers["location"].startswith("/ui/bus/deliveries/")
    await delivered.bus.sent(subscription, 1)
    assert "There are none" in (await look(people.operator, "/bus/dead-letters", key="dead", **ABOUT)).words


@pytest.mark.slow
async def test_all_of_a_subscription_are_delivered_again_or_one_is_given_up(
    delivered: Delivered, people: People
) -> None:
    subscription, _ = await asyncio.gather(buried(delivered, "all", "1"), buried(delivered, "given-up", "1"))
    ask = await look(people.operator, "/bus/dead-letters", key="all", **ABOUT)
    assert "This retries up to 500 deliveries of all at a time: 1 event in all" in ask.words
    moved = await press(people.operator, "/bus/dead-letters/retry", about=ABOUT | {"key": "all"})
    assert moved.reply.headers["location"].endswith("&key=all&said=retried-some&count=1")
    await delivered.bus.sent(subscription, 1)
    (letter,) = (await people.operator.get(delivered.about("dead-letters", "key=given-up"))).json
    nothing = await press(people.operator, "/bus/dead-letters/chosen/discard", about=ABOUT)
    assert (nothing.status, "Choose some of them first." in nothing.words) == (422, True)
    assert ("Retry selected choose some" in nothing.words, "Field:" in nothing.words) == (True, False)
    form = urlencode([("chosen", "gone"), ("chosen", letter["id"])]).encode()
    path = f"/ui/bus/dead-letters/chosen/discard?{urlencode(ABOUT)}"
    given_up = await people.operator.send("POST", path, form)
    assert given_up.headers["location"].endswith("said=letters-left&count=1")
    assert (await people.operator.get(delivered.about("dead-letters", "key=given-up"))).json == []


async def test_a_replay_is_begun_shown_and_cancelled(delivered: Delivered, people: People) -> None:
    await delivered.bus.subscribe("again", topics=("orders",))
    page = "/bus/subscriptions/again/replays"
    assert "There are no replays yet" in (await look(people.viewer, page, **ABOUT)).words
    typed = {"from": "2030-01-01T00:00", "to": "2020-01-01T00:00", "topics": "orders"}
    refused = await press(people.operator, page, typed, ABOUT)
    assert (refused.status, len(refused.wrong), refused.fields["from"]) == (422, 1, "2030-01-01T00:00")
    begun = await press(people.operator, page, typed | {"from": "2020-01-01T00:00", "to": ""}, ABOUT)
    assert begun.status == 303, begun.words
    (replay,) = (await people.operator.get(delivered.about("subscriptions/again/replays"))).json
    assert (replay["from"], replay["topics"]) == ("2020-01-01T00:00:00Z", ["orders"])
    shown = await look(people.operator, page, **ABOUT)
    assert "running" in shown.words
    assert (await press(people.operator, f"{page}/cancel", about=ABOUT)).status == 303
    assert "cancelled" in (await look(people.viewer, page, **ABOUT)).words


async def test_a_topic_is_shown_and_deleted(
    delivered: Delivered, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    me, page = people.stranger, "/bus/topics/page.topic"
    assert (await look(me, page)).status == 404
    assert (await me.put("/bus/topics/page.topic", {"description": HOSTILE})).status == 201
    listed = await look(people.viewer, "/bus/topics")
    assert (HOSTILE in listed.words, listed.scripts) == (True, [])
    others = await look(people.viewer, page)
    assert (others.status, others.actions) == (200, [])
    assert (await press(people.viewer, f"{page}/delete")).status == 403
    assert (await press(people.viewer, f"{page}/private")).status == 403
    assert (await press(me, f"{page}/private")).status == 303
    assert "its publisher alone" in (await look(me, page)).words
    assert (await press(me, f"{page}/open")).status == 303
    assert "every namespace" in (await look(me, page)).words
    with monkeypatch.context() as patched:
        patched.setattr(typed_module, "MANY_THINGS", -1)
        assert (await press(me, f"{page}/delete")).status == 422
    assert (await press(me, f"{page}/delete")).status == 303
    assert (await me.get("/bus/topics/page.topic")).status == 404
