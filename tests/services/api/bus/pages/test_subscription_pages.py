"""The pages of subscriptions: one look tells what is wrong, and what is typed is done or refused beside its field."""

import msgspec
import pytest

from services.api.http.pages import routes as typed_module
from tests.services.api.bus.native.conftest import Delivered
from tests.services.api.bus.pages.conftest import ABOUT, People
from tests.services.api.bus.pages.looks import look, press
from tests.services.worker.bus.delivering import NAMESPACE

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HOSTILE = "<script>alert(1)</script>"


async def test_one_look_tells_what_is_in_trouble(delivered: Delivered, people: People) -> None:
    bus = delivered.bus
    well, ill = await bus.subscribe("a-well", topics=("orders",)), await bus.subscribe("b-ill")
    await bus.subscribe("c-paused", headers={"x-key": "hush"}, uuid="me")
    await bus.subscribing.pause(NAMESPACE, "c-paused", reason=HOSTILE)
    await bus.receiver.answer("/b-ill", 503, retry_after="60")
    await bus.publish(well, 1)
    await bus.publish(ill, 1, 2)
    await bus.sent(well, 1)
    await bus.arrived(1, "/b-ill")
    await bus.rested(ill)

    shown = await look(people.viewer, "/bus", **ABOUT)
    assert shown.status == 200
    assert "1 of 3 subscriptions has problems. b-ill is failing: the last call failed" in shown.words
    rows = [shown.words.index(f"{key} ", shown.words.index("Lost")) for key in ("b-ill", "c-paused", "a-well")]
    assert rows == sorted(rows)
    assert HOSTILE in shown.words
    assert shown.scripts == []
    empty = await look(people.stranger, "/bus")
    assert "You have no subscriptions" in empty.words
    assert "/ui/bus/new-subscription" in empty.links
    refused = await look(people.stranger, "/bus", **ABOUT)
    assert (refused.status, "needs the role viewer" in refused.words) == (403, True)

    page = "/bus/subscriptions/b-ill"
    whole, hidden = await look(people.operator, page, **ABOUT), await look(people.viewer, page, **ABOUT)
    for seen in (whole, hidden):
        assert "The last call failed" in seen.words
        assert "503" in seen.words
        assert "Accepted calls 0 of the last 1 call" in seen.words
    assert f"{bus.receiver.url}/b-ill" in whole.words
    assert "/b-ill" not in hidden.words
    assert any("/pause" in action for action in whole.actions)
    assert [action for action in hidden.actions if "sign-out" not in action] == []
    headers = await look(people.operator, "/bus/subscriptions/c-paused", **ABOUT)
    assert "x-key: ••••" in headers.words
    assert "no call yet" in headers.words
    assert "hush" not in headers.reply.body.decode()


async def test_a_delivery_shows_its_events_to_operators_alone(delivered: Delivered, people: People) -> None:
    bus = delivered.bus
    subscription = await bus.subscribe("open")
    await bus.receiver.answer("/open", 503, retry_after="60")
    await bus.publish(subscription, {"text": HOSTILE})
    await bus.arrived(1, "/open")
    await bus.rested(subscription)
    (delivery,) = await bus.deliveries(subscription)
    listed = await look(people.viewer, "/bus/subscriptions/open/deliveries", status="open", **ABOUT)
    assert any(f"/ui/bus/deliveries/{delivery.id}" in link for link in listed.links)
    none = await look(people.viewer, "/bus/subscriptions/open/deliveries", status="dead", **ABOUT)
    assert "No delivery is dead." in none.words
    one = f"/bus/deliveries/{delivery.id}"
    shown, hidden = await look(people.operator, one, **ABOUT), await look(people.viewer, one, **ABOUT)
    assert (HOSTILE in shown.words, shown.scripts) == (True, [])
    assert HOSTILE not in hidden.words
    assert "Events are shown to operators" in hidden.words
    assert 'hx-trigger="every 2s"' in shown.reply.body.decode()
    assert (await look(people.operator, "/bus/deliveries/none", **ABOUT)).status == 404


async def test_a_delivery_shows_numbers_as_they_were_published(delivered: Delivered, people: People) -> None:
    bus = delivered.bus
    subscription = await bus.subscribe("exact")
    await bus.receiver.answer("/exact", 503, retry_after="60")
    await bus.publish(subscription, msgspec.Raw(b'{"data": {"n": 1.10, "m": 1E400}}'))
    await bus.arrived(1, "/exact")
    await bus.rested(subscription)
    (delivery,) = await bus.deliveries(subscription)
    shown = await look(people.operator, f"/bus/deliveries/{delivery.id}", **ABOUT)
    assert '"n": 1.10, "m": 1E400' in shown.words
    whole = await delivered.operator.get(delivered.about(f"deliveries/{delivery.id}", "events=true"))
    assert b'{"n": 1.10, "m": 1E400}' in whole.body


async def test_a_settled_delivery_says_why_its_events_are_gone(delivered: Delivered, people: People) -> None:
    subscription = await delivered.bus.subscribe("settled")
    await delivered.bus.publish(subscription, 1)
    await delivered.bus.sent(subscription, 1)
    (delivery,) = await delivered.bus.deliveries(subscription)
    shown = await look(people.operator, f"/bus/deliveries/{delivery.id}", **ABOUT)
    assert (shown.status, "They cannot be shown: " in shown.words) == (200, True)
    assert "hx-trigger" not in shown.reply.body.decode()


async def test_it_is_paused_resumed_and_deleted_by_forms(
    delivered: Delivered, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    await delivered.bus.subscribe("moved")
    page, api = "/bus/subscriptions/moved", delivered.about("subscriptions/moved")
    paused = await press(people.operator, f"{page}/pause", {"reason": "a deploy"}, ABOUT)
    assert paused.reply.headers["location"] == "/ui/bus/subscriptions/moved?namespace=token%3An&said=paused"
    stands = (await people.operator.get(api)).json
    assert (stands["state"], stands["reason"]) == ("paused", "a deploy")
    assert "Paused: a deploy." in (await look(people.operator, page, said="paused", **ABOUT)).words
    assert (await press(people.viewer, f"{page}/resume", about=ABOUT)).status == 403
    assert (await press(people.operator, f"{page}/resume", about=ABOUT)).status == 303
    assert (await people.operator.get(api)).json["state"] == "active"
    with monkeypatch.context() as few:
        few.setattr(typed_module, "MANY_THINGS", -1)
        wrong = await press(people.operator, f"{page}/delete", {"named": "other"}, ABOUT)
        assert (wrong.status, "Type moved to confirm" in wrong.words) == (422, True)
    assert (await people.operator.get(api)).status == 200
    monkeypatch.setattr(typed_module, "MANY_THINGS", -1)
    assert (await press(people.operator, f"{page}/delete", about=ABOUT)).status == 422
    assert (await press(people.operator, f"{page}/delete", {"named": "moved"}, ABOUT)).status == 303
    assert (await people.operator.get(api)).status == 404


async def test_a_test_event_tells_what_the_receiver_said(delivered: Delivered, people: People) -> None:
    await delivered.bus.subscribe("tried")
    tried = await press(people.operator, "/bus/subscriptions/tried/test", about=ABOUT)
    assert (tried.status, "No answer: " in tried.words) == (200, True)
    assert "Back to tried" in tried.words


async def test_one_is_made_and_changed_and_its_secrets_are_shown_once(delivered: Delivered, people: People) -> None:
    me = people.stranger
    callback, topics = "https://app.example.com/events", "page_orders page.users"
    typed = {"subscription_key": "orders", "callback": callback, "topics": topics}
    more = {"conditions": "/total gt 10\n/total nearly 5", "headers": "X-Key: hush", "max_events": "7"}
    refused = await press(me, "/bus/new-subscription", typed | more)
    assert refused.status == 422
    assert [word for word in refused.wrong if "nearly" in word]
    assert (refused.fields["topics"], refused.fields["max_events"]) == ("page_orders page.users", "7")
    assert refused.fields["headers"].strip() == "X-Key: hush"
    keys = [{"subscription_key": key} for key in ("", "a/b")]
    for wrong in (*keys, {"callback": "ftp://x"}, {"max_events": "many"}, {"topics": "No"}):
        assert (await press(me, "/bus/new-subscription", typed | wrong)).wrong != [], wrong
    assert (await me.get("/bus/subscriptions")).json == []

    made = await press(me, "/bus/new-subscription", typed | more | {"conditions": "/total gt 10", "max_attempts": "1"})
    assert made.status == 200, made.words
    assert "whsec_" in made.words
    taken = await press(me, "/bus/new-subscription", typed)
    assert taken.wrong == ["there is a subscription orders already"]

    assert "after 1 call that failed" in (await look(me, "/bus/subscriptions/orders")).words
    edit = await look(me, "/bus/subscriptions/orders/edit")
    assert "hush" not in edit.reply.body.decode()
    assert edit.fields["conditions"].strip() == "/total gt 10"
    fields = {name: value for name, value in edit.fields.items() if name not in {"no_headers", "reason"}}
    saved = await press(me, "/bus/subscriptions/orders/edit", fields | {"topics": "page_orders", "ordered": "on"})
    assert saved.reply.headers["location"] == "/ui/bus/subscriptions/orders?said=saved"
    stands = (await me.get("/bus/subscriptions/orders")).json
    assert (stands["topics"], stands["ordered"], stands["headers"]) == (["page_orders"], True, {"X-Key": "hush"})
    assert (stands["max_events"], stands["filter"]["data"][0]["value"]) == (7, 10)
    again = await press(me, "/bus/subscriptions/orders/secrets", {"keep_hours": "1"})
    assert (again.words.count("whsec_"), "also signs for 1 h" in again.words) == (1, True)
    beyond = await press(me, "/bus/subscriptions/orders/secrets", {"keep_hours": "999"})
    assert (beyond.status, beyond.fields["keep_hours"], len(beyond.wrong)) == (422, "999", 1)
    assert "whsec_" not in (await look(me, "/bus/subscriptions/orders")).words
