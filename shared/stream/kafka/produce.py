"""Getting many records into a producer fast: whole produce batches, spread over the topic's partitions.

`send_batch` with batches that we make is many times faster than `send` (measured in `tests/bench/RESULTS.md`).
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from msgspec import Struct

from shared.runtime.faults import fault
from shared.runtime.tracing import record_headers

Pending = list[asyncio.Future[RecordMetadata]]


class Framing(Struct, frozen=True):
    """How records become produce batches: at most so many bytes each before they are compressed, of a transaction or
    not."""

    most_bytes: int
    compression: str
    transactional: bool


async def append(producer: AIOKafkaProducer, topic: str, records: Sequence[bytes], framing: Framing) -> Pending:
    """Hand all records to the producer; what is returned resolves when the brokers have them.

    A record that does not fit a batch is passed on by itself, for the broker to judge.
    """
    # With numpy, which whoever only reads the stream or delivers single messages does without.
    from shared.stream.kafka.record_batch import RecordBatch, cut, encode_headers

    partitions = sorted(await producer.partitions_for(topic))
    first = random.randrange(len(partitions))
    now_ms, headers = time.time_ns() // 1_000_000, encode_headers(record_headers())
    pending: Pending = []
    try:
        for turn, values in enumerate(cut(records, framing.most_bytes, len(headers)), first):
            batch = RecordBatch(
                values,
                now_ms=now_ms,
                compression=framing.compression,
                transactional=framing.transactional,
                headers=headers,
            )
            await fault("stream.produce_one")
            pending.append(await producer.send_batch(batch, topic, partition=partitions[turn % len(partitions)]))
    except BaseException:
        forget(pending)
        raise
    return pending


async def wait_for_all(pending: Sequence[asyncio.Future[Any]]) -> list[BaseException]:
    """Wait for every one; returns what went wrong."""
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


def forget(pending: Pending) -> None:
    """Let go what was handed over: the rest of it failed, and nobody will ask these futures again."""
    for future in pending:
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
