"""Users' messages are sent together; if one is refused, each is sent by itself.

A broker refuses a whole produce batch because of one record. The driver then goes on counting from the sequence numbers
of the refused records, so an idempotent producer is of no more use on that partition. Records that were refused
together are sent again by a producer without sequence numbers, each in its own batch, so that the answer is the
record's own.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

from aiokafka.errors import BrokerResponseError, MessageSizeTooLargeError, UnknownError
from msgspec import Struct

from shared.clock.rules.callbacks import DeliveryError, TopicMessage, Undeliverable
from shared.core.errors import Unavailable
from shared.drivers.kafka.producers import Producers, SharedProducer
from shared.drivers.kafka.servers import KafkaServers, answer_within
from shared.drivers.kafka.topics import Topics
from shared.runtime.server_settings import StreamSettings

_BATCH_BYTES = 256 * 1024
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


class _KafkaRecord(Struct, frozen=True):
    topic: str
    key: bytes | None
    body: bytes
    headers: list[tuple[str, bytes]]


Records = Mapping[int, _KafkaRecord]
"""Records by their index in the messages of a call."""


class TopicDeliverer:
    """See `Stream.deliver`. The driver partitions as Kafka does: murmur2 of the key."""

    def __init__(
        self, servers: KafkaServers, settings: StreamSettings, *, client_id: str, timeout_seconds: float
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._topics = Topics(servers, client_id=f"{client_id}-deliver")
        options = {
            **servers.options(f"{client_id}-deliver"),
            "acks": "all",
            "request_timeout_ms": int(timeout_seconds * 1000),
            "compression_type": None if settings.compression == "none" else settings.compression,
            "max_request_size": settings.max_record_bytes,
        }
        self._together = Producers({**options, "enable_idempotence": True, "max_batch_size": _BATCH_BYTES})
        # Every record fills a batch.
        self._singly = Producers({**options, "enable_idempotence": False, "max_batch_size": 1})

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        outcomes: dict[int, DeliveryError | None] = {}
        reason = Unavailable("Kafka: deliver: no answer")
        try:
            async with answer_within(self._timeout_seconds):
                await self._deliver(messages, outcomes)
        except Unavailable as error:
            reason = error
            self._topics.forget(message.topic for message in messages)
        return [outcomes.get(place, reason) for place in range(len(messages))]

    async def close(self) -> None:
        await asyncio.gather(self._together.close(), self._singly.close(), self._topics.close())

    async def _deliver(self, messages: Sequence[TopicMessage], outcomes: dict[int, DeliveryError | None]) -> None:
        records = _encode_records(messages, outcomes)
        refused = await self._topics.find_refused({record.topic for record in records.values()})
        for place, record in records.items():
            if record.topic in refused:
                outcomes[place] = refused[record.topic]
        going = {place: record for place, record in records.items() if place not in outcomes}
        self._together.give_up(refused)
        spoiled = await _send(self._together, going, outcomes)
        outcomes.update(await _send(self._singly, {place: going[place] for place in spoiled}, outcomes))


def _encode_records(
    messages: Sequence[TopicMessage], outcomes: dict[int, DeliveryError | None]
) -> dict[int, _KafkaRecord]:
    records = {}
    for place, message in enumerate(messages):
        try:
            records[place] = _record(message)
        except UnicodeEncodeError as error:
            outcomes[place] = Undeliverable(f"not valid Unicode: {error}")
        except Undeliverable as error:
            outcomes[place] = error
    return records


def _record(message: TopicMessage) -> _KafkaRecord:
    if _TOPIC.fullmatch(message.topic) is None:
        raise Undeliverable(f"{message.topic[:80]!r} is no name of a topic")
    for name in message.headers:
        name.encode()  # the driver would fail for all records together
    headers = [(name, value.encode()) for name, value in message.headers.items()]
    return _KafkaRecord(message.topic, None if message.key is None else message.key.encode(), message.body, headers)


async def _send(
    producers: Producers, records: Records, outcomes: dict[int, DeliveryError | None]
) -> dict[int, Undeliverable]:
    """Send the records and write down their outcomes; return the refused ones."""
    if not records:
        return {}
    async with producers.borrow() as producer:
        pending: dict[int, asyncio.Future[object]] = {}
        try:
            for place, record in records.items():
                try:
                    pending[place] = await producer.send(record.topic, record.body, record.key, record.headers)
                except MessageSizeTooLargeError as error:
                    outcomes[place] = Undeliverable(f"Kafka: {error}")
            if pending:
                await asyncio.wait(pending.values())
        finally:
            refused = _outcomes(producer, pending, outcomes)
    return refused


def _outcomes(
    producer: SharedProducer, pending: Mapping[int, asyncio.Future[object]], outcomes: dict[int, DeliveryError | None]
) -> dict[int, Undeliverable]:
    refused = {}
    for place, future in pending.items():
        # Without an answer by now, the deadline has passed.
        if future.cancel() or future.cancelled():
            continue
        error = future.exception()
        if error is None:
            outcomes[place] = None
            continue
        producer.usable = False
        # The broker answered that it did not take the batch and never will.
        if isinstance(error, BrokerResponseError) and not error.retriable and not isinstance(error, UnknownError):
            refused[place] = Undeliverable(f"Kafka: {type(error).__name__}: {error}")
        else:
            outcomes[place] = Unavailable(f"Kafka: {error!r}")
    return refused
