"""Where callbacks may go: never to our own queues, and only to exchanges and topics of the deployment's list."""

from functools import partial
from typing import Any

import msgspec
import pytest

from shared.clock.rules.callbacks import (
    HEADER_BYTES,
    HEADERS,
    PAYLOAD_BYTES,
    Callback,
    HttpCallback,
    JobCallback,
    KafkaCallback,
    Overlap,
    RabbitCallback,
    Targets,
    check_name,
    check_queue_target,
    check_topic_target,
    host_of,
)
from shared.core.errors import Invalid
from shared.drivers.http.checks import check_url


def targets(**chosen: Any) -> Targets:
    return Targets(check_url=partial(check_url, allowed_networks=()), **chosen)


TARGETS = targets(exchanges=frozenset({"events", "ex" * 20}), topics=frozenset({"orders", "a.b_c-d", "no/topic"}))


def to_queue(queue: str = "", exchange: str = "", routing_key: str = "", targets: Targets = TARGETS) -> None:
    callback = RabbitCallback(payload="1", queue=queue, exchange=exchange, routing_key=routing_key)
    check_queue_target(callback, targets, field="callback")


def to_topic(topic: str, targets: Targets = TARGETS) -> None:
    check_topic_target(KafkaCallback(payload="1", topic=topic), targets, field="callback")


@pytest.mark.parametrize(
    ("stored", "callback"),
    [
        ('{"type":"rabbitmq","payload":"1"}', RabbitCallback(payload="1", queue="", exchange="", routing_key="")),
        ('{"type":"http","payload":"1","url":"u"}', HttpCallback(payload="1", url="u", method="POST", secret="")),
        ('{"type":"kafka","payload":"1","topic":"t"}', KafkaCallback(payload="1", topic="t", key=None)),
        (
            '{"type":"job","payload":"{}","app_id":"a","template":"t"}',
            JobCallback(payload="{}", app_id="a", template="t", overlap=Overlap.SKIP, expires_after_seconds=0.0),
        ),
    ],
)
def test_what_is_stored_of_a_callback_is_read_in_every_release(stored: str, callback: Callback) -> None:
    assert msgspec.json.decode(stored, type=Callback) == callback


def test_callers_are_told_these_limits() -> None:
    assert (PAYLOAD_BYTES, HEADERS, HEADER_BYTES) == (262_144, 50, 8_192)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user:word@Example.COM:8443/path?x=1", "example.com"),
        ("http://[2001:DB8::1]/", "2001:db8::1"),
        ("http:///path", ""),
    ],
)
def test_the_host_of_a_call_is_told_in_lower_case(url: str, host: str) -> None:
    assert host_of(HttpCallback(payload="1", url=url)) == host


def test_who_says_nothing_of_targets_has_both_servers_and_no_lists() -> None:
    to_queue("orders", targets=targets())
    with pytest.raises(Invalid, match="not in the deployment's list"):
        to_queue(exchange="events", targets=targets())
    with pytest.raises(Invalid, match="not in the deployment's list"):
        to_topic("orders", targets())


@pytest.mark.parametrize("queue", ["orders", "q", "pushes", "schedule", "my.push.queue", "dlq", "a.dlq.b", "é" * 127])
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


def test_an_exchange_of_the_list_has_a_name_that_can_be_one() -> None:
    with pytest.raises(Invalid, match="printable") as refused:
        to_queue(exchange="a\nb", targets=targets(exchanges=frozenset({"a\nb"})))
    assert refused.value.field == "callback.data.exchange"


@pytest.mark.parametrize("routing_key", ["a" * 256, "a\tb"])
def test_a_routing_key_has_to_be_one(routing_key: str) -> None:
    with pytest.raises(Invalid, match="printable") as refused:
        to_queue(exchange="events", routing_key=routing_key)
    assert refused.value.field == "callback.data.routing_key"


def test_topics_are_those_of_the_list() -> None:
    to_topic("orders")
    to_topic("a.b_c-d")
    longest = "t" * 249
    to_topic(longest, targets(topics=frozenset({longest})))
    with pytest.raises(Invalid):
        to_topic(longest + "t", targets(topics=frozenset({longest + "t"})))
    for topic in ("other", "", "Orders", "no/topic", "push.outgoing"):
        with pytest.raises(Invalid, match=r"callbacks\.topics") as refused:
            to_topic(topic)
        assert refused.value.field == "callback.data.topic"


def test_a_deployment_without_a_server_says_so() -> None:
    with pytest.raises(Invalid, match="no RabbitMQ") as queue:
        to_queue("orders", targets=targets(queues=False))
    with pytest.raises(Invalid, match="no Kafka") as topic:
        to_topic("orders", targets(streams=False, topics=frozenset({"orders"})))
    assert queue.value.field == topic.value.field == "callback.type"


def test_a_name_may_be_empty_only_where_it_is_said() -> None:
    check_name("", field="x", empty=True)
    with pytest.raises(Invalid):
        check_name("", field="x")
