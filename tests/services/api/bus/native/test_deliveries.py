"""`…/{key}/deliveries` and `/bus/deliveries/{id}`: what was sent, what came of it, and its events."""

from datetime import timedelta

import pytest

from shared.core.instants import format_instant
from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered
from tests.services.api.bus.native.test_dead_letters import buried
from tests.services.api.client import Client

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def sequences(client: Client, path: str) -> list[int]:
    """Those of all pages from this path on."""
    found = list[int]()
    while path:
        page = await client.get(path)
        assert page.status == 200, page.body
        found += [each["sequence"] for each in page.json]
        path = page.headers.get("link", "").partition(">")[0].removeprefix("<")
    return found


async def test_pages_lead_through_what_was_chosen(delivered: Delivered) -> None:
    bus, viewer = delivered.bus, delivered.viewer
    subscription = await bus.subscribe("p", max_events=1, in_flight=1)
    await bus.publish(subscription, *range(5))
    await bus.sent(subscription, 5)
    await bus.receiver.answer("/p", 503, retry_after="60")
    await bus.publish(subscription, 6)
    await bus.arrived(6, "/p")
    await bus.rested(subscription)

    def chosen(*query: str) -> str:
        return delivered.about("subscriptions/p/deliveries", *query)

    assert await sequences(viewer, chosen("limit=2")) == [6, 5, 4, 3, 2, 1]
    assert await sequences(viewer, chosen("since=2", "limit=3")) == [6, 5, 4, 3]
    assert await sequences(viewer, chosen("status=delivered", "since=3", "limit=1")) == [5, 4]
    assert await sequences(viewer, chosen("status=open")) == [6]
    last = (await viewer.get(chosen("limit=1"))).json[0]
    assert await sequences(viewer, chosen(f"since={last['cut_at']}")) == [6]
    later = format_instant(await bus.time.now() + timedelta(hours=1))
    assert await sequences(viewer, chosen(f"since={later}")) == []
    for query, field in (
        *(("status=gone", "status"), ("since=soon", "since"), (f"since={2**63}", "since"), ("since=-1", "since")),
        *(("cursor=eyJzZXF1ZW5jZSI6MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0fQ", "cursor"), ("limit=0", "limit")),
    ):
        refused = await viewer.get(chosen(query))
        assert is_refused(refused, 422)
        assert refused.json["field"] == field
    assert (await viewer.get(chosen("since=soon"))).json["reason"].startswith("since is a sequence or a timestamp; ")


async def test_one_delivery_tells_its_attempts_and_its_events_while_it_is_open(delivered: Delivered) -> None:
    bus = delivered.bus
    subscription = await bus.subscribe("o")
    await bus.receiver.answer("/o", 503, retry_after="1")
    await bus.publish(subscription, {"n": 1}, {"n": 2})
    await bus.arrived(1, "/o")
    await bus.rested(subscription)
    (first,) = bus.receiver.arrivals("/o")
    path, whole = delivered.about(f"deliveries/{first.id}"), delivered.about(f"deliveries/{first.id}", "events=true")

    shown = (await delivered.operator.get(path)).json
    assert (shown["id"], shown["key"], shown["sequence"], shown["status"]) == (first.id, "o", 1, "open")
    assert (shown["count"], shown["settled_at"], shown["events"]) == (2, None, [])
    assert {(each["status"], each["excerpt"], each["error"]) for each in shown["attempts"]} == {(503, "ok", "")}
    assert (await delivered.operator.get(whole)).json["events"] == [{"n": 1}, {"n": 2}]
    hidden = (await delivered.viewer.get(whole)).json
    assert (hidden["redacted"], hidden["events"], hidden["attempts"][0]["excerpt"]) == (True, [], "…")

    await bus.receiver.answer("/o", 200)
    await bus.sent(subscription, 2)
    taken = (await delivered.operator.get(path)).json
    *failed, last = taken["attempts"]
    assert (taken["status"], {each["status"] for each in failed}, last["status"]) == ("delivered", {503}, 200)
    assert taken["settled_at"] == last["at"]
    assert is_refused(await delivered.operator.get(whole), 410)
    assert is_refused(await delivered.operator.get(delivered.about(f"deliveries/{first.id}", "events=1")), 422)

    assert is_refused(await delivered.stranger.get(path), 403)
    assert is_refused(await delivered.stranger.get(f"/bus/deliveries/{first.id}"), 404)
    assert is_refused(await delivered.operator.get(delivered.about(f"deliveries/{'0' * 32}")), 404)
    assert is_refused(await delivered.operator.get(delivered.about("subscriptions/none/deliveries")), 404)
    await bus.subscribing.unsubscribe(subscription.namespace, "o")
    assert is_refused(await delivered.operator.get(path), 404)


async def test_a_dead_letter_has_the_events_of_its_delivery(delivered: Delivered) -> None:
    subscription = await buried(delivered, "l", "last words")
    (dead,) = await delivered.bus.deliveries(subscription)
    whole = delivered.about(f"deliveries/{dead.id}", "events=true")
    told = (await delivered.operator.get(whole)).json
    assert (told["status"], told["events"]) == ("dead", ["last words"])
    given_up = await delivered.operator.post(delivered.about(f"dead-letters/{dead.id}/discard"))
    assert given_up.status == 204
    assert is_refused(await delivered.operator.get(whole), 410)
