"""Users' messages while RabbitMQ is cut off, silent, frozen or away: nothing hangs, and no outcome claims too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aio_pika.abc import AbstractChannel
from msgspec.structs import replace

from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.broker import RabbitBroker
from tests.drivers.rabbitmq.messages import a_message, ids_in, kinds
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.drivers.rabbitmq.test_rabbitmq_failures import frozen_rabbitmq, named
from tests.stack import Endpoints
from tests.waiting import until

pytestmark = pytest.mark.native

PROMPT_SECONDS = 40.0


@asynccontextmanager
async def proxied(
    rabbit_vhost: str, stack: Endpoints, *, patience: float
) -> AsyncIterator[tuple[RabbitBroker, SilencableProxy]]:
    url = urlsplit(rabbit_vhost)
    proxy = SilencableProxy(url.hostname or "", url.port or 0)
    async with proxy.running():
        through = url._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        broker = named(through, stack, publish_timeout_seconds=patience)
        yield broker, proxy
        await broker.close()


@pytest.mark.slow
async def test_a_cut_in_mid_flight(rabbit_vhost: str, stack: Endpoints, user: AbstractChannel) -> None:
    async with proxied(rabbit_vhost, stack, patience=120) as (broker, proxy):
        confirmed: set[str] = set()
        for turn in range(3):
            start = turn * 20_000
            groups = [[a_message(number) for number in range(at, at + 200)] for at in range(start, start + 2_000, 200)]
            assert await broker.deliver([a_message(start + 19_999)]) == [None]
            going = [asyncio.create_task(broker.deliver(group)) for group in groups]
            await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            # From now on, and so for one more group, RabbitMQ confirms in vain.
            proxy.mute, proxy.swallowed = True, 0
            groups.append([a_message(number) for number in range(start + 2_000, start + 2_200)])
            going.append(asyncio.create_task(broker.deliver(groups[-1])))
            await until(lambda: proxy.swallowed, "a confirmation that is lost")
            proxy.mute = False
            proxy.cut()
            told = zip(groups, await asyncio.wait_for(asyncio.gather(*going), PROMPT_SECONDS), strict=True)
            pairs = [pair for group, outcomes in told for pair in zip(group, outcomes, strict=True)]
            assert set(kinds([outcome for _, outcome in pairs])) == {type(None), Unavailable}
            confirmed |= {message.message_id for message, outcome in pairs if outcome is None}
        assert await broker.deliver([a_message(1)]) == [None]
    assert confirmed <= set(await ids_in(user))


@pytest.mark.slow
async def test_a_silent_broker_is_given_up_at_the_deadline(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel
) -> None:
    async with proxied(rabbit_vhost, stack, patience=3) as (broker, proxy):
        assert await broker.deliver([a_message(0)]) == [None]
        proxy.silent = True
        outcomes = await asyncio.wait_for(broker.deliver([a_message(1), a_message(2, exchange="new")]), PROMPT_SECONDS)
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        proxy.silent = False
        assert await broker.deliver([a_message(3)]) == [None]
    assert await ids_in(user) == ["id-0", "id-3"]


@pytest.mark.alone
@pytest.mark.kills_servers
async def test_a_broker_that_stops_reading_is_given_up_at_the_deadline(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel
) -> None:
    broker = named(rabbit_vhost, stack, publish_timeout_seconds=1)
    large = [replace(a_message(number), body=b"x" * 50_000) for number in range(500)]
    assert await broker.deliver([a_message(1_000)]) == [None]
    with frozen_rabbitmq():
        outcomes = await asyncio.wait_for(asyncio.gather(*(broker.deliver(large) for _ in range(2))), PROMPT_SECONDS)
    assert all(isinstance(outcome, Unavailable) for group in outcomes for outcome in group)

    async def is_back() -> bool:
        return await broker.deliver([a_message(2_000)]) == [None]

    await until(is_back, "RabbitMQ to be back")
    await broker.close()


async def test_no_broker_at_all(stack: Endpoints) -> None:
    broker = named("amqp://guest:guest@127.0.0.1:1/none", stack)
    assert kinds(await broker.deliver([a_message(), a_message(1)])) == [Unavailable, Unavailable]
    await broker.close()
