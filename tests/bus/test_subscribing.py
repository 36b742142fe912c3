"""A subscription changes in one step, with its topics and its queue; the same again changes nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from shared.bus.rules.filters import Comparison, DataCondition, EventFilter
from shared.bus.rules.health import ReceiverHealth
from shared.bus.rules.subscriptions import (
    EventForm,
    EventSubscription,
    SubscriptionStatus,
    SubscriptionWish,
    subscription_of,
)
from shared.bus.rules.wake_ups import FAR_AHEAD, queue_owner
from shared.bus.store_subscriptions import UnreadableSubscriptions
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas, open_secrets
from shared.core.errors import Conflict, Forbidden, Invalid, NotFound
from shared.drivers.mongo.documents import BSON_TYPES
from shared.drivers.secrets import KeyRing, fresh_key
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import NOON, no_log, version

pytestmark = pytest.mark.native

US = "token:us"
RING = KeyRing([fresh_key()])


@pytest.fixture
def subscribing(store: Store) -> Subscribing:
    return Subscribing(store, RING, DatabaseTime(store).now, SubscriptionQuotas(per_namespace=2, topics=3), no_log)


def wish(key: str = "k", *topics: str, **fields: object) -> SubscriptionWish:
    standard: dict[str, object] = {"callback": "https://r.example/", "topics": topics}
    return SubscriptionWish(namespace=US, key=key, **(standard | fields))  # type: ignore[arg-type]


async def set_failing(store: Store, subscription: EventSubscription) -> ReceiverHealth:
    """Have its receiver fail for long, and be warned."""
    since = await store.now() - timedelta(days=6)
    times: dict[str, Any] = {"failing_since": since, "failed_at": since, "last_attempt_at": since, "warned_at": since}
    failing = ReceiverHealth(points=40, failures=3, asked_until=since + timedelta(days=7), **times)
    change = {"$set": {"health": to_builtins(failing, builtin_types=BSON_TYPES)}}
    await store._database["bus_cursors"].update_one({"_id": subscription.queue}, change)
    return failing


async def health_of(store: Store, subscription: EventSubscription) -> ReceiverHealth:
    return (await store.bus_cursors.read([subscription.queue]))[subscription.queue].health


async def wake_ups(store: Store, subscription: EventSubscription) -> int:
    return len(await store.occurrences.find_upcoming(queue_owner(subscription.queue), 10))


async def test_a_new_one_has_its_topics_its_wake_up_and_its_cursor(store: Store, subscribing: Subscribing) -> None:
    made = await subscribing.subscribe(wish("k", "b", "a", "b", max_events=7))
    subscription = made.subscription
    assert (subscription.topics, subscription.max_events, subscription.timeout_ms) == (("a", "b"), 7, 500)
    assert await subscribing.get(US, "k") == subscription
    assert set(await store.bus_topics.with_names(["a", "b"])) == {"a", "b"}
    (wake_up,) = await store.occurrences.find_upcoming(queue_owner(subscription.queue), 10)
    assert wake_up.due == FAR_AHEAD
    assert subscription.queue in await store.bus_cursors.read([subscription.queue])
    assert open_secrets(RING, subscription, NOON) == (made.secret,)


async def test_the_same_again_writes_nothing(store: Store, subscribing: Subscribing) -> None:
    def over(text: str) -> EventFilter:
        return EventFilter(data=(DataCondition("/x", Comparison.EQ, text),))

    first = await subscribing.subscribe(wish("k", "a", "b", filter=over('{"a":1,"b":[2.50]}')))
    before = await version(store)
    again = await subscribing.subscribe(wish("k", "b", "a", filter=over('{"b": [2.50], "a": 1}')))
    assert (again.subscription, again.secret) == (first.subscription, "")
    assert await version(store) == before


async def test_what_is_not_said_stays_and_the_queue_too(store: Store, subscribing: Subscribing) -> None:
    first = (await subscribing.subscribe(wish("k", "a", max_events=7, form=EventForm.PUBLISHED))).subscription
    before = await version(store)
    changed = await subscribing.subscribe(
        SubscriptionWish(namespace=US, key="k", form=EventForm.PUBLISHED, topics=("c",), filter=EventFilter(("x",)))
    )
    stands = changed.subscription
    assert (stands.queue, stands.callback, stands.max_events) == (first.queue, first.callback, 7)
    assert (stands.topics, stands.filter) == (("c",), EventFilter(("x",)))
    assert await version(store) == stands.version == before + 1
    assert [found.id for found in (await store.bus_subscriptions.read_since(before)).changed] == [stands.id]


async def test_what_was_removed_meanwhile_is_not_made_again_without_a_callback(
    store: Store, subscribing: Subscribing
) -> None:
    """Whoever changes one beside its removal has looked at it before."""
    await subscribing.subscribe(wish("k", "a"))
    await subscribing.unsubscribe(US, "k")
    before = await version(store)
    with pytest.raises(Invalid, match="callback"):
        await subscribing.subscribe(SubscriptionWish(namespace=US, key="k", topics=("b",)))
    assert await version(store) == before


async def test_quotas_refuse_what_is_too_much_and_nothing_is_made(store: Store, subscribing: Subscribing) -> None:
    await subscribing.subscribe(wish("one", "a"))
    await subscribing.subscribe(wish("two", "a"))
    before = await version(store)
    with pytest.raises(Forbidden):
        await subscribing.subscribe(wish("three", "b"))
    with pytest.raises(Forbidden):
        await subscribing.subscribe(wish("one", "a", "b", "c", "d"))
    assert await version(store) == before
    assert set(await store.bus_topics.with_names(["b", "c", "d"])) == set()
    await subscribing.unsubscribe(US, "one")
    await subscribing.subscribe(wish("three", "b"))


async def test_a_removed_one_leaves_a_tombstone_and_comes_back_with_another_queue(
    store: Store, subscribing: Subscribing
) -> None:
    first = (await subscribing.subscribe(wish("k", "a"))).subscription
    before = await version(store)
    await subscribing.unsubscribe(US, "k")
    assert await subscribing.find(US, "k") is None
    assert await wake_ups(store, first) == 0
    (gone,) = (await store.bus_subscriptions.read_since(before)).changed
    assert (gone.state, gone.collects) == (SubscriptionStatus.REMOVED, False)
    with pytest.raises(NotFound):
        await subscribing.unsubscribe(US, "k")
    second = (await subscribing.subscribe(wish("k", "a"))).subscription
    assert (second.id, second.state) == (first.id, SubscriptionStatus.ACTIVE)
    assert second.queue != first.queue
    assert await wake_ups(store, second) == 1


async def test_a_topic_is_left_once(store: Store, subscribing: Subscribing) -> None:
    await subscribing.subscribe(wish("k", "a", "b"))
    await subscribing.leave_topic(US, "k", "a")
    assert (await subscribing.get(US, "k")).topics == ("b",)
    for key, topic in (("k", "a"), ("k", "none"), ("none", "b")):
        with pytest.raises(NotFound):
            await subscribing.leave_topic(US, key, topic)


async def test_a_paused_one_collects_and_a_resumed_one_is_looked_at(store: Store, subscribing: Subscribing) -> None:
    made = (await subscribing.subscribe(wish("k", "a"))).subscription
    paused = await subscribing.pause(US, "k", reason="by hand")
    assert (paused.state, paused.reason, paused.collects) == (SubscriptionStatus.PAUSED, "by hand", True)
    assert await subscribing.pause(US, "k") == paused
    resumed = await subscribing.resume(US, "k")
    assert (resumed.state, resumed.reason) == (SubscriptionStatus.ACTIVE, "")
    (wake_up,) = await store.occurrences.find_upcoming(queue_owner(made.queue), 10)
    assert wake_up.visible_at <= await store.now()


async def test_a_suspended_one_collects_nothing_until_it_is_resumed(store: Store, subscribing: Subscribing) -> None:
    made = (await subscribing.subscribe(wish("k", "a"))).subscription
    assert await subscribing.suspend(f"{subscription_of(made.queue)}.other", "gone") is None
    suspended = await subscribing.suspend(made.queue, "410")
    assert suspended is not None
    assert (suspended.state, suspended.reason, suspended.collects) == (SubscriptionStatus.SUSPENDED, "410", False)
    with pytest.raises(Conflict):
        await subscribing.pause(US, "k")
    kept = await subscribing.subscribe(wish("k", "a", "b"))
    assert kept.subscription.state is SubscriptionStatus.SUSPENDED
    assert (await subscribing.resume(US, "k")).state is SubscriptionStatus.ACTIVE
    await subscribing.pause(US, "k")
    assert await subscribing.suspend(made.queue, "410") is None


async def test_who_called_another_callback_suspends_nobody(store: Store, subscribing: Subscribing) -> None:
    made = (await subscribing.subscribe(wish("k", "a", callback="https://old.example/"))).subscription
    await subscribing.subscribe(wish("k", "a", callback="https://new.example/"))
    assert await subscribing.suspend(made.queue, "410", callback="https://old.example/") is None
    assert (await subscribing.get(US, "k")).state is SubscriptionStatus.ACTIVE
    assert await subscribing.suspend(made.queue, "410", callback="https://new.example/") is not None


async def test_another_callback_has_nothing_of_the_one_before_but_its_points(
    store: Store, subscribing: Subscribing
) -> None:
    made = (await subscribing.subscribe(wish("k", "a"))).subscription
    failing = await set_failing(store, made)
    await subscribing.subscribe(wish("k", "a", max_events=3))
    assert await health_of(store, made) == failing
    await subscribing.subscribe(wish("k", "a", callback="https://new.example/"))
    assert await health_of(store, made) == ReceiverHealth(points=failing.points) == ReceiverHealth(points=40)


async def test_a_pause_is_no_time_of_failures(store: Store, subscribing: Subscribing) -> None:
    made = (await subscribing.subscribe(wish("k", "a"))).subscription
    failing = await set_failing(store, made)
    await subscribing.pause(US, "k")
    await subscribing.resume(US, "k")
    assert await health_of(store, made) == replace(failing, failing_since=None, warned_at=None)


async def test_all_of_a_namespace_are_paused(store: Store, subscribing: Subscribing) -> None:
    await subscribing.subscribe(wish("one", "a"))
    await subscribing.subscribe(wish("two", "a"))
    await subscribing.pause(US, "two", reason="by hand")
    assert await subscribing.pause_namespace(US, "revoked") == 1
    page = await subscribing.page(namespace=US, limit=10)
    assert [(found.key, found.state, found.reason) for found in page] == [
        ("one", SubscriptionStatus.PAUSED, "revoked"),
        ("two", SubscriptionStatus.PAUSED, "by hand"),
    ]
    assert len(await store.bus_subscriptions.page(limit=10)) == 2


async def test_many_who_change_one_at_once_lose_nothing(store: Store) -> None:
    flows = [
        Subscribing(store, RING, DatabaseTime(store).now, SubscriptionQuotas(per_namespace=9, topics=9), no_log)
        for _ in range(4)
    ]
    await asyncio.gather(
        flows[0].subscribe(wish("k", topics=UNSET, max_attempts=9)),
        *(flow.subscribe(wish(f"k{number}", "a", "b")) for number, flow in enumerate(flows)),
    )
    changes = [("max_events", 5), ("timeout_ms", 7), ("in_flight", 3), ("max_bytes", 99)]
    await asyncio.gather(
        *(
            flow.subscribe(SubscriptionWish(namespace=US, key="k", **{name: value}))  # type: ignore[arg-type]
            for flow, (name, value) in zip(flows, changes, strict=True)
        )
    )
    found = await flows[0].get(US, "k")
    assert [getattr(found, name) for name, _ in changes] == [value for _, value in changes]
    assert len(await flows[0].page(namespace=US, limit=10)) == 5


@pytest.mark.parametrize(("quotas", "made"), [((3, 9, 99), 3), ((9, 9, 5), 2)])
async def test_many_who_subscribe_at_once_get_no_more_than_they_may(
    store: Store, quotas: tuple[int, int, int], made: int
) -> None:
    flow = Subscribing(store, RING, DatabaseTime(store).now, SubscriptionQuotas(*quotas), no_log)
    asked = [flow.subscribe(wish(f"k{number}", "a", f"b{number}")) for number in range(6)]
    refused = [each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, Forbidden)]
    assert len(await flow.page(namespace=US, limit=10)) == made
    assert len(refused) == 6 - made


async def test_a_new_secret_signs_beside_the_last_one_for_a_while(store: Store, subscribing: Subscribing) -> None:
    first = await subscribing.subscribe(wish("k", "a"))
    second = await subscribing.rotate_secret(US, "k", keep=timedelta(hours=1))
    now = await store.now()
    stands = second.subscription
    assert open_secrets(RING, stands, now) == (second.secret, first.secret)
    assert open_secrets(RING, stands, now + timedelta(hours=2)) == (second.secret,)
    third = await subscribing.rotate_secret(US, "k", keep=timedelta(0))
    assert open_secrets(RING, third.subscription, now) == (third.secret,)


async def test_without_a_key_there_are_no_secrets(store: Store) -> None:
    bare = Subscribing(store, KeyRing(), DatabaseTime(store).now, SubscriptionQuotas(per_namespace=9, topics=9), no_log)
    made = await bare.subscribe(wish("k", "a"))
    assert (made.secret, made.subscription.secrets) == ("", ())
    with pytest.raises(Invalid):
        await bare.rotate_secret(US, "k", keep=timedelta(0))


async def test_tombstones_are_forgotten_and_who_knows_less_reads_all_anew(
    store: Store, subscribing: Subscribing
) -> None:
    await subscribing.subscribe(wish("stays", "a"))
    gone = (await subscribing.subscribe(wish("gone", "a"))).subscription
    known = await version(store)
    await subscribing.unsubscribe(US, "gone")
    assert (
        await store.bus_subscriptions.forget_removed(await store.now() - timedelta(hours=1), 10, now=await store.now())
        == []
    )
    (forgotten,) = await store.bus_subscriptions.forget_removed(
        await store.now() + timedelta(hours=1), 10, now=await store.now()
    )
    assert forgotten.queue == gone.queue
    reading = await store.bus_subscriptions.read_since(known)
    assert reading.whole
    assert [found.key for found in reading.changed] == ["stays"]
    assert not (await store.bus_subscriptions.read_since(reading.version)).changed
    later = {"$set": {"state": "a state of a later version"}}
    await store._database["bus_subscriptions"].update_one({"key": "stays"}, later)
    with pytest.raises(UnreadableSubscriptions):
        await store.bus_subscriptions.read_since(known)
