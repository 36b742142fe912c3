"""The fan-out on the real store and on real streams, in this process: every event comes into each queue once."""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition
from msgspec import Struct
from msgspec.structs import replace

from shared.bus.flushing import UnwokenUpkeep
from shared.bus.rules.events import EVERYBODY, EventDraft, stamp
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.folding import FOLD_LIMITS
from shared.bus.rules.subscriptions import EventForm, EventSubscription, SubscriptionStatus, SubscriptionWish
from shared.bus.store_log import BusFlush, BusFlushes, FlushResult
from shared.bus.store_subscriptions import _codec
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from shared.bus.topics import TopicFlow
from shared.bus.upkeep import BusRetention
from shared.core.documents import LogEnds
from shared.core.errors import NotFound, Unavailable
from shared.core.instants import ms
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.drivers.mongo.transactions import OwnSession
from shared.drivers.secrets import KeyRing
from shared.runtime.bus_settings import BusSettings
from shared.runtime.metrics import BUS_EVENTS_LOST, BUS_UNREADABLE
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import add, change, made
from tests.services.feedback.fanning_out import Wakes, collected, fanning_out, got, log_ends, make_log, publish
from tests.stack import Endpoints
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = pytest.mark.native


@pytest.fixture
async def log(stream: Stream) -> str:
    return await make_log(stream)


async def test_every_event_comes_once_in_the_form_that_is_wanted(store: Store, stream: Stream, log: str) -> None:
    native, published = await add(store, "one", "a", "b"), await add(store, "two", "a", form=EventForm.PUBLISHED)
    ids = [str(number) for number in range(100)]
    wake = Wakes()
    async with fanning_out(stream, store, log, wake):
        await publish(store, stream, log, ids)
        await stream.publish(log, [b"not JSON", b"{}"])
        await publish(store, stream, log, ["other"], topic="b")
        await publish(store, stream, log, ["nobody's"], topic="c")
        await got(store, native, [*ids, "other"])
        await got(store, published, ids)
    assert wake.events == {native.queue: 101, published.queue: 100}
    assert await store.bus_flushes.find_unwoken(await store.now() + timedelta(days=1), 10) == []
    counts = await store.bus_topics.read_counts(["a", "b"])
    assert [counts[name][0] for name in ("a", "b")] == [100, 1]
    (first,) = await store._database["bus_chunks"].find({"queue": published.queue}).sort("_id").limit(1).to_list()
    assert set(msgspec.json.decode(first["events"][0])) == {"topic", "type", "url", "t"}
    async with fanning_out(stream, store, log, wake):
        await publish(store, stream, log, ["later"])
        await got(store, native, [*ids, "other", "later"])


async def test_who_subscribes_gets_what_is_published_after_the_answer(store: Store, stream: Stream, log: str) -> None:
    wake, expected = Wakes(), dict[str, list[str]]()
    made: list[EventSubscription] = []
    async with fanning_out(stream, store, log, wake):
        for number in range(8):
            made.append(await add(store, str(number), "a"))
            await publish(store, stream, log, [f"{number}"])
            for each in made:
                expected.setdefault(each.id, []).append(f"{number}")
        for each in made:
            await until(partial(holds, store, each, expected[each.id]), "all that came since")
        left = await change(store, made[0], topics=())
        assert left is not None
        await until(lambda: holds(store, made[0], expected[made[0].id]), "the queue to stand")
        before = await collected(store, made[0])
        await publish(store, stream, log, ["after"])
        await until(lambda: holds(store, made[1], ["after"]), "the last event")
        assert await collected(store, made[0]) == before


async def holds(store: Store, subscription: EventSubscription, ids: Sequence[str]) -> bool:
    return set(ids) <= set(await collected(store, subscription))


async def test_paused_ones_collect_and_suspended_ones_do_not(store: Store, stream: Stream, log: str) -> None:
    paused, suspended = await add(store, "p", "a"), await add(store, "s", "a")
    assert await change(store, paused, state=SubscriptionStatus.PAUSED)
    assert await change(store, suspended, state=SubscriptionStatus.SUSPENDED)
    async with fanning_out(stream, store, log, Wakes()):
        await publish(store, stream, log, ["1"])
        await got(store, paused, ["1"])
    assert await collected(store, suspended) == []


async def test_two_fan_outs_that_hold_the_same_records_bring_them_once(store: Store, stream: Stream, log: str) -> None:
    subscription, wake = await add(store, "one", "a"), Wakes()
    ids = [str(number) for number in range(300)]
    async with fanning_out(stream, store, log, wake), fanning_out(stream, store, log, wake):
        await publish(store, stream, log, ids[:150])
        await got(store, subscription, ids[:150])
        await publish(store, stream, log, ids[150:])
        await got(store, subscription, ids)
    assert wake.events[subscription.queue] >= 300


async def test_queues_that_could_not_be_woken_are_woken_by_upkeep(store: Store, stream: Stream, log: str) -> None:
    subscription, wake = await add(store, "one", "a"), Wakes()
    wake.down = True
    async with fanning_out(stream, store, log, wake):
        await publish(store, stream, log, ["1", "2"])
        await got(store, subscription, ["1", "2"])
    wake.down = False
    upkeep = UnwokenUpkeep(store, wake, DatabaseTime(store).now)
    await upkeep.run_once(after=timedelta(hours=1))
    assert not wake.events
    await upkeep.run_once(after=-timedelta(seconds=1))
    assert wake.events == {subscription.queue: 2}
    await upkeep.run_once(after=-timedelta(seconds=1))
    assert wake.events == {subscription.queue: 2}


async def test_the_events_of_an_entity_keep_the_order_of_the_log(store: Store, stream: Stream, log: str) -> None:
    subscription, at = await add(store, "one", "a"), ms(await store.now())
    async with fanning_out(stream, store, log, Wakes()):
        for number in range(120):
            draft = EventDraft("update", "https://x/same", t=msgspec.Raw(str(number).encode()))
            record = stamp(draft, topic="a", id=str(number), at=at)
            await stream.publish(log, [record], keys=[b"a\0https://x/same"])
        await got(store, subscription, ["same"] * 120)
    chunks = await store._database["bus_chunks"].find({"queue": subscription.queue}).sort("_id").to_list()
    assert [msgspec.json.decode(event)["t"] for chunk in chunks for event in chunk["events"]] == list(range(120))


@pytest.mark.parametrize("on_new_log", and_rarely("beginning", rarely=("end",)))
async def test_a_log_in_the_place_of_another_is_read_from_where_it_is_told(
    store: Store, stack: Endpoints, on_new_log: str
) -> None:
    stream = KafkaStream(KafkaServers(stack.kafka_servers))
    log, subscription = await make_log(stream), await add(store, "one", "a")
    async with fanning_out(stream, store, log, Wakes()):
        await publish(store, stream, log, ["1", "2", "3"])
        await got(store, subscription, ["1", "2", "3"])
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.delete_topics([log])
    await until(lambda: is_gone(admin, log), "the topic to go")
    await admin.close()
    await stream.setup({log: 3})
    old = [f"old {number}" for number in range(90)]
    await publish(store, stream, log, old)
    there = ["1", "2", "3", *(old if on_new_log == "beginning" else [])]
    async with fanning_out(stream, store, log, Wakes(), on_new_log=on_new_log):
        await until(lambda: stands_at(store, log, 90), "the new log to be read")
        await publish(store, stream, log, ["new"])
        await got(store, subscription, [*there, "new"])
    await stream.close()


async def is_gone(admin: AIOKafkaAdminClient, topic: str) -> bool:
    return topic not in await admin.list_topics()


async def stands_at(store: Store, log: str, total: int) -> bool:
    found = await store.bus_flushes.read_positions([f"{log}/{number}" for number in range(3)])
    return sum(each.position.offset for each in found.values() if each.position.left) == total


@pytest.mark.parametrize("on_new_log", and_rarely("end", rarely=("beginning",)))
async def test_a_log_that_ends_before_the_position_is_read_from_where_it_is_told(
    store: Store, stream: Stream, on_new_log: str
) -> None:
    """As a log does that lost its end, or was restored from elsewhere under the same id."""
    log, subscription = f"bus-{secrets.token_hex(5)}", await add(store, "one", "a")
    await stream.setup({log: 1})
    async with fanning_out(stream, store, log, Wakes()):
        await publish(store, stream, log, ["1", "2", "3"])
        await got(store, subscription, ["1", "2", "3"])
    await move_position(store, f"{log}/0", 10)
    lost = BUS_EVENTS_LOST.labels("other", "log")._value.get()
    async with fanning_out(stream, store, log, Wakes(), on_new_log=on_new_log):
        await until(lambda: stands_before(store, f"{log}/0", 4), "the log to be read from its beginning")
        await publish(store, stream, log, ["new"])
        again = ["1", "2", "3"] if on_new_log == "beginning" else []
        await got(store, subscription, ["1", "2", "3", *again, "new"])
    assert (told := BUS_EVENTS_LOST.labels("other", "log")._value.get() - lost) == 4 - 3 * (on_new_log == "beginning")
    async with fanning_out(stream, store, log, Wakes(), on_new_log=on_new_log):
        await publish(store, stream, log, ["last"])
        await got(store, subscription, ["1", "2", "3", *again, "new", "last"])
    assert BUS_EVENTS_LOST.labels("other", "log")._value.get() - lost == told
    assert await noticed(store) == [("log.replaced", EVERYBODY, told)]


async def noticed(store: Store) -> list[tuple[str, str, int]]:
    found = store._database["bus_notices"].find({})
    return [(notice["kind"], notice["audience"], notice["events"]) async for notice in found]


async def move_position(store: Store, partition: str, offset: int) -> None:
    await store._database["bus_positions"].update_one({"_id": partition}, {"$set": {"position": offset}})


async def stands_before(store: Store, partition: str, offset: int) -> bool:
    return (await store.bus_flushes.read_positions([partition]))[partition].position.offset < offset


async def test_all_that_another_local_log_has_is_passed_over_where_that_is_wanted(store: Store, tmp_path: Path) -> None:
    """However many reads it takes: one has 5,000 records at most."""
    subscription, lost = await add(store, "one", "a"), BUS_EVENTS_LOST.labels("other", "log")._value.get()
    for name, there in (("old.db", 1), ("new.db", 5_200)):
        stream = LocalStream(tmp_path / name)
        await stream.setup({"log": 1})
        await stream.publish("log", [stamp(EventDraft("update", "https://x/1"), topic="a", id="1", at=1)] * there)
        async with fanning_out(stream, store, "log", Wakes(), limits=FOLD_LIMITS, on_new_log="end"):
            if there > 1:
                await until(lambda: stands_from(store, "log/0", 5_200), "the new log to be passed over")
                await publish(store, stream, "log", ["new"])
            await got(store, subscription, ["1", "new"] if there > 1 else ["1"])
        await stream.close()
    assert BUS_EVENTS_LOST.labels("other", "log")._value.get() - lost == 1 + 5_200
    assert await noticed(store) == [("log.replaced", EVERYBODY, 1 + 5_200)]


async def stands_from(store: Store, partition: str, offset: int) -> bool:
    return not await stands_before(store, partition, offset)


@pytest.mark.slow
async def test_an_event_for_more_queues_than_a_flush_has_room_for_comes_into_each_once(
    store: Store, stream: Stream, log: str
) -> None:
    """Two fan-outs hold it, and a third goes on where they stopped, while subscriptions change."""
    many, wake = [await add(store, f"k{number}", "a") for number in range(40)], Wakes()
    ids = ["1", "2", "3"]
    async with fanning_out(stream, store, log, wake), fanning_out(stream, store, log, wake):
        await publish(store, stream, log, ids)
        await until(lambda: is_begun(store), "a part of an event to be brought")
        await add(store, "new", "b")
    async with fanning_out(stream, store, log, wake):
        for each in many:
            await got(store, each, ids)
    assert (await store.bus_topics.read_counts(["a"]))["a"][0] == len(ids)
    assert all(wake.events[each.queue] >= len(ids) for each in many)


async def is_begun(store: Store) -> bool:
    return await store._database["bus_positions"].count_documents({"flush": {"$gt": ""}}) > 0


@pytest.mark.slow
async def test_a_large_event_for_very_many_queues_stops_nobody(store: Store, tmp_path: Path) -> None:
    """It would be 48 MB at once, which the store's cache has no room for."""
    one, stream = await add(store, "one", "a"), LocalStream(tmp_path / "stream.db")
    subscriptions = [_codec.document(made(f"k{number}", "a", version=one.version)) for number in range(3_000)]
    await store._database["bus_subscriptions"].insert_many(subscriptions)
    await stream.setup({"log": 1})
    async with fanning_out(stream, store, "log", Wakes(), limits=FOLD_LIMITS):
        draft = EventDraft("update", "https://x/1", data=msgspec.Raw(b'"' + b"x" * 16_000 + b'"'))
        await stream.publish("log", [stamp(draft, topic="a", id="1", at=1)])
        await publish(store, stream, "log", ["2"])
        await got(store, one, ["1", "2"])
        await until(lambda: stands_from(store, "log/0", 2), "both to be brought")
    found = await store._database["bus_chunks"].aggregate([{"$group": {"_id": "$queue", "n": {"$sum": "$n"}}}])
    assert Counter(each["n"] for each in await found.to_list()) == {2: 3_001}
    await stream.close()


async def test_a_log_that_was_cut_at_its_head_goes_on_at_the_first_record_that_is_left(
    store: Store, stack: Endpoints
) -> None:
    stream = KafkaStream(KafkaServers(stack.kafka_servers))
    log, subscription = f"bus-{secrets.token_hex(5)}", await add(store, "one", "a")
    await stream.setup({log: 1})
    async with fanning_out(stream, store, log, Wakes()):
        await publish(store, stream, log, ["1"])
        await got(store, subscription, ["1"])
    await publish(store, stream, log, ["2", "3", "4"])
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.delete_records({TopicPartition(log, 0): RecordsToDelete(before_offset=3)})
    await admin.close()
    lost = BUS_EVENTS_LOST.labels("other", "log")._value.get()
    async with fanning_out(stream, store, log, Wakes()):
        await got(store, subscription, ["1", "4"])
    assert BUS_EVENTS_LOST.labels("other", "log")._value.get() - lost == 2
    assert await noticed(store) == [("events.lost", EVERYBODY, 2)]
    await stream.close()


@pytest.mark.slow
async def test_who_changes_subscriptions_all_the_time_holds_up_nobody(
    store: Store, stream: Stream, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, sizes = await add(store, "one", "a"), list[int]()
    flush = BusFlushes.flush

    async def flush_late(flushes: BusFlushes, folded: BusFlush, session: OwnSession) -> FlushResult:
        sizes.append(sum(wake.events for wake in folded.wakes))
        if sizes[-1] > 2:  # so many take long enough for somebody to have changed something meanwhile
            await add(store, f"other{len(sizes)}", "b")
        return await flush(flushes, folded, session)

    monkeypatch.setattr(BusFlushes, "flush", flush_late)
    ids = [str(number) for number in range(20)]
    async with fanning_out(stream, store, log, Wakes()):
        await publish(store, stream, log, ids)
        await got(store, wanted, ids)
    assert max(sizes) > 2


DELETES = EventFilter(types=("delete",))


class Case(Struct):
    """A subscription in a namespace of its own, with a topic of its own."""

    subscribing: Subscribing
    topics: TopicFlow
    namespace: str = "token:n"
    topic: str = "b"

    async def subscribe(self, namespace: str = "", **fields: Any) -> EventSubscription:
        made = SubscriptionWish(
            namespace=namespace or self.namespace, key="k", callback="https://r.example/", topics=("a", self.topic)
        )
        return (await self.subscribing.subscribe(replace(made, **fields))).subscription

    async def leave(self) -> None:
        await self.subscribing.leave_topic(self.namespace, "k", self.topic)

    async def delete(self) -> None:
        await self.topics.remove(self.topic, namespace=None, of_others=True)

    async def remove(self) -> None:
        await self.subscribing.unsubscribe(self.namespace, "k")

    async def put_less(self) -> None:
        await self.subscribe(topics=("a",))

    async def put_none(self) -> None:
        await self.subscribe(topics=())

    async def narrow(self) -> None:
        await self.subscribe(filter=DELETES)

    async def put_other(self) -> None:
        await self.subscribe(filter=DELETES, topics=("c",))

    async def put_all(self) -> None:
        await self.subscribe(filter=EventFilter())


CHANGES: Sequence[tuple[Sequence[Callable[[Case], Awaitable[None]]], Sequence[str]]] = [
    ([Case.leave], ["before"]),
    ([Case.delete], ["before"]),
    ([Case.put_less], ["before"]),
    ([Case.put_none], ["before"]),
    ([Case.narrow], ["before"]),
    ([Case.put_other], ["before"]),
    ([Case.narrow, Case.delete], ["before"]),
    ([Case.leave, Case.delete], ["before"]),
    ([Case.leave, Case.put_all], ["before", "after"]),
    ([Case.delete, Case.put_all], ["before", "after"]),
    ([Case.narrow, Case.put_all], ["before", "after"]),
    ([Case.remove, Case.put_all], ["before", "after"]),  # a new one, which collects what is not read yet
    ([Case.leave, Case.remove], []),
    ([Case.delete, Case.remove, Case.put_all], ["after"]),
]


@pytest.mark.proof
async def test_what_was_accepted_before_a_change_comes_after_it(store: Store, stream: Stream, log: str) -> None:
    now, ends = DatabaseTime(store).now, log_ends(stream, log)
    subscribing = Subscribing(store, KeyRing([]), now, SubscriptionQuotas(per_namespace=50, topics=5), ends)
    cases = [
        Case(subscribing, TopicFlow(store, now, ends, most=50), f"token:{number}", f"b{number}")
        for number in range(len(CHANGES))
    ]
    last, others = list[EventSubscription](), list[EventSubscription]()
    for case, (changes, _) in zip(cases, CHANGES, strict=True):
        made = await case.subscribe()
        await case.topics.claim(case.topic, "token:owner")
        await publish(store, stream, log, ["before"], topic=case.topic)
        for make in changes:
            await make(case)
        if Case.delete in changes:
            await case.topics.claim(case.topic, "token:another")
        others.append(await case.subscribe("token:other", key=case.topic, topics=(case.topic,)))
        await publish(store, stream, log, ["after"], topic=case.topic)
        last.append(await subscribing.find(case.namespace, "k") or made)
    async with fanning_out(stream, store, log, Wakes()):
        for subscription, other, (changes, expected) in zip(last, others, CHANGES, strict=True):
            await got(store, other, ["after"] if Case.delete in changes else ["before", "after"])
            assert sorted(await collected(store, subscription)) == sorted(expected), changes
    await BusRetention(store, DatabaseTime(store), BusSettings()).run_once()
    assert await store.bus_subscriptions.find_with_former(10) == []
    async with fanning_out(stream, store, log, Wakes()):
        for case in cases:
            await publish(store, stream, log, ["later"], topic=case.topic)
        for subscription, other, (changes, expected) in zip(last, others, CHANGES, strict=True):
            await until(partial(holds, store, other, ["later"]), "what is published last")
            assert ("later" in await collected(store, subscription)) is ("after" in expected), changes


async def test_without_the_log_a_topic_is_neither_left_nor_deleted(store: Store) -> None:
    async def fail() -> LogEnds:
        raise Unavailable("the log does not answer")

    now = DatabaseTime(store).now
    subscribing = Subscribing(store, KeyRing([]), now, SubscriptionQuotas(per_namespace=5, topics=5), fail)
    case = Case(subscribing, TopicFlow(store, now, fail, most=5))
    made = await case.subscribe()
    await case.topics.claim("b", "token:owner")
    for make in (case.leave, case.delete, case.put_less, case.narrow):
        with pytest.raises(Unavailable):
            await make()
    assert await subscribing.get("token:n", "k") == made
    await case.subscribe(topics=("a", "b", "c"))
    await case.remove()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_to_a_subscription_each_event_comes_once_and_others_get_all(
    store: Store, stream: Stream, log: str, seed: int
) -> None:
    """Its filter changes, it is removed and made again under its key, its topic is deleted and made again; two fan-outs
    read the log meanwhile, and one of them comes and goes."""
    chance, now, ends = Random(seed), DatabaseTime(store).now, log_ends(stream, log)
    subscribing = Subscribing(store, KeyRing([]), now, SubscriptionQuotas(per_namespace=5, topics=5), ends)
    topics = TopicFlow(store, now, ends, most=5)
    wish = SubscriptionWish(namespace="token:n", key="moving", callback="https://r.example/", topics=("a", "b"))
    steady, queues = await add(store, "steady", "a"), dict[str, EventSubscription]()

    async def subscribe(wanted: EventFilter) -> None:
        moving = (await subscribing.subscribe(replace(wish, filter=wanted))).subscription
        queues[moving.queue] = moving

    async def delete_topic() -> None:
        with suppress(NotFound):
            await topics.remove("b", namespace=None, of_others=True)

    async def leave() -> None:
        with suppress(NotFound):
            await subscribing.unsubscribe("token:n", "moving")

    async def publish_some(first: int) -> list[str]:
        ids = [str(number) for number in range(first, first + 6)]
        await publish(store, stream, log, ids[:4])
        await publish(store, stream, log, ids[4:], topic="b")
        return ids[:4]

    published = list[str]()
    filters = [EventFilter(), EventFilter(types=("update",)), EventFilter(types=("delete",))]
    asks: list[Callable[[], Awaitable[None]]] = [
        *(partial(subscribe, wanted) for wanted in filters),
        delete_topic,
        leave,
    ]
    async with fanning_out(stream, store, log, Wakes()):
        for turn in range(20):
            other = fanning_out(stream, store, log, Wakes()) if turn % 2 else nullcontext()
            async with other:
                await chance.choice(asks)()
                published += await publish_some(turn * 6)
        await subscribe(EventFilter())
        last = [str(number) for number in range(1_000, 1_006)]
        published += await publish_some(1_000)
        moving = list(queues.values())[-1]
        await got(store, steady, published)
        await until(lambda: holds(store, moving, last), "the last events")
    for each in queues.values():
        found = Counter(await collected(store, each))
        assert max(found.values(), default=1) == 1, found


@pytest.mark.parametrize("wrong", [{"filter.data": [{"path": "/a", "op": "matches"}]}, {"state": "resting"}])
async def test_what_a_later_version_has_written_is_left_to_it_and_nobody_misses_anything(
    store: Store, stream: Stream, log: str, wrong: dict[str, Any]
) -> None:
    one, wakes = await add(store, "one", "a"), Wakes()
    async with fanning_out(stream, store, log, wakes):
        await publish(store, stream, log, ["1"])
        await got(store, one, ["1"])
        later = await add(store, "later", "a")
        known = await store._database["bus_subscriptions"].find_one({"_id": later.id})
        assert known is not None
        await store._database["bus_subscriptions"].update_one({"_id": later.id}, {"$set": wrong})
        await publish(store, stream, log, ["2"])
        await until(lambda: BUS_UNREADABLE._value.get() == 1, "it to be met")
        assert await collected(store, one) == ["1"]
        assert await collected(store, later) == []
        # In place of the process of the later version that reads it.
        await store._database["bus_subscriptions"].replace_one({"_id": later.id}, known)
        await got(store, one, ["1", "2"])
        await got(store, later, ["2"])
    assert BUS_UNREADABLE._value.get() == 0
