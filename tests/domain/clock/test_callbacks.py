"""Where callbacks may go: never to our own queues, and only to exchanges and topics of the deployment's list."""

import pytest

from shared.domain.clock.callbacks import (
    KafkaCallback,
    RabbitCallback,
    Targets,
    check_name,
    check_queue_target,
    check_topic_target,
)
from shared.domain.errors import Invalid

TARGETS = Targets(exchanges=frozenset({"events", "ex" * 20}), topics=frozenset({"orders", "a.b_c-d", "no/topic"}))


def to_queue(queue: str = "", exchange: str = "", routing_key: str = "", targets: Targets = TARGETS) -> None:
    callback = RabbitCallback(payload="1", queue=queue, exchange=exchange, routing_key=routing_key)
    check_queue_target(callback, targets, field="callback")


def to_topic(topic: str, targets: Targets = TARGETS) -> None:
    check_topic_target(KafkaCallback(payload="1", topic=topic), targets, field="callback")


@pytest.mark.parametrize("queue", ["orders", "pushes", "schedule", "my.push.queue", "dlq", "a.dlq.b", "é" * 127])
def test_a_callers_queue_is_open(queue: str) -> None:
    to_queue(queue)


@pytest.mark.parametrize(
    "queue",
    [
        "push.send",
        "push.",
        "PUSH.send",
        "sched.fire",
        "Sched.x",
        "carillon.x",
        "amq.gen-1",
        "orders.dlq",
        "orders.DLQ",
        ".dlq",
        "pu\N{LATIN SMALL LETTER LONG S}h.send",
    ],
)
def test_our_own_queues_are_refused(queue: str) -> None:
    with pytest.raises(Invalid, match="reserved") as refused:
        to_queue(queue)
    assert refused.value.field == "callback.data.queue"
    assert refused.value.value == queue


@pytest.mark.parametrize("queue", ["a\nb", "a\0", "a" * 256, "é" * 128, "\u200b"])
def test_a_queue_has_a_name_that_can_be_one(queue: str) -> None:
    with pytest.raises(Invalid, match="printable") as refused:
        to_queue(queue)
    assert refused.value.field == "callback.data.queue"


def test_either_a_queue_or_an_exchange_is_given() -> None:
    for queue, exchange in (("", ""), ("orders", "events")):
        with pytest.raises(Invalid, match="either") as refused:
            to_queue(queue, exchange)
        assert refused.value.field == "callback.data.queue"


@pytest.mark.parametrize("routing_key", ["", "push.send", "a" * 255])
def test_an_exchange_of_the_list_takes_any_routing_key(routing_key: str) -> None:
    to_queue(exchange="events", routing_key=routing_key)


@pytest.mark.parametrize("exchange", ["other", "Events", "events ", "amq.direct"])
def test_an_exchange_that_is_not_in_the_list_is_refused(exchange: str) -> None:
    with pytest.raises(Invalid, match=r"callbacks\.exchanges") as refused:
        to_queue(exchange=exchange)
    assert refused.value.field == "callback.data.exchange"


@pytest.mark.parametrize("routing_key", ["a" * 256, "a\tb"])
def test_a_routing_key_has_to_be_one(routing_key: str) -> None:
    with pytest.raises(Invalid, match="printable") as refused:
        to_queue(exchange="events", routing_key=routing_key)
    assert refused.value.field == "callback.data.routing_key"


def test_topics_are_those_of_the_list() -> None:
    to_topic("orders")
    to_topic("a.b_c-d")
    for topic in ("other", "", "Orders", "no/topic", "push.outgoing"):
        with pytest.raises(Invalid, match=r"callbacks\.topics") as refused:
            to_topic(topic)
        assert refused.value.field == "callback.data.topic"


def test_a_deployment_without_a_server_says_so() -> None:
    with pytest.raises(Invalid, match="no RabbitMQ") as queue:
        to_queue("orders", targets=Targets(queues=False))
    with pytest.raises(Invalid, match="no Kafka") as topic:
        to_topic("orders", Targets(streams=False, topics=frozenset({"orders"})))
    assert queue.value.field == topic.value.field == "callback.type"


def test_a_name_may_be_empty_only_where_it_is_said() -> None:
    check_name("", field="x", empty=True)
    with pytest.raises(Invalid):
        check_name("", field="x")
