"""Replays on the real store and on real streams: each event of a range comes once, whoever dies or interferes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from shared.bus import replays
from shared.bus.deliveries import BusDeadLetterFlow
from shared.bus.replays import BusReplayFlow, Replaying, ReplayTools, ReplayWish
from shared.bus.rules.cutting import BacklogLimits
from shared.bus.rules.deliveries import BusDeadLetter
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.replays import Replay, ReplayState
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus, SubscriptionWish
from shared.bus.rules.wake_ups import REPLAY_QUEUE
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from shared.bus.topics import TopicFlow
from shared.bus.upkeep import BacklogUpkeep
from shared.bus.waking import Waker
from shared.core.documents import LogRange
from shared.core.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.stream import KafkaStream
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import KeyRing
from shared.runtime.faults import FaultInjected, arm
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import add, change
from tests.services.feedback.fanning_out import SMALL, Wakes, collected, fanning_out, got, log_ends, make_log, publish

pytestmark = pytest.mark.later("replays; the bus's model has deaths, and test_fan_out.py its promise")

IDS = [str(number) for number in range(60)]
HOUR = timedelta(hours=1)
WISH = SubscriptionWish(namespace="token:n", key="k", callback="https://r.example/", topics=("a",))
MUCH = BacklogLimits(10_000, 10**9)


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    arm("")


class Bus:
    """Replays of subscriptions on one log."""

    def __init__(self, store: Store, stream: Stream, log: str) -> None:
        self.store, self.stream, self.log = store, stream, log
        self.broker, self.wakes, self.time = MemoryBroker(), Wakes(), DatabaseTime(store)
        quotas, ends = SubscriptionQuotas(100, 100), log_ends(stream, log)
        self.subscribing = Subscribing(store, KeyRing([]), self.time.now, quotas, ends)
        self.waker = Waker(store, self.broker, self.time, handed_for=HOUR)
        self.flow = BusReplayFlow(store, stream, self.broker, self.subscribing, self.time.now, log_topic=log)

    def replaying(self, limits: BacklogLimits = MUCH) -> Replaying:
        """What one worker does."""
        tools = ReplayTools(
            store=self.store, stream=self.stream, broker=self.broker, wake=self.wakes, now=self.time.now, limits=limits,
            log_topic=self.log, fold_limits=SMALL,
        )  # fmt: skip
        return Replaying(tools)

    async def start(self, subscription: EventSubscription, **wish: object) -> Replay:
        wish = {"since": await self.time.now() - HOUR} | wish
        return await self.flow.start(subscription.namespace, subscription.key, ReplayWish(**wish))  # type: ignore[arg-type]

    async def run(self, replay: Replay, worker: Replaying | None = None) -> Replay:
        """A turn of the replay; how it stands then."""
        await (worker or self.replaying()).run(replay.id, asyncio.Event())
        found = await self.store.bus_replays.get(replay.id)
        assert found is not None
        return found

    async def forget_lease(self, replay: Replay) -> None:
        """As if whoever has it had died long ago."""
        before = {"$set": {"leased_until": await self.time.now() - HOUR}}
        await self.store._database["bus_replays"].update_one({"_id": replay.id}, before)


@pytest.fixture
async def bus(store: Store, stream: Stream) -> Bus:
    made = Bus(store, stream, await make_log(stream))
    await made.broker.setup((REPLAY_QUEUE,))
    return made


async def test_all_that_the_log_has_comes_once_more(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    await publish(bus.store, bus.stream, bus.log, ["other"], topic="b")
    replay = await bus.start(subscription)
    with pytest.raises(Conflict, match="not over"):
        await bus.start(subscription)
    await publish(bus.store, bus.stream, bus.log, ["later"])
    done = await bus.run(replay)
    await got(bus.store, subscription, IDS)
    assert (done.state, done.events, done.read, done.total) == ("done", 60, 61, 61)
    assert (done.lost, done.begins_late) == (0, False)
    assert bus.wakes.events == {subscription.queue: 60}
    assert await bus.store.bus_flushes.find_unwoken(await bus.store.now() + HOUR, 10) == []
    again = await bus.start(subscription, topics=("b",), until=await bus.time.now() + HOUR)
    await bus.run(again)
    await got(bus.store, subscription, [*IDS, "other"])
    assert [each.number for each in await bus.flow.page("token:n", "k", below=None, limit=10)] == [2, 1]
    assert [each.number for each in await bus.flow.page("token:n", "k", below=2, limit=10)] == [1]
    assert (await bus.run(replay)).step == done.step


async def test_a_replay_brings_nothing_of_a_topic_that_was_deleted_and_made_anew(bus: Bus) -> None:
    topics = TopicFlow(bus.store, bus.time.now, log_ends(bus.stream, bus.log), most=5)
    await topics.claim("a", "token:before")
    await publish(bus.store, bus.stream, bus.log, ["theirs"])
    await topics.remove("a", namespace="token:before", of_others=False)
    await topics.claim("a", "token:n")
    subscription = (await bus.subscribing.subscribe(WISH)).subscription
    await publish(bus.store, bus.stream, bus.log, ["ours"])
    await bus.run(await bus.start(subscription))
    await got(bus.store, subscription, ["ours"])


async def test_a_suspension_is_made_up_for_with_the_topics_that_were_left_meanwhile(bus: Bus) -> None:
    queue = (await bus.subscribing.subscribe(WISH)).subscription.queue
    assert await bus.subscribing.suspend(queue, "its receiver fails")
    await publish(bus.store, bus.stream, bus.log, ["before"])
    await bus.subscribing.leave_topic("token:n", "k", "a")
    await publish(bus.store, bus.stream, bus.log, ["after"])
    resumed = await bus.subscribing.resume("token:n", "k")
    (waiting,) = await bus.flow.page("token:n", "k", below=None, limit=10)
    await bus.run(waiting)
    await got(bus.store, resumed, ["before"])


async def test_a_namespace_has_some_at_a_time(bus: Bus) -> None:
    every = [await add(bus.store, f"k{number}", "a") for number in range(11)]
    for each in every[:10]:
        await bus.start(each)
    with pytest.raises(Conflict, match="10 replays of the namespace"):
        await bus.start(every[10])
    await bus.flow.cancel("token:n", "k0")
    await bus.start(every[10])


@pytest.mark.slow
async def test_time_and_filter_choose(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a", filter=EventFilter(types=("create",)))
    await publish(bus.store, bus.stream, bus.log, IDS)
    after = await bus.time.now() + timedelta(milliseconds=1)
    for wish in ({}, {"filter": EventFilter(), "until": after - HOUR / 2}, {"filter": EventFilter(), "until": after}):
        await bus.run(await bus.start(subscription, **wish))
        assert len(await collected(bus.store, subscription)) == (60 if wish.get("until") == after else 0)
    with pytest.raises(Invalid, match="future"):
        await bus.start(subscription, since=after + HOUR)
    with pytest.raises(NotFound):
        await bus.flow.start("token:n", "nobody", ReplayWish(since=after))


@pytest.mark.parametrize("point", ["replay.after_take", "replay.before_flush@2", "replay.after_flush@2"])
async def test_a_worker_dies_and_another_goes_on(bus: Bus, point: str) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    arm(f"{point}=raise")
    with pytest.raises(FaultInjected):
        await bus.run(replay)
    arm("")
    await bus.forget_lease(replay)
    done = await bus.run(replay)
    await got(bus.store, subscription, IDS)
    assert (done.state, done.events) == (ReplayState.DONE, 60)
    # Whoever died behind a flush has woken nobody; upkeep does.
    unwoken = await bus.store.bus_flushes.find_unwoken(await bus.store.now() + HOUR, 10)
    told = bus.wakes.events[subscription.queue] + sum(wake.events for each in unwoken for wake in each.wakes)
    assert told == 60


@pytest.mark.slow
async def test_two_workers_have_one_replay_and_a_late_one_writes_nothing(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    frozen, go_on = asyncio.Event(), asyncio.Event()
    late, flush = bus.replaying(), bus.store.bus_replays.flush

    async def freeze(*args: object) -> object:
        if not frozen.is_set():
            frozen.set()
            await go_on.wait()
        return await flush(*args)  # type: ignore[arg-type]

    bus.store.bus_replays.flush = freeze  # type: ignore[assignment, method-assign]
    turn = asyncio.create_task(bus.run(replay, late))
    await asyncio.wait_for(frozen.wait(), 50)
    assert (await bus.run(replay)).step == 0  # it is somebody's
    await bus.forget_lease(replay)
    done = await bus.run(replay)
    go_on.set()
    assert (await turn).step == done.step
    await got(bus.store, subscription, IDS)


async def test_who_takes_over_ends_the_transaction_of_the_dead(bus: Bus, ready_database: str) -> None:
    """A dead one is one whose transaction is open, and who does nothing more."""
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    dead, now = Store.open(ready_database), await bus.time.now()
    left = dead.bus_replays.open_session()
    assert await dead.bus_replays.take(replay.id, "dead", left, now=now, leased_until=now) is not None
    await left.session.start_transaction()
    mine = {"_id": replay.id}
    await dead._database["bus_replays"].update_one(mine, {"$set": {"step": 9}}, session=left.session)
    done = await asyncio.wait_for(bus.run(replay), 50)
    assert done.state is ReplayState.DONE
    await got(bus.store, subscription, IDS)
    await left.close()
    await dead.close()


async def test_a_subscription_that_changes_meanwhile_is_folded_with_as_it_is(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    await publish(bus.store, bus.stream, bus.log, ["other"], topic="b")
    flush, changed = bus.store.bus_replays.flush, list[EventSubscription]()

    async def change_first(*args: object) -> object:
        if not changed:
            written = await change(bus.store, subscription, topics=("b",))
            assert written is not None
            changed.append(written)
        return await flush(*args)  # type: ignore[arg-type]

    bus.store.bus_replays.flush = change_first  # type: ignore[assignment, method-assign]
    await bus.run(await bus.start(subscription))
    await got(bus.store, subscription, ["other"])


@pytest.mark.slow
async def test_it_is_held_while_the_queue_is_half_full_and_goes_on_by_itself(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "HELD_FOR", timedelta(0))
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay, small = await bus.start(subscription), bus.replaying(BacklogLimits(50, 10**9))
    held = await bus.run(replay, small)
    assert (held.state, held.reason) == (ReplayState.HELD, "half of what may wait in the queue does")
    assert 25 <= len(await collected(bus.store, subscription)) < 50
    assert (await small.requeue_lost()).retried == 1
    # Who was told has a turn to come.
    assert (await small.requeue_lost()).retried == 0
    await bus.store._database["bus_chunks"].delete_many({"queue": subscription.queue})
    assert (await bus.run(replay, bus.replaying())).state is ReplayState.DONE
    assert len(await collected(bus.store, subscription)) == 60 - held.events


@pytest.mark.parametrize("end", ["cancelled", "removed", "failed"])
async def test_one_that_is_over_brings_nothing_more(bus: Bus, end: str) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    ways: dict[str, Callable[[], object]] = {
        "cancelled": lambda: bus.flow.cancel("token:n", "k"),
        "removed": lambda: bus.subscribing.unsubscribe("token:n", "k"),
        "failed": lambda: bus.store.bus_replays.fail(replay.id, "a fault", replay.created_at),
    }
    flush = bus.store.bus_replays.flush

    async def end_first(*args: object) -> object:
        await ways[end]()  # type: ignore[misc]
        return await flush(*args)  # type: ignore[arg-type]

    bus.store.bus_replays.flush = end_first  # type: ignore[assignment, method-assign]
    over = await bus.run(replay)
    assert over.state == ("cancelled" if end == "removed" else end)
    assert over.ended_at is not None
    assert await collected(bus.store, subscription) == []
    if end != "removed":
        bus.store.bus_replays.flush = flush  # type: ignore[method-assign]
        await bus.run(await bus.start(subscription))
        await got(bus.store, subscription, IDS)


@pytest.mark.slow
async def test_what_is_published_during_a_suspension_comes_after_it(bus: Bus) -> None:
    subscription, other = await add(bus.store, "k", "a"), await add(bus.store, "o", "a")
    async with fanning_out(bus.stream, bus.store, bus.log, bus.wakes):
        await publish(bus.store, bus.stream, bus.log, ["before"])
        await got(bus.store, subscription, ["before"])
        assert await bus.subscribing.suspend(subscription.queue, "a test") is not None
        await publish(bus.store, bus.stream, bus.log, IDS)
        await got(bus.store, other, ["before", *IDS])
        (waiting,) = await bus.store.bus_replays.page(subscription.queue, limit=2)
        assert waiting.state is ReplayState.WAITING
        assert (await bus.run(waiting)).state is ReplayState.WAITING
        await bus.subscribing.resume("token:n", "k")
        await publish(bus.store, bus.stream, bus.log, ["after"])
        await got(bus.store, other, ["before", *IDS, "after"])
        worker = bus.replaying()
        assert (await worker.requeue_lost()).retried == 1
        done = await bus.run(waiting, worker)
    assert (done.state, done.lost, done.begins_late) == (ReplayState.DONE, 0, False)
    found = Counter(await collected(bus.store, subscription))
    # What comes about when it is resumed may come twice; nothing else does.
    assert found in (Counter(["before", *IDS, "after"]), Counter(["before", *IDS, "after", "after"]))


async def test_what_the_log_has_no_more_is_told(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    spans = tuple(replace(span, log="another") for span in replay.spans)
    assert await bus.store.bus_replays.store(replay, replace(replay, spans=spans))
    done = await bus.run(replay)
    assert (done.state, done.lost, done.read) == (ReplayState.DONE, 60, 60)
    notices = await bus.store._database["bus_notices"].find({"queue": subscription.queue}).to_list()
    assert [(notice["kind"], notice["reason"], notice["events"]) for notice in notices] == [("events.lost", "log", 60)]


async def test_faults_of_ours_are_tried_again_before_it_fails(bus: Bus) -> None:
    subscription, worker = await add(bus.store, "k", "a"), bus.replaying()
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    for faults in (1, 2):
        await worker.give_up(replay.id, "a fault")
        found = await bus.store.bus_replays.get(replay.id)
        assert found is not None
        assert (found.state, found.faults) == (ReplayState.RUNNING, faults)
    arm("replay.before_flush@2=raise")
    with pytest.raises(FaultInjected):
        await bus.run(replay)
    half = await bus.store.bus_replays.get(replay.id)
    assert half is not None
    assert half.faults == 0
    for _ in range(3):
        await worker.give_up(replay.id, "a fault")
    failed = await bus.store.bus_replays.get(replay.id)
    assert failed is not None
    assert (failed.state, failed.reason) == (ReplayState.FAILED, "a fault")
    (notice,) = await bus.store._database["bus_notices"].find({"queue": subscription.queue}).to_list()
    assert (notice["reason"], notice["events"]) == ("fault", failed.total - failed.read)


async def test_a_topic_that_no_broker_knows_ends_no_replay(bus: Bus) -> None:
    if not isinstance(bus.stream, KafkaStream):
        pytest.skip("a local log is always there")
    with pytest.raises(Unavailable):
        await bus.stream.find_ranges("nobody-has-made-it")
    subscription = await add(bus.store, "k", "a")
    await publish(bus.store, bus.stream, bus.log, IDS)
    replay = await bus.start(subscription)
    gone = {f"nobody-has-made-it/{number}": LogRange(0, 9, "id") for number in range(2)}
    async with bus.stream.read_ranges(gone) as reader:
        with pytest.raises(Unavailable):
            await reader.read(0.1)
    assert (await bus.run(replay)).state is ReplayState.DONE


async def test_two_suspensions_make_two_replays(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a")
    for _ in range(2):
        assert await bus.subscribing.suspend(subscription.queue, "a test") is not None
        resumed = await bus.subscribing.resume("token:n", "k")
        assert resumed.state is SubscriptionStatus.ACTIVE
    stand = await bus.store.bus_replays.page(subscription.queue, limit=9)
    assert [(each.number, each.state) for each in stand] == [(2, ReplayState.RUNNING), (1, ReplayState.RUNNING)]
    assert [(await bus.run(each)).state for each in stand] == [ReplayState.DONE] * 2


async def bury_some(bus: Bus, subscription: EventSubscription) -> BusDeadLetter:
    """Have most of what waits lost, beyond a small limit."""
    async with fanning_out(bus.stream, bus.store, bus.log, bus.wakes):
        await publish(bus.store, bus.stream, bus.log, IDS)
        await got(bus.store, subscription, IDS)
    await BacklogUpkeep(bus.store, bus.time, BacklogLimits(10, 10**9)).run_once()
    (letter,) = await bus.store.bus_dead_letters.page("token:n", limit=9)
    assert letter.count == 60 - len(await collected(bus.store, subscription)) >= 50
    return letter


async def test_what_a_backlog_has_lost_is_brought_back(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a", state=SubscriptionStatus.PAUSED)
    letter = await bury_some(bus, subscription)
    letters = BusDeadLetterFlow(bus.store, bus.waker, bus.flow, bus.time.now)
    assert (await letters.retry_all("token:n")).retried == 0
    await letters.retry("token:n", letter.id)
    (replay,) = await bus.store.bus_replays.page(subscription.queue, limit=9)
    done = await bus.run(replay)
    assert (done.events, done.lost, done.begins_late) == (letter.count, 0, False)
    await got(bus.store, subscription, IDS)
    assert (await bus.store.bus_cursors.read([subscription.queue]))[subscription.queue].lost == 0
    with pytest.raises(NotFound):
        await letters.retry("token:n", letter.id)


async def test_what_is_in_another_log_is_gone(bus: Bus) -> None:
    subscription = await add(bus.store, "k", "a", state=SubscriptionStatus.PAUSED)
    letter = await bury_some(bus, subscription)
    letters = BusDeadLetterFlow(bus.store, bus.waker, bus.flow, bus.time.now)
    logs = dict.fromkeys(letter.logs, "another")
    await bus.store._database["bus_dead_letters"].update_one({"_id": letter.id}, {"$set": {"logs": logs}})
    with pytest.raises(Gone):
        await letters.retry("token:n", letter.id)
    await bus.store._database["bus_dead_letters"].update_one({"_id": letter.id}, {"$set": {"logs": {}}})
    with pytest.raises(Conflict, match="in which log"):
        await letters.retry("token:n", letter.id)
    await letters.discard("token:n", letter.id)
