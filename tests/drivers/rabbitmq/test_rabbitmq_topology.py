"""What `setup` makes on RabbitMQ, what `verify` misses, and what a person sees in the management UI."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.broker import RabbitBroker
from shared.drivers.rabbitmq.management import effective, policy_of
from tests.drivers.rabbitmq.administration import Administration
from tests.stack import Endpoints
from tests.waiting import until

QUEUES = ("push.split", "push.batch")


def without_management(url: str, management_url: str | None = None) -> RabbitBroker:
    return RabbitBroker(url, management_url=management_url, connection_name="carillon", publish_timeout_seconds=5)


@pytest.mark.native
async def test_queues_carry_only_their_type(rabbit: RabbitBroker, administration: Administration) -> None:
    await rabbit.setup(QUEUES)
    found = await administration.call("GET", f"queues/{administration.vhost}")
    assert {each["name"] for each in found} == {"push.split", "push.batch"}
    assert all(each["durable"] and each["arguments"] == {"x-queue-type": "quorum"} for each in found)


@pytest.mark.native
async def test_the_management_ui_shows_our_names(rabbit: RabbitBroker, administration: Administration) -> None:
    await rabbit.setup(QUEUES)

    async def shown() -> bool:
        consumers = await administration.call("GET", f"consumers/{administration.vhost}")
        return {(each["queue"]["name"], each["consumer_tag"], each["prefetch_count"]) for each in consumers} == {
            ("push.split", "plan here/1", 3),
            ("push.batch", "send here/1", 20),
        } and set(await administration.connections()) == {
            "carillon worker here/1 publish",
            "carillon worker here/1 consume",
        }

    async with (
        rabbit.subscribe("push.split", name="plan here/1", prefetch=3),
        rabbit.subscribe("push.batch", name="send here/1", prefetch=20),
    ):
        await until(shown)


@pytest.mark.native
async def test_setup_brings_changed_policies_back(rabbit: RabbitBroker, administration: Administration) -> None:
    await rabbit.setup(QUEUES)
    await administration.call("DELETE", f"policies/{administration.vhost}/push.batch")
    with pytest.raises(Unavailable, match=r"push\.batch.*carillon init"):
        await rabbit.verify(QUEUES)
    await rabbit.setup(QUEUES)
    await rabbit.verify(QUEUES)


@pytest.mark.native
async def test_verify_misses_a_policy_that_another_one_overrules(
    rabbit: RabbitBroker, administration: Administration
) -> None:
    await rabbit.setup(QUEUES)
    stronger = {"pattern": "^push", "definition": {"max-length": 10}, "priority": 50, "apply-to": "all"}
    await administration.call("PUT", f"policies/{administration.vhost}/stronger", stronger)
    with pytest.raises(Unavailable, match="max-length"):
        await rabbit.verify(QUEUES)


@pytest.mark.native
@pytest.mark.parametrize("management_url", [None, "http://guest:guest@127.0.0.1:9"], ids=["none", "away"])
async def test_without_the_management_api_what_is_there_is_enough(
    rabbit_vhost: str, rabbit: RabbitBroker, management_url: str | None
) -> None:
    alone = without_management(rabbit_vhost, management_url)
    with pytest.raises(Unavailable):
        await alone.setup(QUEUES)
    with pytest.raises(Unavailable):
        await alone.verify(QUEUES)
    await rabbit.setup(QUEUES)
    await alone.setup(QUEUES)
    await alone.verify(QUEUES)
    await alone.close()


@pytest.fixture
async def new_vhost(stack: Endpoints) -> AsyncIterator[str]:
    """The URL of a virtual host that is not there, with a name that must be quoted."""
    name = f"carillon_{secrets.token_hex(6)} 1"
    url = urlsplit(stack.rabbit_url)._replace(path="/" + name.replace(" ", "%20")).geturl()
    yield url
    await Administration(stack.rabbit_management_url, url).call("DELETE", "vhosts/" + name.replace(" ", "%20"))


@pytest.mark.native
async def test_setup_makes_the_virtual_host(new_vhost: str, stack: Endpoints) -> None:
    broker = without_management(new_vhost, stack.rabbit_management_url)
    with pytest.raises(Unavailable, match="virtual host"):
        await broker.ping()
    await broker.setup(QUEUES)
    await broker.verify(QUEUES)
    await broker.publish("push.batch", b"here")
    assert await broker.depth("push.batch") == 1
    await broker.close()


@pytest.mark.native
async def test_several_processes_may_set_up_at_once(rabbit_vhost: str, stack: Endpoints) -> None:
    brokers = [without_management(rabbit_vhost, stack.rabbit_management_url) for _ in range(4)]
    await asyncio.gather(*(broker.setup(QUEUES) for broker in brokers))
    await asyncio.gather(*(broker.verify(QUEUES) for broker in brokers))
    await asyncio.gather(*(broker.close() for broker in brokers))


def test_the_strongest_fitting_policy_rules_a_queue() -> None:
    listed = [
        {"pattern": ".*", "apply-to": "all", "priority": 0, "definition": {"a": 1}},
        {"pattern": "^push", "apply-to": "queues", "priority": 5, "definition": {"b": 2}},
        {"pattern": "^push", "apply-to": "exchanges", "priority": 9, "definition": {"c": 3}},
        {"pattern": "^pull", "apply-to": "queues", "priority": 9, "definition": {"d": 4}},
    ]
    assert effective("push.batch", listed) == {"b": 2}
    assert effective("other", listed) == {"a": 1}
    assert effective("push.batch", []) == {}


def test_a_policy_fits_its_own_queue_only() -> None:
    queue = policy_of("push.batch")
    assert effective("push.batch", [queue]) == queue["definition"]
    for other in ("push.batch.x", "my.push.batch", "pushXbatch"):
        assert effective(other, [queue]) == {}
