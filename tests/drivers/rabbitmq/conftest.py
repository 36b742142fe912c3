"""Brokers of both kinds, and RabbitMQ with its administrator."""

from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from shared.drivers.rabbitmq import Broker
from shared.drivers.rabbitmq.broker import RabbitBroker
from shared.drivers.rabbitmq.memory import MemoryBroker
from tests.drivers.rabbitmq.administration import Administration
from tests.drivers.rabbitmq.messages import QUEUE
from tests.stack import Endpoints


def patient(url: str, management_url: str) -> RabbitBroker:
    """One that a publish which hangs would make fail by its test's deadline, not by its own."""
    return RabbitBroker(
        url, management_url=management_url, connection_name="carillon worker here/1", publish_timeout_seconds=120
    )


@pytest.fixture
async def rabbit(rabbit_vhost: str, stack: Endpoints) -> AsyncIterator[RabbitBroker]:
    broker = patient(rabbit_vhost, stack.rabbit_management_url)
    yield broker
    await broker.close()


@pytest.fixture
def administration(rabbit_vhost: str, stack: Endpoints) -> Administration:
    return Administration(stack.rabbit_management_url, rabbit_vhost)


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.native)])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    each: Broker = MemoryBroker()
    if request.param == "rabbitmq":
        stack: Endpoints = request.getfixturevalue("stack")
        each = patient(request.getfixturevalue("rabbit_vhost"), stack.rabbit_management_url)
    yield each
    await each.close()


@pytest.fixture
async def user(rabbit_vhost: str) -> AsyncIterator[AbstractChannel]:
    """The user whose queues these are, with a driver of their own choice."""
    async with await aio_pika.connect(rabbit_vhost) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        yield channel
