"""Users' messages while RabbitMQ is cut off, silent, frozen or away: nothing hangs, and no outcome claims too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aio_pika.abc import AbstractChannel
from msgspec.structs import replace

from shared.broker.rabbitmq import RabbitBroker
from shared.domain.errors import Unavailable
from tests.broker.messages import a_message, ids_in, kinds
from tests.broker.proxy import SilencableProxy
from tests.broker.test_rabbitmq_failures import frozen_rabbitmq, named
from tests.stack import Endpoints

pytestmark = pytest.mark.native

PROMPT_SECONDS = 5.0


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


@pytest.mark.chaos
async def test_a_cut_in_mid_flight(rabbit_vhost: str, stack: Endpoints, user: AbstractChannel) -> None:
    async with proxied(rabbit_vhost, stack, patience=30) as (broker, proxy):
        confirmed: set[str] = set()
        lost = 0
        for turn in range(3):
            start = turn * 20_000
            groups = [[a_message(number) for number in range(at, at + 500)] for at in range(start, start + 5_000, 500)]
            assert await broker.deliver([a_message(start + 19_999)]) == [None]
            going = [asyncio.create_task(broker.deliver(group)) for group in groups]
            await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            proxy.cut()
            for group, outcomes in zip(
                groups, await asyncio.wait_for(asyncio.gather(*going), PROMPT_SECONDS), strict=True
            ):
                assert set(kinds(outcomes)) <= {type(None), Unavailable}
                confirmed |= {each.message_id for each, one in zip(group, outcomes, strict=True) if one is None}
                lost += sum(one is not None for one in outcomes)
        assert lost, "everything was over before the cuts"
        assert await broker.deliver([a_message(1)]) == [None]
    assert confirmed <= set(await ids_in(user))


@pytest.mark.chaos
async def test_a_silent_broker_is_given_up_at_the_deadline(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel
) -> None:
    async with proxied(rabbit_vhost, stack, patience=0.5) as (broker, proxy):
        assert await broker.deliver([a_message(0)]) == [None]
        proxy.silent = True
        outcomes = await asyncio.wait_for(broker.deliver([a_message(1), a_message(2, exchange="new")]), PROMPT_SECONDS)
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        proxy.silent = False
        assert await broker.deliver([a_message(3)]) == [None]
    assert await ids_in(user) == ["id-0", "id-3"]


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_broker_that_stops_reading_is_given_up_at_the_deadline(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel
) -> None:
    broker = named(rabbit_vhost, stack, publish_timeout_seconds=1)
    large = [replace(a_message(number), body=b"x" * 50_000) for number in range(500)]
    assert await broker.deliver([a_message(1_000)]) == [None]
    with frozen_rabbitmq():
        outcomes = await asyncio.wait_for(asyncio.gather(*(broker.deliver(large) for _ in range(2))), PROMPT_SECONDS)
    assert all(isinstance(outcome, Unavailable) for group in outcomes for outcome in group)
    async with asyncio.timeout(30):
        while await broker.deliver([a_message(2_000)]) != [None]:
            pass
    await broker.close()


async def test_no_broker_at_all(stack: Endpoints) -> None:
    broker = named("amqp://guest:guest@127.0.0.1:1/none", stack)
    assert kinds(await broker.deliver([a_message(), a_message(1)])) == [Unavailable, Unavailable]
    await broker.close()
