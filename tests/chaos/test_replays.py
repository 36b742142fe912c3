"""Processes that die at every step of a replay: each event of it comes once all the same."""

import signal
from collections import Counter

import pytest

from shared.bus.replays import BusReplayFlow, ReplayWish
from shared.bus.rules.replays import ReplayState
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from tests.bus.store.made_subscriptions import add, no_log
from tests.e2e.house import House
from tests.services.feedback.fanning_out import collected, publish
from tests.services.feedback.test_replays import HOUR
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

POINTS = ["replay.after_flush@2", "replay.after_take", "replay.before_flush@2"]
EVENTS = [str(number) for number in range(5_000)]  # a read has 2,000, which one flush takes


async def begin(house: House) -> tuple[EventSubscription, str]:
    """A subscription that collects, calls nobody, and has all events to come once more."""
    given, log = house.servers, house.servers.settings.bus.log_topic
    subscribing = Subscribing(given.store, given.key_ring, given.time.now, SubscriptionQuotas(9, 9), no_log)
    flow = BusReplayFlow(given.store, given.stream, given.broker, subscribing, given.time.now, log_topic=log)
    subscription = await add(given.store, "k", "a", state=SubscriptionStatus.PAUSED)
    await publish(given.store, given.stream, log, EVENTS)
    wish = ReplayWish(since=await given.time.now() - HOUR)
    return subscription, (await flow.start(subscription.namespace, subscription.key, wish)).id


async def check(house: House, subscription: EventSubscription, replay_id: str) -> None:
    store = house.servers.store

    async def is_done() -> bool:
        replay = await store.bus_replays.get(replay_id)
        return replay is not None and replay.state is ReplayState.DONE

    await until(is_done, "the replay to be done")
    found = Counter(await collected(store, subscription))
    assert found == Counter(EVENTS)

    async def is_woken() -> bool:
        return not await store.bus_flushes.find_unwoken(await store.now() + HOUR, 1)

    await until(is_woken, "upkeep to wake the queue")


async def end_lease(house: House, replay_id: str) -> None:
    """Rather than wait until the dead one's is over."""
    store = house.servers.store
    ended = {"$set": {"leased_until": await store.now() - HOUR}}
    await store._database["bus_replays"].update_one({"_id": replay_id}, ended)


@pytest.mark.parametrize("point", and_rarely(POINTS[0], rarely=POINTS[1:]))
async def test_a_worker_dies_in_a_replay(house: House, point: str) -> None:
    doomed = await house.start("worker", fault=f"{point}=kill")
    subscription, replay_id = await begin(house)
    assert await doomed.gone() == -signal.SIGKILL
    await end_lease(house, replay_id)
    await house.start("worker")
    await house.start("scheduler")
    await check(house, subscription, replay_id)


@pytest.mark.slow
async def test_a_worker_stops_in_a_replay_and_wakes_up_too_late(house: House) -> None:
    late = await house.start("worker", fault="replay.before_flush@2=stop")
    subscription, replay_id = await begin(house)
    await late.reached("replay.before_flush")
    await end_lease(house, replay_id)
    await house.start("worker")
    await house.start("scheduler")
    await check(house, subscription, replay_id)
    late.send(signal.SIGCONT)
    late.send(signal.SIGTERM)
    await late.gone()
    await check(house, subscription, replay_id)
