"""Users' messages on RabbitMQ: what a consumer sees, and an outcome for each that is its own."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from msgspec.structs import replace

from shared.clock.rules.callbacks import DeliveryError, Header, QueueMessage, Undeliverable
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import links
from shared.drivers.rabbitmq.broker import RabbitBroker
from tests.drivers.rabbitmq.administration import Administration
from tests.drivers.rabbitmq.messages import QUEUE, a_message, ids_in, kinds
from tests.drivers.rabbitmq.test_rabbitmq_failures import named
from tests.stack import Endpoints
from tests.waiting import until

pytestmark = pytest.mark.native


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xce", b"x" * 300_000], ids=["empty", "binary", "many frames"])
async def test_a_consumer_sees_what_was_sent(rabbit: RabbitBroker, user: AbstractChannel, body: bytes) -> None:
    headers: dict[str, Header] = {"carillon-key": "42/Grüße", "carillon-attempt": 1, "ratio": 0.5, "late": False}
    assert await rabbit.deliver([QueueMessage("", QUEUE, body, "the-id", headers, "text/plain")]) == [None]
    seen = await (await user.get_queue(QUEUE)).get(no_ack=True)
    assert seen.body == body
    assert (seen.message_id, seen.content_type) == ("the-id", "text/plain")
    assert seen.delivery_mode is aio_pika.DeliveryMode.PERSISTENT
    assert {name: seen.headers[name] for name in headers} == headers


async def test_nothing_to_deliver(rabbit: RabbitBroker) -> None:
    assert await rabbit.deliver([]) == []


async def test_every_message_has_an_outcome_of_its_own(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    bound = await user.declare_exchange("bound", aio_pika.ExchangeType.TOPIC)
    await (await user.get_queue(QUEUE)).bind(bound, "training.*")
    outcomes = await rabbit.deliver(
        [
            a_message(0),
            a_message(1, "no.such.queue"),
            a_message(2, "training.new", exchange="bound"),
            a_message(3, "course.new", exchange="bound"),
            a_message(4, exchange="missing"),
            a_message(5, headers={"CC": "push.batch"}),
            a_message(6),
        ]
    )
    assert kinds(outcomes) == [type(None), Undeliverable, type(None), *[Undeliverable] * 3, type(None)]
    for place, reason in {1: "no.such.queue", 3: "course.new", 4: "no exchange 'missing'", 5: "CC"}.items():
        assert reason in str(outcomes[place])
    assert sorted(await ids_in(user)) == ["id-0", "id-2", "id-6"]


async def test_returned_ones_among_many_are_told_apart(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    messages = [a_message(number, QUEUE if number % 3 else "nowhere") for number in range(1_000)]
    outcomes = await rabbit.deliver(messages)
    assert kinds(outcomes) == [type(None) if number % 3 else Undeliverable for number in range(1_000)]
    assert sorted(await ids_in(user)) == sorted(f"id-{number}" for number in range(1_000) if number % 3)


async def test_many_groups_at_once_arrive_once_each(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    groups = [[a_message(number) for number in range(start, start + 250)] for start in range(0, 2_500, 250)]
    outcomes = await asyncio.gather(*(rabbit.deliver(group) for group in groups))
    assert outcomes == [[None] * 250] * 10
    assert sorted(await ids_in(user)) == sorted(f"id-{number}" for number in range(2_500))


async def test_a_full_queue_refuses(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    await user.declare_queue("small", arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    outcomes = await rabbit.deliver([a_message(number, "small" if number % 2 else QUEUE) for number in range(100)])
    assert kinds(outcomes[::2]) == [type(None)] * 50
    assert kinds(outcomes[1::2]) == [type(None)] * 3 + [Undeliverable] * 47
    assert "negative confirm" in str(outcomes[99])


async def test_an_exchange_that_is_missing_harms_nobody_else(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    fine = await user.declare_exchange("fine", aio_pika.ExchangeType.FANOUT)
    await (await user.declare_queue("fanned")).bind(fine)

    async def deliver(start: int) -> None:
        here = [a_message(number) for number in range(start, start + 100)]
        there = [replace(message, exchange="fine") for message in here]
        nowhere = [replace(message, exchange="missing") for message in here[:10]]
        outcomes = await rabbit.deliver([*here, *nowhere, *there])
        assert kinds(outcomes) == [*[type(None)] * 100, *[Undeliverable] * 10, *[type(None)] * 100]

    await asyncio.gather(*(deliver(start) for start in range(0, 1_000, 100)))
    everybody = sorted(f"id-{number}" for number in range(1_000))
    assert sorted(await ids_in(user)) == everybody
    assert sorted(await ids_in(user, "fanned")) == everybody


async def test_a_channel_that_is_closed_while_much_is_written_to_it(
    rabbit: RabbitBroker, user: AbstractChannel
) -> None:
    async def small(start: int) -> list[DeliveryError | None]:
        return await rabbit.deliver([a_message(number) for number in range(start, start + 200)])

    large = [replace(a_message(number, exchange="missing"), body=b"x" * 50_000) for number in range(200)]
    for turn in range(3):
        fine, refused, _ = await asyncio.gather(small(turn * 200), rabbit.deliver(large), small(10_000 + turn * 200))
        assert fine == [None] * 200
        assert kinds(refused) == [Undeliverable] * 200
    assert len(await ids_in(user)) == 1_200


async def test_an_exchange_that_comes_and_goes(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    message = a_message(exchange="coming")
    for _ in range(3):
        assert kinds(await rabbit.deliver([message])) == [Undeliverable]
        exchange = await user.declare_exchange("coming", aio_pika.ExchangeType.FANOUT)
        await (await user.get_queue(QUEUE)).bind(exchange)
        assert await rabbit.deliver([message]) == [None]
        await exchange.delete()
    assert len(await ids_in(user)) == 3


@asynccontextmanager
async def limited(
    rabbit_vhost: str, stack: Endpoints, administration: Administration, write: str
) -> AsyncIterator[tuple[RabbitBroker, str]]:
    """A broker whose user may write to exchanges of this pattern only."""
    name = f"limited-{secrets.token_hex(4)}"
    await administration.call("PUT", f"users/{name}", {"password": "secret", "tags": ""})
    try:
        rules = {"configure": "", "write": write, "read": ""}
        await administration.call("PUT", f"permissions/{administration.vhost}/{name}", rules)
        broker = named(rabbit_vhost.replace("guest:guest", f"{name}:secret"), stack, publish_timeout_seconds=10)
        yield broker, name
        await broker.close()
    finally:
        await administration.call("DELETE", f"users/{name}")


async def test_an_exchange_that_is_closed_to_us(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel, administration: Administration
) -> None:
    secret = await user.declare_exchange("secret", aio_pika.ExchangeType.FANOUT)
    await (await user.get_queue(QUEUE)).bind(secret)
    async with limited(rabbit_vhost, stack, administration, "amq.default") as (broker, _):
        for _ in range(2):
            outcomes = await broker.deliver([a_message(1), a_message(2, exchange="secret")])
            assert kinds(outcomes) == [type(None), Undeliverable]
            assert "ACCESS_REFUSED" in str(outcomes[1])
    assert await ids_in(user) == ["id-1", "id-1"]


async def test_one_that_closes_the_channel_of_its_neighbours_is_found(
    rabbit_vhost: str, stack: Endpoints, user: AbstractChannel, administration: Administration
) -> None:
    topic = await user.declare_exchange("topics", aio_pika.ExchangeType.TOPIC)
    await (await user.get_queue(QUEUE)).bind(topic, "#")
    async with limited(rabbit_vhost, stack, administration, ".*") as (broker, name):
        rules = {"exchange": "topics", "write": "^open", "read": ""}
        await administration.call("PUT", f"topic-permissions/{administration.vhost}/{name}", rules)
        keys = ["open" if number not in (20, 30) else "closed" for number in range(50)]
        outcomes = await broker.deliver([a_message(number, key, exchange="topics") for number, key in enumerate(keys)])
        assert kinds(outcomes) == [type(None) if key == "open" else Undeliverable for key in keys]
        assert "access to topic" in str(outcomes[20])
    # Those before it were taken when the channel closed, but not confirmed: they may have been sent again.
    assert set(await ids_in(user)) == {f"id-{number}" for number, key in enumerate(keys) if key == "open"}


async def test_equal_ids_are_not_mistaken_for_each_other(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    await user.declare_queue("other")
    same = [a_message(7, queue) for queue in (QUEUE, "nowhere", "other", "nowhere.else", QUEUE)]
    outcomes = await rabbit.deliver(same)
    assert kinds(outcomes) == [type(None), Undeliverable, type(None), Undeliverable, Unavailable]
    assert "nowhere" in str(outcomes[1]) and "nowhere.else" in str(outcomes[3])
    assert await ids_in(user) == ["id-7"]
    assert kinds(await rabbit.deliver(same[:2])) == [type(None), Undeliverable]


async def test_equal_messages_of_two_calls(rabbit: RabbitBroker, user: AbstractChannel) -> None:
    await rabbit.deliver([a_message(0)])
    outcomes = await asyncio.gather(*(rabbit.deliver([a_message(1)]) for _ in range(5)))
    arrived = (await ids_in(user)).count("id-1")
    assert kinds([one for (one,) in outcomes]).count(type(None)) == arrived == 1


async def test_more_exchanges_than_channels(
    rabbit: RabbitBroker, user: AbstractChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CONFIRMING_CHANNELS", 2)
    for name in "abcde":
        exchange = await user.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
        await (await user.get_queue(QUEUE)).bind(exchange)
    for _ in range(3):
        for name in "abcde":
            assert await rabbit.deliver([a_message(exchange=name)]) == [None]
    link = rabbit._deliverer._line._link
    assert link is not None and len(link._confirming) == 2
    assert len(link._raw_connection().channels) <= 3, "the last may not be closed yet"
    assert len(await ids_in(user)) == 15


async def test_tasks_and_messages_go_by_connections_of_their_own(
    rabbit: RabbitBroker, user: AbstractChannel, administration: Administration
) -> None:
    await rabbit.deliver([a_message()])
    await rabbit.ping()

    async def are_listed() -> bool:
        return {"carillon worker here/1 deliver", "carillon worker here/1 publish"} <= set(
            await administration.connections()
        )

    await until(are_listed, "both connections")
