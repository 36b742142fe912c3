"""Publishing answers once the log has the events, in time, and what is refused leaves nothing."""

import asyncio
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from shared.bus.rules.events import BusEvent, EventDraft, read_event
from shared.bus.topics import EventPublisher, TopicFlow
from shared.core.errors import Forbidden, Unavailable
from shared.core.instants import ms
from shared.drivers.kafka import LateRecords, Stream
from shared.runtime.bus_settings import BusSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import no_log
from tests.waiting import until

pytestmark = pytest.mark.native

US, THEM = "token:us", "token:them"


@pytest.fixture
def stream(either_stream: Stream) -> Stream:
    return either_stream


@pytest.fixture
async def log(stream: Stream) -> str:
    name = f"bus-{secrets.token_hex(5)}"
    await stream.setup({name: 4})
    return name


def publisher_of(store: Store, stream: Any, log: str, *, seconds: float = 4.0) -> EventPublisher:
    now = DatabaseTime(store).now
    settings = BusSettings(log_topic=log, publish_seconds=seconds)
    return EventPublisher(TopicFlow(store, now, no_log, most=2), stream, now, settings)


def draft(number: int, **fields: Any) -> EventDraft:
    return EventDraft("update", f"https://x.example/{number}", **fields)


async def read(stream: Stream, log: str, count: int) -> dict[str, list[BusEvent]]:
    """The events of the log, by partition."""
    found: dict[str, list[BusEvent]] = {}
    async with stream.reader(log, group=secrets.token_hex(5)) as reader:

        async def has_read_all() -> bool:
            for chunk in await reader.read(1.0):
                events = [read_event(value) for value in chunk.values if value is not None]
                found.setdefault(chunk.partition, []).extend(event for event in events if event is not None)
            return sum(map(len, found.values())) >= count

        await until(has_read_all, f"{count} events")
    return found


async def test_an_event_is_in_the_log_with_its_arrival_and_an_id(store: Store, stream: Stream, log: str) -> None:
    publisher, before = publisher_of(store, stream, log), await store.now()
    given = draft(2, t=msgspec.Raw(b"17.50"), data=msgspec.Raw(b'{"a":1}'), id="own")
    ids = await publisher.publish("widgets", US, [draft(1), given])
    after = await store.now()
    events = {event.id: event for found in (await read(stream, log, 2)).values() for event in found}
    assert list(events.keys() - {"own"}) == [ids[0]]
    assert ids[1] == "own"
    plain, full = events[ids[0]], events["own"]
    assert ms(before - timedelta(milliseconds=50)) <= plain.at <= ms(after)
    assert bytes(plain.t) == str(plain.at).encode()
    assert (bytes(full.t), full.data) == (b"17.50", msgspec.Raw(b'{"a":1}'))
    assert (full.topic, full.url) == ("widgets", "https://x.example/2")


async def test_many_who_publish_at_once_all_find_theirs_in_order(store: Store, stream: Stream, log: str) -> None:
    publisher = publisher_of(store, stream, log)

    async def publish(entity: int) -> None:
        for number in range(10):
            t = msgspec.Raw(str(number).encode())
            await publisher.publish("widgets", US, [draft(entity, t=t)])

    await asyncio.gather(*map(publish, range(25)))
    by_partition = await read(stream, log, 250)
    places: dict[str, set[str]] = {}
    numbers: dict[str, list[int]] = {}
    for partition, events in by_partition.items():
        for event in events:
            places.setdefault(event.url, set()).add(partition)
            numbers.setdefault(event.url, []).append(int(bytes(event.t)))
    assert all(len(found) == 1 for found in places.values())
    assert list(numbers.values()) == [list(range(10))] * 25


class Counting:
    """A log that counts its appends; it has answered once it is `open`, but for the records of keys that are `late`."""

    def __init__(self) -> None:
        self.appends: list[int] = []
        self.late: dict[bytes, asyncio.Future[None]] = {}
        self.open = asyncio.Event()

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], **_: float
    ) -> Sequence[LateRecords]:
        self.appends.append(len(values))
        await self.open.wait()
        return [LateRecords([place], self.late[key]) for place, key in enumerate(keys) if key in self.late]


async def test_what_comes_while_an_append_is_under_way_goes_together(store: Store) -> None:
    log = Counting()
    publisher = publisher_of(store, log, "log")
    await TopicFlow(store, DatabaseTime(store).now, no_log, most=9).claim("widgets", US)
    first = asyncio.create_task(publisher.publish("widgets", US, [draft(0)]))
    await until(lambda: log.appends, "the first append")
    others = [asyncio.create_task(publisher.publish("widgets", US, [draft(number)])) for number in range(50)]
    await until(lambda: len(publisher._append._waiting) == 50, "all others to wait")
    log.open.set()
    assert len({id for found in await asyncio.gather(first, *others) for id in found}) == 51
    assert log.appends == [1, 50]


async def test_of_those_who_go_together_one_may_be_refused_and_another_claim_its_topic(store: Store) -> None:
    log = Counting()
    publisher = publisher_of(store, log, "log")
    await TopicFlow(store, DatabaseTime(store).now, no_log, most=9).claim("widgets", US)
    first = asyncio.create_task(publisher.publish("widgets", US, [draft(0)]))
    await until(lambda: log.appends, "the first append")
    places = (("widgets", US), ("widgets", THEM), ("gadgets", THEM))
    tasks = [asyncio.create_task(publisher.publish(*place, [draft(1)])) for place in places]
    await until(lambda: len(publisher._append._waiting) == len(tasks), "all others to wait")
    log.open.set()
    _, ours, refused, theirs = await asyncio.gather(first, *tasks, return_exceptions=True)
    assert isinstance(refused, Forbidden)
    assert (len(ours), len(theirs)) == (1, 1)  # type: ignore[arg-type] # else these were refused
    assert log.appends == [1, 1, 1]
    assert (await store.bus_topics.with_names(["gadgets"]))["gadgets"].owner == THEM


async def test_a_topic_that_was_removed_is_made_anew_by_the_next_event(store: Store) -> None:
    log = Counting()
    log.open.set()
    publisher = publisher_of(store, log, "log")
    await publisher.publish("widgets", US, [draft(0)])
    await TopicFlow(store, DatabaseTime(store).now, no_log, most=9).remove("widgets", namespace=US, of_others=True)
    await publisher.publish("widgets", US, [draft(1)])
    assert (await store.bus_topics.with_names(["widgets"]))["widgets"].owner == US
    assert log.appends == [1, 1]


async def test_a_log_that_does_not_answer_is_unavailable_in_time(store: Store) -> None:
    publisher = publisher_of(store, Counting(), "log", seconds=0.5)
    async with asyncio.timeout(50):
        with pytest.raises(Unavailable):
            await publisher.publish("widgets", US, [draft(0)])


async def test_what_is_refused_is_not_in_the_log(store: Store) -> None:
    log = Counting()
    log.open.set()
    publisher = publisher_of(store, log, "log")
    await publisher.publish("widgets", US, [draft(0)])
    await publisher.publish("gadgets", US, [draft(0)])
    for name, namespace in (("widgets", THEM), ("third", US)):
        with pytest.raises(Forbidden):
            await publisher.publish(name, namespace, [draft(0)])
    assert log.appends == [1, 1]
    assert await store.bus_topics.get("third") is None


async def test_who_waits_for_a_partition_that_does_not_answer_holds_up_nobody(store: Store) -> None:
    log = Counting()
    publisher = publisher_of(store, log, "log", seconds=60)
    await TopicFlow(store, DatabaseTime(store).now, no_log, most=9).claim("widgets", US)
    log.late[b"widgets\0https://x.example/0"] = late = asyncio.get_running_loop().create_future()
    log.open.set()
    held = asyncio.create_task(publisher.publish("widgets", US, [draft(0)]))
    both = asyncio.create_task(publisher.publish("widgets", US, [draft(1), draft(0)]))
    async with asyncio.timeout(50):
        for number in range(1, 4):
            await publisher.publish("widgets", US, [draft(number)])
    assert not held.done()
    assert not both.done()
    late.set_exception(Unavailable("no leader"))
    for waiting in (held, both):
        with pytest.raises(Unavailable):
            await waiting


async def test_a_partition_that_does_not_answer_in_time_is_unavailable_and_asked_for_again(store: Store) -> None:
    log = Counting()
    publisher = publisher_of(store, log, "log", seconds=0.5)
    await TopicFlow(store, DatabaseTime(store).now, no_log, most=9).claim("widgets", US)
    log.late[b"widgets\0https://x.example/0"] = late = asyncio.get_running_loop().create_future()
    log.open.set()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await publisher.publish("widgets", US, [draft(0)])
    assert not late.done()  # nobody who gives up takes others along
