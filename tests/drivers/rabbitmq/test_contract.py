"""What every broker promises, on each of them."""

import asyncio
import time

import pytest

from shared.clock.rules.callbacks import QueueMessage, Undeliverable
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import Broker, Delivery, Subscription
from tests.waiting import until

QUEUE = "push.batch"


@pytest.fixture(autouse=True)
async def queues(broker: Broker) -> None:
    await broker.setup((QUEUE, "push.split"))


async def publish(broker: Broker, *bodies: str, queue: str = QUEUE) -> None:
    for body in bodies:
        await broker.publish(queue, body.encode())


async def take(broker: Broker, count: int, queue: str = QUEUE) -> list[str]:
    """Take and acknowledge so many messages."""
    bodies = []
    async with broker.subscribe(queue, name="taker", prefetch=count) as subscription, asyncio.timeout(50):
        for _ in range(count):
            delivery = await anext(subscription)
            bodies.append(delivery.body.decode())
            await delivery.ack()
    return bodies


async def waits(broker: Broker, count: int, queue: str = QUEUE) -> None:
    async def look() -> bool:
        return await broker.depth(queue) == count

    await until(look)


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"x" * 300_000], ids=["empty", "binary", "many frames"])
async def test_a_message_arrives_as_it_was_sent(broker: Broker, body: bytes) -> None:
    await broker.publish(QUEUE, body)
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        delivery = await anext(subscription)
        assert delivery.body == body
        assert not delivery.redelivered


async def test_messages_keep_their_order_and_are_gone_once_acknowledged(broker: Broker) -> None:
    await publish(broker, *"abcde")
    assert await broker.depth(QUEUE) == 5
    assert await take(broker, 5) == list("abcde")
    await waits(broker, 0)


async def test_a_waiting_consumer_gets_what_is_published_later(broker: Broker) -> None:
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        coming = asyncio.ensure_future(anext(subscription))
        await publish(broker, "late")
        assert (await coming).body == b"late"


async def test_queues_are_apart(broker: Broker) -> None:
    await publish(broker, "one", queue="push.split")
    assert await broker.depth(QUEUE) == 0
    assert await take(broker, 1, "push.split") == ["one"]


async def test_a_missing_queue_is_an_error_that_names_it(broker: Broker) -> None:
    with pytest.raises(Unavailable, match=r"nowhere.*carillon init"):
        await broker.publish("nowhere", b"lost?")
    with pytest.raises(Unavailable, match="nowhere"):
        await broker.subscribe("nowhere", name="worker", prefetch=1).__aenter__()
    with pytest.raises(Unavailable, match="nowhere"):
        await broker.depth("nowhere")
    with pytest.raises(Unavailable, match="nowhere"):
        await broker.purge("nowhere")
    with pytest.raises(Unavailable, match="nowhere"):
        await broker.verify((QUEUE, "nowhere"))
    await publish(broker, "still works")
    assert await take(broker, 1) == ["still works"]


async def test_setup_again_changes_nothing(broker: Broker) -> None:
    await publish(broker, "kept")
    await broker.setup((QUEUE, "push.split"))
    await broker.verify((QUEUE, "push.split"))
    assert await take(broker, 1) == ["kept"]


async def test_no_more_than_the_prefetch_is_unanswered(broker: Broker) -> None:
    await publish(broker, *"abcde")
    async with broker.subscribe(QUEUE, name="worker", prefetch=2) as subscription:
        first, second = await anext(subscription), await anext(subscription)
        third = asyncio.ensure_future(anext(subscription))
        await broker.ping()
        assert await broker.depth(QUEUE) == 3
        assert not third.done()
        await second.ack()
        assert (await third).body == b"c"
        await waits(broker, 2)
        await first.ack()
        assert (await anext(subscription)).body == b"d"


async def test_unanswered_messages_come_back_when_the_subscription_ends(broker: Broker) -> None:
    await publish(broker, *"abcd")
    async with broker.subscribe(QUEUE, name="first", prefetch=2) as subscription:
        await (await anext(subscription)).ack()
        assert (await anext(subscription)).body == b"b"
        await waits(broker, 1)
    await waits(broker, 3)
    async with broker.subscribe(QUEUE, name="second", prefetch=3) as subscription:
        again = [await anext(subscription) for _ in range(3)]
    assert sorted(delivery.body for delivery in again) == [b"b", b"c", b"d"]
    assert {delivery.body for delivery in again if delivery.redelivered} == {b"b", b"c"}


async def test_a_subscription_that_fails_gives_back_too(broker: Broker) -> None:
    await publish(broker, "a")

    async def fail() -> None:
        async with broker.subscribe(QUEUE, name="failing", prefetch=1) as subscription:
            await anext(subscription)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await take(broker, 1) == ["a"]


async def test_requeued_messages_come_again_however_often(broker: Broker) -> None:
    await publish(broker, "not now")
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription, asyncio.timeout(50):
        for turn in range(30):
            delivery = await anext(subscription)
            assert delivery.redelivered == (turn > 0)
            await delivery.requeue()
        await (await anext(subscription)).ack()
    await waits(broker, 0)


async def test_stop_ends_the_iteration_but_not_what_is_in_hand(broker: Broker) -> None:
    await publish(broker, *"abcd")
    async with broker.subscribe(QUEUE, name="worker", prefetch=3) as subscription:
        held = await anext(subscription)
        await subscription.stop()
        await subscription.stop()
        assert [delivery async for delivery in subscription] == []
        await waits(broker, 3)
        await held.ack()
    await waits(broker, 3)
    assert sorted(await take(broker, 3)) == ["b", "c", "d"]


async def test_stop_wakes_whoever_waits(broker: Broker) -> None:
    async with broker.subscribe(QUEUE, name="worker", prefetch=3) as subscription:

        async def read() -> list[Delivery]:
            return [delivery async for delivery in subscription]

        readers = [asyncio.create_task(read()) for _ in range(3)]
        await asyncio.sleep(0)
        await subscription.stop()
        assert await asyncio.wait_for(asyncio.gather(*readers), 50) == [[], [], []]


async def test_only_the_first_answer_counts(broker: Broker) -> None:
    await publish(broker, "a", "b")
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        delivery = await anext(subscription)
        await delivery.ack()
        await delivery.requeue()
        await delivery.requeue()
        assert (await anext(subscription)).body == b"b"
    await waits(broker, 1)


async def test_an_answer_after_the_end_does_nothing(broker: Broker) -> None:
    await publish(broker, "a")
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        delivery = await anext(subscription)
    await delivery.ack()
    await delivery.requeue()
    assert await take(broker, 1) == ["a"]


async def test_two_consumers_share_a_queue(broker: Broker) -> None:
    shares: dict[str, list[bytes]] = {"one": [], "two": []}
    everything = asyncio.Event()

    async def work(name: str, subscription: Subscription) -> None:
        async for delivery in subscription:
            shares[name].append(delivery.body)
            await delivery.ack()
            if sum(map(len, shares.values())) == 200:
                everything.set()

    async with (
        broker.subscribe(QUEUE, name="one", prefetch=5) as one,
        broker.subscribe(QUEUE, name="two", prefetch=5) as two,
        asyncio.timeout(50),
        asyncio.TaskGroup() as workers,
    ):
        workers.create_task(work("one", one))
        workers.create_task(work("two", two))
        await asyncio.gather(*(broker.publish(QUEUE, b"%d" % n) for n in range(200)))
        await everything.wait()
        await asyncio.gather(one.stop(), two.stop())
    assert all(shares.values())
    assert sorted(shares["one"] + shares["two"]) == sorted(b"%d" % n for n in range(200))
    await waits(broker, 0)


async def test_purge_drops_what_waits_but_not_what_is_in_hand(broker: Broker) -> None:
    await publish(broker, *"abc")
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        await anext(subscription)
        await waits(broker, 2)
        await broker.purge(QUEUE)
        assert await broker.depth(QUEUE) == 0
    await waits(broker, 1)
    assert await take(broker, 1) == ["a"]


async def test_a_closed_broker_ends_its_subscriptions_and_stays_closed(broker: Broker) -> None:
    subscription = broker.subscribe(QUEUE, name="worker", prefetch=1)
    async with subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await broker.ping()
        await broker.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 50)
        with pytest.raises(Unavailable):
            await anext(subscription)
    with pytest.raises(Unavailable):
        await broker.publish(QUEUE, b"late")
    with pytest.raises(Unavailable):
        await broker.ping()
    await broker.close()


async def test_users_messages_are_confirmed_or_refused_one_by_one(broker: Broker) -> None:
    messages = [QueueMessage("", queue, b"{}", queue, {}) for queue in (QUEUE, "nowhere", "push.split")]
    outcomes = await broker.deliver(messages)
    refused = [isinstance(outcome, Undeliverable) for outcome in outcomes]
    assert refused == ([False, True, False] if broker.delivers else [True, True, True])
    assert await broker.depth(QUEUE) == await broker.depth("push.split") == int(broker.delivers)


async def test_a_delivery_says_how_long_it_has_waited_but_not_when_it_comes_again(broker: Broker) -> None:
    began = time.time()
    await publish(broker, "a")
    await asyncio.sleep(0.05)
    async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        delivery = await anext(subscription)
        assert delivery.waited_seconds is not None
        assert 0.04 <= delivery.waited_seconds <= time.time() - began + 0.001  # it says milliseconds
        await delivery.requeue()
        assert (await anext(subscription)).waited_seconds is None


async def test_it_tells_what_waits_and_is_in_hand(broker: Broker) -> None:
    await publish(broker, *"abcd")
    async with broker.subscribe(QUEUE, name="worker", prefetch=2) as subscription:
        await anext(subscription)

        async def is_told() -> bool:
            queues = await broker.list_queues()
            told = {queue.name: (queue.ready, queue.unacked, queue.consumers) for queue in queues}
            return told == {QUEUE: (2, 2, 1), "push.split": (0, 0, 0)}

        await until(is_told)  # RabbitMQ takes its statistics every five seconds, each kind on its own
