"""RabbitMQ's connections cut, silent and refused: what was asked fails promptly, and the next attempt works."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter
from urllib.parse import urlsplit

import pytest

from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.broker import RabbitBroker
from tests import stack as native
from tests.drivers.rabbitmq.administration import Administration
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.stack import Endpoints
from tests.waiting import until

pytestmark = pytest.mark.native

QUEUE = "push.batch"
PUBLISHING, CONSUMING = "carillon worker here/1 publish", "carillon worker here/1 consume"
PROMPT_SECONDS = 40.0  # sooner than a publish of the fixture's broker gives up


@pytest.fixture(autouse=True)
async def queues(rabbit: RabbitBroker) -> None:
    await rabbit.setup((QUEUE,))


def named(url: str, stack: Endpoints, **changes: float) -> RabbitBroker:
    return RabbitBroker(
        url,
        management_url=stack.rabbit_management_url,
        connection_name="carillon other",
        publish_timeout_seconds=changes.get("publish_timeout_seconds", 120.0),
    )


async def connection(administration: Administration, name: str) -> str:
    async def look() -> bool:
        return name in await administration.connections()

    await until(look)
    return (await administration.connections())[name]


async def everything_in(broker: RabbitBroker, queue: str = QUEUE) -> list[bytes]:
    waiting = await broker.depth(queue)
    bodies = []
    async with broker.subscribe(queue, name="reader", prefetch=500) as subscription:
        for _ in range(waiting):
            delivery = await anext(subscription)
            bodies.append(delivery.body)
            await delivery.ack()
    return bodies


@pytest.mark.slow
async def test_publishing_goes_on_after_a_cut(rabbit: RabbitBroker, administration: Administration) -> None:
    await rabbit.ping()
    victim = await connection(administration, PUBLISHING)
    confirmed: set[bytes] = set()
    failed: list[float] = []
    enough = asyncio.Event()

    async def publish(publisher: int) -> None:
        for number in count():
            if enough.is_set():
                return
            body = b"%d/%d" % (publisher, number)
            try:
                await rabbit.publish(QUEUE, body)
            except Unavailable:
                failed.append(perf_counter())
            else:
                confirmed.add(body)

    async def at_least(target: int) -> None:
        async def look() -> bool:
            return len(confirmed) >= target

        await until(look)

    async with asyncio.timeout(50), asyncio.TaskGroup() as publishers:
        for number in range(200):
            publishers.create_task(publish(number))
        await at_least(500)
        await administration.cut(victim)
        cut = perf_counter()
        await at_least(len(confirmed) + 500)
        enough.set()
    assert failed
    assert max(failed) - cut < PROMPT_SECONDS
    assert confirmed <= set(await everything_in(rabbit))


@pytest.mark.slow
async def test_every_publish_in_flight_on_a_cut_connection_fails_promptly(
    rabbit_vhost: str, rabbit: RabbitBroker, stack: Endpoints
) -> None:
    url = urlsplit(rabbit_vhost)
    proxy = SilencableProxy(url.hostname or "", url.port or 0)
    async with proxy.running():
        broker = named(url._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl(), stack)
        await broker.publish(QUEUE, b"before")
        proxy.silent = True
        burst = [asyncio.create_task(broker.publish(QUEUE, b"x" * 5_000)) for _ in range(500)]
        await until(lambda: proxy.swallowed > 500 * 5_000, "the whole burst to be in flight")
        proxy.silent = False
        proxy.cut()
        outcomes = await asyncio.wait_for(asyncio.gather(*burst, return_exceptions=True), PROMPT_SECONDS)
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes
        await broker.publish(QUEUE, b"afterwards")
        await broker.close()
    assert await everything_in(rabbit) == [b"before", b"afterwards"]


@pytest.mark.slow  # test_contract.py has what was held come back
async def test_a_connection_cut_in_mid_consume(rabbit: RabbitBroker, administration: Administration) -> None:
    for body in (b"a", b"b", b"c"):
        await rabbit.publish(QUEUE, body)
    async with rabbit.subscribe(QUEUE, name="worker", prefetch=2) as subscription:
        held, also_held = await anext(subscription), await anext(subscription)
        await administration.cut(await connection(administration, CONSUMING))
        for _ in range(2):
            with pytest.raises(Unavailable):
                await asyncio.wait_for(anext(subscription), PROMPT_SECONDS)
        await held.ack()
        await also_held.requeue()
        await subscription.stop()
    async with rabbit.subscribe(QUEUE, name="worker", prefetch=3) as subscription, asyncio.timeout(PROMPT_SECONDS):
        again = [await anext(subscription) for _ in range(3)]
    assert sorted(delivery.body for delivery in again) == [b"a", b"b", b"c"]
    assert [delivery.body for delivery in again if not delivery.redelivered] == [b"c"]


@pytest.mark.slow
async def test_a_waiting_consumer_hears_of_a_cut(rabbit: RabbitBroker, administration: Administration) -> None:
    async with rabbit.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await administration.cut(await connection(administration, CONSUMING))
        with pytest.raises(Unavailable, match="worker"):
            await asyncio.wait_for(waiting, PROMPT_SECONDS)


async def test_a_queue_deleted_under_its_consumer(rabbit: RabbitBroker, administration: Administration) -> None:
    async with rabbit.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await rabbit.ping()
        await administration.delete_queue(QUEUE)
        with pytest.raises(Unavailable, match=QUEUE):
            await asyncio.wait_for(waiting, PROMPT_SECONDS)
    with pytest.raises(Unavailable, match="carillon init"):
        await rabbit.publish(QUEUE, b"nowhere to go")
    await rabbit.setup((QUEUE,))
    await rabbit.publish(QUEUE, b"here again")
    assert await everything_in(rabbit) == [b"here again"]


@pytest.mark.slow
async def test_a_silent_line_is_noticed_by_publisher_and_consumer(
    rabbit_vhost: str, rabbit: RabbitBroker, stack: Endpoints
) -> None:
    url = urlsplit(rabbit_vhost)
    proxy = SilencableProxy(url.hostname or "", url.port or 0)
    async with proxy.running():
        through = url._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}", query="heartbeat=2").geturl()
        broker = named(through, stack, publish_timeout_seconds=5)
        await broker.publish(QUEUE, b"before")
        async with broker.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
            held = await anext(subscription)
            waiting = asyncio.ensure_future(anext(subscription))
            proxy.silent = True
            with pytest.raises(Unavailable):
                await asyncio.wait_for(broker.publish(QUEUE, b"during"), PROMPT_SECONDS)
            with pytest.raises(Unavailable):
                await asyncio.wait_for(waiting, PROMPT_SECONDS)
            await asyncio.wait_for(held.ack(), PROMPT_SECONDS)
        proxy.silent = False
        await broker.publish(QUEUE, b"after")
        await asyncio.wait_for(broker.close(), PROMPT_SECONDS)

    async def both_are_back() -> bool:
        return await rabbit.depth(QUEUE) == 2

    await until(both_are_back)
    assert sorted(await everything_in(rabbit)) == [b"after", b"before"]


@contextmanager
def frozen_rabbitmq() -> Iterator[None]:
    native.pause("rabbitmq")
    try:
        yield
    finally:
        native.unpause("rabbitmq")


@pytest.mark.alone
@pytest.mark.kills_servers
async def test_a_frozen_broker_fails_every_question_by_its_deadline(
    rabbit_vhost: str, rabbit: RabbitBroker, stack: Endpoints
) -> None:
    broker = named(rabbit_vhost, stack, publish_timeout_seconds=0.5)
    fresh = named(rabbit_vhost, stack, publish_timeout_seconds=0.5)
    await broker.publish(QUEUE, b"before")
    with frozen_rabbitmq():
        started = perf_counter()
        many = [broker.publish(QUEUE, b"during") for _ in range(50)]
        outcomes = await asyncio.gather(*many, fresh.publish(QUEUE, b"during"), return_exceptions=True)
        took = perf_counter() - started
        with pytest.raises(Unavailable):
            await broker.publish(QUEUE, b"during, on a new connection")
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes
    assert took < 20
    await eventually_published(broker, b"after")
    await eventually_published(fresh, b"after")
    assert {b"before", b"after"} <= set(await everything_in(rabbit))
    await asyncio.gather(broker.close(), fresh.close())


@pytest.mark.kills_servers
async def test_a_restarted_broker_has_kept_everything(
    rabbit_vhost: str, rabbit: RabbitBroker, stack: Endpoints
) -> None:
    # What reaches a quorum queue in the moment of its start may never be confirmed; then the deadline counts.
    impatient = named(rabbit_vhost, stack, publish_timeout_seconds=2)
    await rabbit.publish(QUEUE, b"durable")
    async with rabbit.subscribe(QUEUE, name="worker", prefetch=1) as subscription:
        held = await anext(subscription)
        waiting = asyncio.ensure_future(anext(subscription))
        # Not by SIGKILL: RabbitMQ 3.10 never gets a quorum queue going again that was made just before that.
        await asyncio.to_thread(native.restart, "rabbitmq")
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, PROMPT_SECONDS)
        await held.ack()
    await eventually_published(impatient, b"more")
    assert {b"durable", b"more"} == set(await everything_in(rabbit))
    await impatient.close()


async def eventually_published(broker: RabbitBroker, body: bytes) -> None:
    async def publish() -> bool:
        try:
            await broker.publish(QUEUE, body)
        except Unavailable:
            return False
        return True

    await until(publish)


async def test_nobody_there(stack: Endpoints) -> None:
    broker = named("amqp://guest:guest@127.0.0.1:9/none", stack)
    for question in (broker.ping(), broker.publish(QUEUE, b""), broker.depth(QUEUE), broker.purge(QUEUE)):
        with pytest.raises(Unavailable):
            await question
    with pytest.raises(Unavailable):
        await broker.subscribe(QUEUE, name="worker", prefetch=1).__aenter__()
    await broker.close()


async def test_a_vhost_that_is_missing_and_a_wrong_password(rabbit_vhost: str, stack: Endpoints) -> None:
    missing = named(rabbit_vhost + "-not", stack)
    with pytest.raises(Unavailable, match=r"virtual host \w+-not does not exist"):
        await missing.ping()
    stranger = named(rabbit_vhost.replace("guest:guest", "guest:wrong"), stack)
    with pytest.raises(Unavailable):
        await stranger.ping()
    await asyncio.gather(missing.close(), stranger.close())


@pytest.mark.slow
async def test_two_thousand_publishes_with_500_in_flight(rabbit: RabbitBroker) -> None:
    numbers = iter(range(2_000))

    async def publish() -> None:
        for number in numbers:
            await rabbit.publish(QUEUE, b"%d" % number + b"." * 200)

    await asyncio.gather(*(publish() for _ in range(500)))
    arrived = await everything_in(rabbit)
    assert sorted(int(body.rstrip(b".")) for body in arrived) == list(range(2_000))
