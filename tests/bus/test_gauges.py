"""What schedulers tell of queues: what waits, since when, how the receiver stands, and how many are worked on; and of
replays."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from shared.bus.rules.replays import Replay, ReplayState, replay_id
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.rules.wake_ups import Wake
from shared.bus.standing import QueueGauges, QueueStandings
from shared.bus.store_log import LogPosition
from shared.drivers.mongo.transactions import OwnSession
from shared.runtime.metrics import REGISTRY
from shared.store import Store
from tests.bus.store.made_subscriptions import NOON, add, change, chunk, flush_of, version

pytestmark = pytest.mark.native

LOG = "log/0"


@pytest.fixture
async def session(store: Store) -> AsyncIterator[OwnSession]:
    opened = store.bus_flushes.open_session()
    await store.bus_flushes.take_over({LOG: ""}, opened)
    yield opened
    await opened.close()


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"carillon_bus_{name}", labels)


def gauges_of(store: Store) -> QueueGauges:
    return QueueGauges(store, QueueStandings(store, store.now, deadline=timedelta(seconds=1)), store.now)


async def test_what_waits_is_shown_for_each_subscription(store: Store, session: OwnSession) -> None:
    full, empty = await add(store, "full", "t"), await add(store, "empty", "t")
    waiting = chunk(full.queue, (LOG, 0), (LOG, 1), (LOG, 2))
    await store.bus_flushes.flush(flush_of(await version(store), {LOG: (LogPosition(), 3)}, waiting), session)
    await gauges_of(store).read_once()
    assert (shown("queued_events", subscription=full.id), shown("queued_events", subscription=empty.id)) == (3, 0)
    assert shown("queued_deliveries", subscription=full.id) == 0
    assert shown("oldest_seconds", subscription=empty.id) == 0
    assert shown("health_points", subscription=full.id) == 100
    # The events of this chunk say that they came at the very beginning of 1970.
    assert (shown("oldest_seconds", subscription=full.id) or 0) > timedelta(days=365).total_seconds()


async def test_wake_ups_are_shown_by_their_stage(store: Store) -> None:
    due, later = await add(store, "due", "t"), await add(store, "later", "t")
    await add(store, "asleep", "t")
    wakes = [Wake(due.queue, NOON, 1), Wake(later.queue, NOON + timedelta(days=1), 1)]
    await store.bus_wake_ups.wake(wakes, "token", now=NOON, leased_until=NOON + timedelta(minutes=1))
    await gauges_of(store).read_once()
    assert [shown("wake_ups", stage=stage) for stage in ("resting", "handed", "busy")] == [1, 1, 0]


async def test_replays_are_shown_by_their_state_until_they_are_over(store: Store) -> None:
    asked, suspended = await add(store, "asked", "t"), await add(store, "suspended", "t")
    for number, state in enumerate((ReplayState.RUNNING, ReplayState.DONE, ReplayState.RUNNING), start=1):
        id = replay_id(asked.queue, number)
        replay = Replay(
            id=id, number=number, queue=asked.queue, namespace="n", key="asked", state=state, created_at=NOON
        )
        assert await store.bus_replays.add(replay)
    assert await change(store, suspended, state=SubscriptionStatus.SUSPENDED)
    await gauges_of(store).read_once()
    assert [shown("replays", state=state) for state in ("waiting", "running", "held", "done")] == [1, 2, 0, None]
    assert await store.bus_replays.cancel_all(asked.queue, "enough", NOON) == 2
    await gauges_of(store).read_once()
    assert [shown("replays", state=state) for state in ("waiting", "running", "held")] == [1, 0, 0]


async def test_a_subscription_that_is_gone_is_not_shown_any_more(store: Store) -> None:
    gone = await add(store, "gone", "t")
    await gauges_of(store).read_once()
    assert shown("health_points", subscription=gone.id) == 100
    await store._database["bus_subscriptions"].delete_one({"_id": gone.id})
    await gauges_of(store).read_once()
    assert shown("health_points", subscription=gone.id) is None


async def test_for_how_long_a_notice_waits_is_shown_until_it_is_told(store: Store) -> None:
    now, stands = await store.now(), await add(store, "k", "t")
    assert await change(store, stands, state=SubscriptionStatus.SUSPENDED, now=now - timedelta(minutes=10))
    await gauges_of(store).read_once()
    assert 600 <= (shown("notice_oldest_seconds") or 0) < 700
    notice = await store.bus_notices.find_oldest()
    assert notice is not None
    await store.bus_notices.remove(notice.id)
    await gauges_of(store).read_once()
    assert shown("notice_oldest_seconds") == 0
