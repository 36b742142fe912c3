"""How many calls of a namespace are in workers' hands, and when those over the bound have their turn."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from services.scheduler.deliver import Due, InHand, _Calls
from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.occurrences import Occurrence, once
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Wanted, draft_one
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def due(namespace: str, count: int) -> list[Due]:
    definition = Definition(callback=HttpCallback(url="https://example.com", payload="{}"), instants=(NOON + HOUR,))
    schedule = draft_one(Wanted(namespace, "k", definition), NOON, "g").schedule
    return [(once(f"schedule/{namespace}/{n}", "g", NOON, accepted_at=NOON), schedule) for n in range(count)]


def claimed(calls: list[Due]) -> list[Occurrence]:
    return [replace(each, token="t", visible_at=NOON + HOUR) for each, _ in calls]


def namespaces(calls: list[Due]) -> dict[str, str]:
    return {each.id: schedule.namespace for each, schedule in calls}


@pytest.fixture
def in_hand(store: Store, monkeypatch: pytest.MonkeyPatch) -> InHand:
    monkeypatch.setattr("services.scheduler.deliver._LOOK_SECONDS", 0.0)
    return InHand(store, most=10, lease_seconds=60)


async def test_each_namespace_has_a_bound_and_what_has_ended_makes_room(store: Store, in_hand: InHand) -> None:
    worst, other = due("worst", 30), due("other", 3)
    fitting, over = await in_hand.split([*worst, *other])
    assert fitting == [*worst[:10], *other]
    assert [each for each, _ in over] == worst[10:]
    in_hand.add(namespaces(fitting))
    handed = claimed(fitting)
    await store.occurrences.add(handed)
    fitting, over = await in_hand.split(worst[10:])
    assert (fitting, len(over)) == ([], 20)
    await store.occurrences.complete(handed[:4])
    fitting, _ = await in_hand.split(worst[10:])
    assert fitting == worst[10:14]


async def test_what_waits_for_its_turn_comes_as_fast_as_calls_end(store: Store, in_hand: InHand) -> None:
    worst = due("worst", 1_000)
    fitting, over = await in_hand.split(worst)
    pauses = [pause for _, pause in over]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2.0, 60.0)
    in_hand.add(namespaces(fitting))
    await store.occurrences.add(claimed(fitting))
    for _ in range(20):  # none of them ends
        _, over = await in_hand.split(worst[10:11])
    assert over[0][1] == 60.0


@pytest.mark.parametrize("now", [0.1, 123.456, 987_654.321])
def test_a_pause_is_within_its_bounds_at_any_time(now: float) -> None:
    calls = _Calls(rate=10)
    assert calls.take_turn(now) == 2.0
    calls.last_turn = now + 1_000
    assert calls.take_turn(now) == 60.0
    assert calls.take_turn(now) == 60.0


async def test_namespaces_that_have_nothing_in_hand_are_forgotten(store: Store) -> None:
    """Also where none of them was ever full."""
    in_hand = InHand(store, most=10, lease_seconds=0)
    for number in range(50):
        calls = due(f"namespace-{number}", 1)
        assert (await in_hand.split(calls))[0] == calls
        in_hand.add(namespaces(calls))
    assert len(in_hand._calls) <= 2


async def test_a_lease_that_is_over_is_in_nobodys_hands(store: Store) -> None:
    in_hand = InHand(store, most=10, lease_seconds=0)
    calls = due("worst", 10)
    in_hand.add(namespaces(calls))
    await store.occurrences.add(claimed(calls))
    assert (await in_hand.split(calls))[1] == []
