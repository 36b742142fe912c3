"""Deliveries as their receiver sees them: what comes, when, and how often."""

import asyncio
from base64 import b64encode
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.worker.bus import queue_run
from services.worker.bus import queue_run as queue_filling
from shared.bus.rules import cutting
from shared.bus.rules.deliveries import DeliveryStatus, delivery_id
from shared.bus.rules.notices import NoticeKind
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.rules.wake_ups import FAR_AHEAD, Wake, queue_owner
from shared.bus.store_cuts import CursorWrites
from shared.bus.store_deliveries import BusDeliveries
from shared.bus.subscriptions import open_secrets
from shared.clock.store_occurrences import fresh_token
from shared.drivers.http.signing import verify_webhook
from shared.runtime.loops import Backoff
from shared.store import Store
from tests.receivers import HANG, receiver
from tests.services.worker.bus.delivering import LEASE, NAMESPACE, Delivering, delivering, now_ns, seconds_between
from tests.waiting import until

pytestmark = pytest.mark.native


async def test_a_full_batch_goes_at_once_as_one_request(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=5, timeout_ms=3_600_000, uuid="me", headers={"X-Mine": "1"})
    await bus.publish(subscription, 1, 2, 3)
    await bus.publish(subscription, 4, 5)
    cursor = await bus.sent(subscription, 5)
    (arrival,) = bus.receiver.arrivals()
    assert arrival.events == [1, 2, 3, 4, 5]
    assert arrival.id == delivery_id(subscription.queue, 1)
    assert (arrival.sequence, arrival.attempt) == (1, 1)
    assert arrival.headers["authorization"] == f"Basic {b64encode(b'me:x').decode()}"
    assert (arrival.headers["content-type"], arrival.headers["x-mine"]) == ("application/json", "1")
    secrets = open_secrets(bus.ring, subscription, await bus.time.now())
    assert verify_webhook(arrival.headers, arrival.body.encode(), *secrets)
    assert (cursor.sequence, cursor.open, cursor.open_deliveries, cursor.health.points) == (1, 0, 0, 100)
    (delivery,) = await bus.deliveries(subscription)
    assert (delivery.status, delivery.count, delivery.made) == (DeliveryStatus.DELIVERED, 5, 1)
    assert [attempt.status for attempt in delivery.attempts] == [200]
    await bus.rested(subscription)
    assert await bus.fires_at(subscription) == FAR_AHEAD


async def test_what_is_not_full_waits_for_its_time(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=10, timeout_ms=1_000)
    began = now_ns()
    await bus.publish(subscription, 1, 2, 3, wake=False)
    await bus.publish(subscription, 4, 5)
    await bus.arrived(1)
    (arrival,) = bus.receiver.arrivals()
    assert arrival.events == [1, 2, 3, 4, 5]
    assert seconds_between(began, arrival.at) >= 0.95


async def test_one_each_where_nothing_waits(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1)
    await bus.publish(subscription, 1, 2, 3)
    await bus.sent(subscription, 3)
    assert sorted(str(arrival.events) for arrival in bus.receiver.arrivals()) == ["[1]", "[2]", "[3]"]
    assert {arrival.sequence for arrival in bus.receiver.arrivals()} == {1, 2, 3}


@pytest.mark.slow
async def test_more_than_one_cut_and_many_queues_at_the_same_time(bus: Delivering) -> None:
    subscriptions = [await bus.subscribe(f"k{number}", max_events=7, timeout_ms=300) for number in range(20)]
    for round_ in range(10):
        await asyncio.gather(*(bus.publish(one, *range(round_ * 50, round_ * 50 + 50)) for one in subscriptions))
    for number, one in enumerate(subscriptions):
        await bus.sent(one, 500)
        arrivals = bus.receiver.arrivals(f"/k{number}")
        events = [event for arrival in sorted(arrivals, key=lambda each: each.sequence) for event in arrival.events]
        assert events == list(range(500))
        assert all(len(arrival.events) <= 7 for arrival in arrivals)


async def test_a_failure_is_tried_again_with_the_same_id_and_body(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 200, 500, 302)
    await bus.publish(subscription, 1, 2)
    await bus.publish(subscription, 3)
    cursor = await bus.sent(subscription, 3)
    arrivals = bus.receiver.arrivals()
    first = [arrival for arrival in arrivals if arrival.sequence == 1]
    assert {(arrival.id, arrival.body) for arrival in first} == {(delivery_id(subscription.queue, 1), first[0].body)}
    assert first[0].body in {"[1,2]", "[1,2,3]"}
    between = [seconds_between(a.at, b.at) for a, b in pairwise(arrivals)]
    assert between[0] >= 0.5
    assert between[1] >= 1.0
    assert cursor.health.points in {97, 98}
    assert (cursor.health.failures, cursor.health.failing_since) == (0, None)


async def test_moments_and_pauses_within_a_tick_need_no_clock(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that nothing has succeeded beside goes when its receiver's pause is over, whatever its own is."""
    monkeypatch.setattr("shared.bus.rules.health.OWN_PAUSES", (timedelta(minutes=5), timedelta(minutes=5)))
    async with receiver(tmp_path / "arrivals") as at, delivering(store, at, ticks=False) as bus:
        subscription = await bus.subscribe(max_events=10, timeout_ms=200)
        await bus.receiver.answer("/k", 200, 500)
        began = now_ns()
        await bus.publish(subscription, 1, 2)
        cursor = await bus.sent(subscription, 2)
        first, second = bus.receiver.arrivals()
        assert (first.id, cursor.health.failures) == (second.id, 0)
        assert seconds_between(began, first.at) >= 0.15
        assert seconds_between(first.at, second.at) >= 0.5


@pytest.mark.slow
async def test_a_dead_receiver_gets_one_probe_at_a_time_and_holds_up_nobody(bus: Delivering) -> None:
    dead = await bus.subscribe("dead", max_events=1)
    await bus.receiver.answer("/dead", 503)
    await bus.publish(dead, *range(150))
    await bus.arrived(3, "/dead")
    alive = await bus.subscribe("alive")
    await bus.publish(alive, 1)
    await bus.sent(alive, 1)
    calls = bus.receiver.arrivals("/dead")
    between = [seconds_between(a.at, b.at) for a, b in pairwise(calls)]
    assert min(between) >= 0.5
    assert len({call.id for call in calls}) == len(calls)
    await bus.receiver.answer("/dead", 200)
    await bus.sent(dead, 150)
    bodies = Counter(arrival.body for arrival in bus.receiver.arrivals("/dead"))
    assert len(bodies) == 150


async def test_a_delivery_that_fails_alone_has_a_pause_of_its_own_and_dies_alone(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1, max_attempts=2, in_flight=1)
    await bus.receiver.answer("/k", 200, 500, 200, 422)
    await bus.publish(subscription, "bad", "good")
    await bus.arrived(3)
    await bus.publish(subscription, "last")
    cursor = await bus.cursor_when(subscription, lambda cursor: cursor.sent == 2 and cursor.open == 0)
    assert cursor.dead == 1
    (listed,) = await bus.store.bus_dead_letters.page(NAMESPACE, limit=10)
    letter = await bus.store.bus_dead_letters.get(NAMESPACE, listed.id)
    assert letter is not None
    assert (letter.reason, letter.events, letter.count) == ("attempts", (b'"bad"',), 1)
    assert [attempt.status for attempt in letter.attempts] == [500, 422]
    assert [arrival.body for arrival in bus.receiver.arrivals()] == ['["bad"]', '["good"]', '["bad"]', '["last"]']


async def test_bad_bodies_hold_up_nothing_that_comes_behind_them(
    bus: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all that are open have failed, nobody can tell whether these are at fault or the receiver: every second
    probe is another delivery."""
    monkeypatch.setattr("shared.bus.rules.health.OWN_PAUSES", (timedelta(minutes=5), timedelta(minutes=5)))
    monkeypatch.setattr("shared.bus.rules.health._FIRST_PAUSE", timedelta(seconds=2))
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 200, 422, 422)
    await bus.publish(subscription, "bad")
    await bus.cursor_when(subscription, lambda cursor: cursor.health.failures == 1)
    await bus.publish(subscription, "worse", "good")
    await bus.sent(subscription, 2)
    bodies = [arrival.body for arrival in bus.receiver.arrivals()]
    assert bodies == ['["bad"]', '["worse"]', '["good"]', '["worse"]'], "the first one still has its own pause"


async def test_what_is_too_old_is_a_dead_letter(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 500, 500, retry_after="3600")
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    long_ago = await bus.time.now() - timedelta(hours=72)
    await bus.store._database["bus_deliveries"].update_many({}, {"$set": {"cut_at": long_ago}})
    await bus.receiver.answer("/k", 200)
    await _forget_pause(bus)
    await bus.publish(subscription, 2)
    cursor = await bus.sent(subscription, 1)
    assert cursor.dead == 1
    assert [letter.reason for letter in await bus.store.bus_dead_letters.page(NAMESPACE, limit=10)] == ["age"]


@pytest.mark.slow
async def test_retry_after_is_honoured(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 200, 503, retry_after="3")
    await bus.publish(subscription, 1)
    await bus.sent(subscription, 1)
    first, second = bus.receiver.arrivals()
    assert seconds_between(first.at, second.at) >= 2.9


async def test_an_ordered_one_has_one_in_flight_and_the_next_after_success(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1, ordered=True)
    await bus.receiver.answer("/k", 200, 200, 500, 500, seconds=0.05)
    await bus.publish(subscription, *range(6))
    await bus.sent(subscription, 6)
    arrivals = bus.receiver.arrivals()
    assert [arrival.body for arrival in arrivals] == ["[0]", "[1]", "[1]", "[1]", "[2]", "[3]", "[4]", "[5]"]
    assert min(seconds_between(a.at, b.at) for a, b in pairwise(arrivals)) >= 0.05


async def test_410_suspends_and_a_resumed_one_begins_anew(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 410)
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    suspended = await bus.subscribing.get(NAMESPACE, "k")
    assert (suspended.state, "410" in suspended.reason) == (SubscriptionStatus.SUSPENDED, True)
    assert await bus.fires_at(subscription) == FAR_AHEAD
    await bus.receiver.answer("/k", 200)
    await bus.subscribing.resume(NAMESPACE, "k")
    await bus.sent(subscription, 1)
    assert len(bus.receiver.arrivals()) == 2


@pytest.mark.slow
async def test_failures_only_for_too_long_suspend(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 500)
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    since = await bus.time.now() - timedelta(days=5)
    change = {"$set": {"health.failing_since": since}, "$inc": {"v": 1}}
    await bus.store._database["bus_cursors"].update_many({}, change)

    async def is_suspended() -> bool:
        return (await bus.subscribing.get(NAMESPACE, "k")).state is SubscriptionStatus.SUSPENDED

    await until(is_suspended)


@pytest.mark.slow
async def test_lone_failures_with_nothing_between_them_suspend_nobody(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1, max_attempts=1)
    await bus.receiver.answer("/k", 500)
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    assert (await bus.cursor(subscription)).dead == 1
    since = await bus.time.now() - timedelta(days=6)
    then = {f"health.{name}": since for name in ("failing_since", "failed_at", "last_attempt_at", "idle_since")}
    change = {name: at for name, at in then.items() if name != "health.idle_since"}
    is_idle = (await bus.cursor(subscription)).health.idle_since is not None
    await bus.store._database["bus_cursors"].update_many({}, {"$set": then if is_idle else change, "$inc": {"v": 1}})
    await bus.publish(subscription, 2)
    await bus.arrived(2)
    await bus.rested(subscription)
    assert (await bus.subscribing.get(NAMESPACE, "k")).state is SubscriptionStatus.ACTIVE


@pytest.mark.slow
async def test_another_callback_is_called_at_once_whatever_the_old_one_asked_for(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 503, retry_after="3600")
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    assert (await bus.fires_at(subscription) or FAR_AHEAD) - await bus.time.now() > timedelta(minutes=50)
    await bus.subscribe(callback=f"{bus.receiver.url}/other")
    await bus.sent(subscription, 1)


@pytest.mark.slow
async def test_a_late_answer_of_an_old_callback_holds_up_no_other(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 503, seconds=1, retry_after="3600")
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.subscribe(callback=f"{bus.receiver.url}/other")
    assert (await bus.sent(subscription, 1)).health.asked_until is None
    assert len(bus.receiver.arrivals("/other")) == 1


async def test_a_paused_one_collects_and_calls_nobody(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.subscribing.pause(NAMESPACE, "k")
    await bus.publish(subscription, 1)
    await bus.rested(subscription)
    assert await bus.fires_at(subscription) == FAR_AHEAD
    await bus.publish(subscription, 2)
    assert await bus.fires_at(subscription) == FAR_AHEAD
    assert bus.receiver.arrivals() == []
    await bus.subscribing.resume(NAMESPACE, "k")
    await bus.sent(subscription, 2)


@pytest.mark.slow
async def test_a_receiver_that_hangs_goes_apart(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 200, HANG)
    await bus.publish(subscription, 1)
    cursor = await bus.sent(subscription, 1)
    first, second = bus.receiver.arrivals()
    assert first.id == second.id
    assert seconds_between(first.at, second.at) >= 4
    assert cursor.mean_ms > 1_000
    await bus.rested(subscription)
    found = await bus.store._database["occurrences"].find_one({"owner": f"bus/{subscription.queue}"})
    assert found is not None
    assert found["of"]["slow"]


async def test_a_wake_up_whose_workers_died_too_often_is_suspended(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.store._database["occurrences"].update_many({}, {"$set": {"of.deaths": 20}})
    await bus.publish(subscription, 1)
    await bus.rested(subscription)
    assert (await bus.subscribing.get(NAMESPACE, "k")).state is SubscriptionStatus.SUSPENDED
    assert bus.receiver.arrivals() == []


async def test_one_subscription_that_nobody_can_read_holds_up_no_other(bus: Delivering) -> None:
    broken, other = await bus.subscribe("broken"), await bus.subscribe("other")
    await bus.store._database["bus_subscriptions"].update_one({"_id": broken.id}, {"$set": {"max_events": "many"}})
    await bus.publish(broken, 1)
    await bus.publish(other, 1)
    await bus.sent(other, 1)
    assert {arrival.path for arrival in bus.receiver.arrivals()} == {"/other"}


async def test_nothing_stands_for_a_wake_that_came_before_its_events(bus: Delivering) -> None:
    """What was stored and told nobody goes with the next look."""
    subscription = await bus.subscribe()
    await bus.publish(subscription, 1, wake=False)
    await bus.publish(subscription, 2)
    await bus.sent(subscription, 2)
    await bus.rested(subscription)
    assert await bus.fires_at(subscription) == FAR_AHEAD


async def _forget_pause(bus: Delivering) -> None:
    """Have the receiver's pause be over, and its queue woken."""
    change = {"$set": {"health.asked_until": None, "health.failures": 0, "health.points": 100}}
    await bus.store._database["bus_cursors"].update_many({}, change)
    await bus.store._database["occurrences"].update_many({}, {"$set": {"of.not_before": None, "fires_at": FAR_AHEAD}})


@pytest.mark.slow
async def test_a_queue_deeper_than_one_look_is_emptied(bus: Delivering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.worker.bus.queue_run.FIRST_HEADS", 3)
    monkeypatch.setattr("services.worker.bus.queue_run.HEADS", 5)
    subscription = await bus.subscribe(max_events=5)
    for number in range(30):
        await bus.publish(subscription, number, wake=False)
    await bus.publish(subscription, 30)
    await bus.sent(subscription, 31)
    assert {event for arrival in bus.receiver.arrivals() for event in arrival.events} == set(range(31))


async def test_a_fault_of_ours_suspends_nobody_and_comes_back_later_each_time(
    bus: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_run, "MOST_DEATHS", 4)
    faults, decide = 0, cutting.cut

    def fail(*given: Any, **options: Any) -> Any:
        nonlocal faults
        faults += 1
        if faults <= 5:
            raise ZeroDivisionError
        return decide(*given, **options)

    monkeypatch.setattr(queue_filling, "cut", fail)
    monkeypatch.setattr("services.worker.bus.deliver._AFTER_FAULTS", Backoff(first_seconds=0.05, cap_seconds=0.1))
    subscription = await bus.subscribe()
    await bus.publish(subscription, "it")
    await bus.sent(subscription, 1)
    assert faults == 6
    await bus.rested(subscription)
    (found,) = await bus.store.occurrences.find_upcoming(queue_owner(subscription.queue), 1)
    assert found.claims == 0


async def test_what_a_dead_worker_has_locked_is_free_at_once(bus: Delivering, ready_database: str) -> None:
    """A dead one is one whose transaction is open, and who does nothing more."""
    subscription = await bus.subscribe()
    dead = Store.open(ready_database)
    open_one = dead.bus_cuts.open_session()
    await bus.publish(subscription, "it", wake=False)
    now = await bus.time.now()
    handed = await bus.store.bus_wake_ups.wake(
        [Wake(subscription.queue, now, 1)], fresh_token(), now=now, leased_until=now + LEASE
    )
    soon = now + timedelta(seconds=1)
    taken = await dead.bus_wake_ups.take(
        [(one.id, one.token) for one in handed], fresh_token(), until=soon, sessions=[open_one.name]
    )
    assert len(taken) == 1
    await open_one.session.start_transaction()
    await dead._database["bus_cursors"].update_one(
        {"_id": subscription.queue}, {"$inc": {"v": 1}}, session=open_one.session
    )
    await bus.sent(subscription, 1)
    (arrival,) = bus.receiver.arrivals()
    assert arrival.events == ["it"]
    await open_one.close()
    await dead.close()


@pytest.mark.slow
async def test_a_locked_queue_is_put_off_and_goes_on_once_it_is_free(bus: Delivering) -> None:
    locked, other = await bus.subscribe("locked"), await bus.subscribe("other")
    scheduler = bus.store.bus_cuts.open_session()
    await scheduler.session.start_transaction()
    await bus.store.bus_cursors.forgive(locked.queue, scheduler.session)
    await bus.publish(locked, "late")
    await bus.publish(other, "at once")
    await bus.sent(other, 1)
    await bus.rested(locked)
    assert (await bus.cursor(locked)).sent == 0
    await scheduler.close()
    await bus.sent(locked, 1)
    assert [arrival.events for arrival in bus.receiver.arrivals("/locked")] == [["late"]]


@pytest.mark.slow
async def test_calls_go_on_while_others_are_settled(bus: Delivering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first settlement waits until another call has come in: settled in between, none would."""
    first, settle = asyncio.Event(), BusDeliveries.settle

    async def settle_late(self: BusDeliveries, *given: Any) -> CursorWrites:
        if not first.is_set():
            first.set()
            await bus.arrived(2)
        return await settle(self, *given)

    monkeypatch.setattr(BusDeliveries, "settle", settle_late)
    subscription = await bus.subscribe(max_events=1)
    await bus.publish(subscription, *range(12))
    await bus.sent(subscription, 12)
    assert len({arrival.id for arrival in bus.receiver.arrivals()}) == len(bus.receiver.arrivals()) == 12


@pytest.mark.parametrize(("days", "kind"), [(3, NoticeKind.WARNED), (6, NoticeKind.SUSPENDED)])
@pytest.mark.slow
async def test_who_fails_for_days_is_told_once(bus: Delivering, days: int, kind: NoticeKind) -> None:
    subscription = await bus.subscribe()
    await bus.receiver.answer("/k", 500)
    await bus.publish(subscription, 1)
    await bus.arrived(1)
    await bus.rested(subscription)
    since = await bus.time.now() - timedelta(days=days)
    await bus.store._database["bus_cursors"].update_one(
        {"_id": subscription.queue}, {"$set": {"health.failing_since": since}, "$inc": {"v": 1}}
    )
    notices = bus.store._database["bus_notices"].find({"way": "event"})

    async def is_told() -> bool:
        return bool(await notices.clone().to_list())

    await until(is_told)
    if kind is NoticeKind.WARNED:
        await bus.arrived(len(bus.receiver.arrivals()) + 2)
    await bus.rested(subscription)
    (notice,) = await notices.clone().to_list()
    assert (notice["kind"], notice["audience"], notice["key"]) == (kind.value, NAMESPACE, "k")
    assert f"{since:%Y-%m-%d %H:%M}" in notice["reason"]
