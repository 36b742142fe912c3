"""The promises of every stream (`shared/drivers/kafka/__init__.py`)."""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange
from shared.clock.rules.callbacks import TopicMessage, Undeliverable
from shared.core.errors import LaneLost, Unavailable
from shared.drivers.kafka import Stream, TopicSpec
from shared.jobs.rules.batches import Batch, BatchPart, BatchStatus, Receipt
from tests.drivers.kafka.conftest import OpenStream
from tests.waiting import until

RECEIPT = Receipt(sent=3, skipped=1, reasons={"no-token": 1}, locales={"en": 2, "pt": 1})
PART = BatchPart(RECEIPT)


def records(count: int = 3) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(count)]


def a_batch(ordinal: int = 0, job_id: str = "") -> Batch:
    job_id = job_id or f"job-{secrets.token_hex(6)}"
    return Batch(job_id=job_id, ordinal=ordinal, range=KeyRange(0, 9), size=4, status=BatchStatus.SENDING, attempts=1)


async def committed(stream: Stream, topic: str, expected: int) -> list[bytes]:
    """Every committed record of the topic: waits for `expected`, then looks whether more come."""
    values: list[bytes] = []
    async with stream.reader(topic, group=f"oracle-{secrets.token_hex(4)}") as reader:

        async def have_come() -> bool:
            for chunk in await reader.read(0.2):
                values.extend(value for value in chunk.values if value is not None)
            return len(values) >= expected

        await until(have_come, f"{expected} records")
        for chunk in await reader.read(0.5):
            values += [value for value in chunk.values if value is not None]
    return values


async def placed(stream: Stream, topic: str, expected: int) -> list[tuple[str, bytes]]:
    """So many records of the topic, each with its partition."""
    found: list[tuple[str, bytes]] = []
    async with stream.reader(topic, group=f"oracle-{secrets.token_hex(4)}") as reader:

        async def have_come() -> bool:
            for chunk in await reader.read(0.2):
                found.extend((chunk.partition, value) for value in chunk.values if value is not None)
            return len(found) >= expected

        await until(have_come, f"{expected} records")
    return found


async def test_a_batch_goes_out_once_with_its_receipt(stream: Stream, topic: str) -> None:
    batch = a_batch()
    async with stream.lane() as lane:
        await lane.produce(batch, topic, records(), PART)
        owned = replace(batch, owner=lane.id)
    assert sorted(await committed(stream, topic, 3)) == records()
    assert await stream.recover(owned) == PART


async def test_an_owner_that_sent_nothing_has_no_receipt(stream: Stream) -> None:
    async with stream.lane() as lane:
        assert await stream.recover(replace(a_batch(), owner=lane.id)) is None


async def test_a_fenced_lane_commits_nothing_ever(open_stream: OpenStream, stream: Stream, topic: str) -> None:
    other = open_stream()
    batch = a_batch()
    async with stream.lane() as lane:
        assert await other.recover(replace(batch, owner=lane.id)) is None
        with pytest.raises(LaneLost):
            await lane.produce(batch, topic, records(), PART)
        lost = lane.id
    async with stream.lane() as fresh:
        assert fresh.id != lost
        await fresh.produce(batch, topic, records(), PART)
    assert sorted(await committed(stream, topic, 3)) == records()
    assert await other.recover(replace(batch, owner=lost)) is None
    await other.close()


async def test_recovery_races_with_the_owner_and_one_of_them_wins(
    open_stream: OpenStream, stream: Stream, topic: str
) -> None:
    other = open_stream()
    job_id, sent = f"job-{secrets.token_hex(6)}", 0
    for ordinal in range(12):
        batch = a_batch(ordinal, job_id)
        async with stream.lane() as lane:
            owned = replace(batch, owner=lane.id)
            produced, recovered = await asyncio.gather(
                lane.produce(batch, topic, records(50), PART), other.recover(owned), return_exceptions=True
            )
        assert produced is None or isinstance(produced, LaneLost)
        assert recovered is None or recovered == PART
        # What recovery said stays true, and the owner never claims what recovery denied.
        assert await other.recover(owned) == recovered
        assert not (produced is None and recovered is None)
        sent += 50 if recovered else 0
    assert len(await committed(stream, topic, sent)) == sent
    await other.close()


async def test_a_slot_remembers_its_last_batch(stream: Stream, topic: str) -> None:
    first = a_batch(0)
    second = a_batch(32, first.job_id)
    async with stream.lane() as lane:
        await lane.produce(first, topic, records(), PART)
    async with stream.lane() as lane:
        await lane.produce(second, topic, records(), PART)
        assert await stream.recover(replace(second, owner=lane.id)) == PART


async def test_the_parts_of_a_batch_go_out_one_after_the_other(stream: Stream, topic: str) -> None:
    batch = a_batch()
    first, second = BatchPart(RECEIPT, 1, next=4), BatchPart(RECEIPT + RECEIPT, 2)
    async with stream.lane() as lane:
        await lane.produce(batch, topic, records(), first)
        sent = replace(batch, owner=lane.id)
    assert await stream.recover(sent) == first
    # The first part is known to be out, whichever lane has taken the second one.
    assert await stream.recover(replace(sent, parts=1)) is None
    async with stream.lane() as lane:
        await lane.produce(replace(batch, parts=1), topic, records(), second)
        assert await stream.recover(replace(batch, parts=1, owner=lane.id)) == second
    assert sorted(await committed(stream, topic, 6)) == sorted(records() * 2)


async def test_a_lane_may_send_the_next_part_of_its_batch(stream: Stream, topic: str) -> None:
    batch = a_batch()
    first, second = BatchPart(RECEIPT, 1, next=4), BatchPart(RECEIPT + RECEIPT, 2)
    async with stream.lane() as lane:
        await lane.produce(batch, topic, records(), first)
        await lane.produce(replace(batch, parts=1), topic, records(), second)
        owner = lane.id
    assert await stream.recover(replace(batch, parts=1, owner=owner)) == second


async def test_a_job_whose_id_was_used_before_has_markers_of_its_own(stream: Stream, topic: str) -> None:
    earlier = a_batch(32, "job.one")
    async with stream.lane() as lane:
        await lane.produce(earlier, topic, records(), PART)
    batch = a_batch(0, f"job.{secrets.token_hex(4)}")
    assert await stream.recover(replace(batch, owner=f"carillon-{secrets.token_hex(12)}")) is None
    async with stream.lane() as lane:
        await lane.produce(batch, topic, records(), PART)
        assert await stream.recover(replace(batch, owner=lane.id)) == PART


async def test_readers_start_where_the_book_says(stream: Stream, topic: str) -> None:
    await stream.publish(topic, records(10))
    everything = await committed(stream, topic, 10)
    assert sorted(everything) == sorted(records(10))

    async def positions(logs: Mapping[str, str]) -> dict[str, int]:
        return dict.fromkeys(logs, 1_000_000)

    async with stream.reader(topic, group=f"g-{secrets.token_hex(4)}", positions=positions) as reader:
        chunks = await reader.read(2)
        assert chunks == [] or all(chunk.first < 1_000_000 for chunk in chunks)


async def test_rewinding_reads_again(stream: Stream, topic: str) -> None:
    await stream.publish(topic, records(5))
    async with stream.reader(topic, group=f"g-{secrets.token_hex(4)}") as reader:
        first = (await until(lambda: reader.read(0.5), "a record"))[0]
        await reader.rewind(first.partition, first.first)
        again = await until(lambda: reader.read(0.5), "a record")
        assert first.partition in {chunk.partition for chunk in again}


@pytest.mark.slow
async def test_a_topic_that_appears_later_is_read_from_its_first_record(stream: Stream) -> None:
    prefix = f"later-{secrets.token_hex(4)}"
    async with stream.reader(f"{prefix}-.*", group=f"g-{secrets.token_hex(4)}") as reader:
        assert await reader.read(0.2) == []
        await stream.setup({f"{prefix}-one": 1})
        await stream.publish(f"{prefix}-one", records(2))
        chunks = await until(lambda: reader.read(1), "a record of the new topic")
    assert [chunk.values for chunk in chunks] == [records(2)]


async def test_the_records_of_a_key_lie_in_one_partition_in_their_order(stream: Stream, topic: str) -> None:
    keys = [f"topic\0https://example.com/{number}".encode() for number in range(40)]
    for turn in range(5):
        values = [b"%d:%d" % (number, turn) for number in range(len(keys))]
        await stream.publish(topic, values, keys=keys)
    await stream.publish(topic, [b"0:5", b"0:6", b"0:7"], keys=keys[:1] * 3)
    await stream.publish(topic, [], keys=[])
    found: dict[bytes, list[tuple[str, bytes]]] = {}
    for partition, value in await placed(stream, topic, 5 * len(keys) + 3):
        found.setdefault(value.partition(b":")[0], []).append((partition, value))
    assert len(found) == len(keys)
    for number, own in found.items():
        assert len({partition for partition, _ in own}) == 1
        assert [value for _, value in own] == [b"%s:%d" % (number, turn) for turn in range(8 if number == b"0" else 5)]


async def test_spans_tell_where_a_topic_begins_and_ends(stream: Stream, topic: str) -> None:
    before = await stream.spans(topic)
    await stream.publish(topic, records(), keys=[b"a"] * 3)
    after = await stream.spans(topic)
    assert set(before.values()) == {(0, 0)}
    assert sorted(span for span in after.values() if span != (0, 0)) == [(0, 3)]


async def test_as_many_keys_as_values_are_given(stream: Stream, topic: str) -> None:
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        await stream.publish(topic, [b"1", b"2"], keys=[b"1"])
    assert await committed(stream, topic, 0) == []


async def test_a_topic_that_is_missing_is_noticed_until_it_is_made(stream: Stream) -> None:
    name = f"kept-{secrets.token_hex(4)}"
    wanted = {name: TopicSpec(3, timedelta(days=2))}
    with pytest.raises(Unavailable, match="carillon init"):
        await stream.verify(wanted)
    await stream.setup(wanted)
    await stream.setup(wanted)
    await stream.verify(wanted)


async def test_an_empty_batch_has_a_receipt_too(stream: Stream, topic: str) -> None:
    batch = a_batch()
    async with stream.lane() as lane:
        await lane.produce(batch, topic, [], BatchPart(Receipt(skipped=4)))
        assert await stream.recover(replace(batch, owner=lane.id)) == BatchPart(Receipt(skipped=4))


async def test_users_messages_are_appended_or_refused_one_by_one(stream: Stream, topic: str) -> None:
    missing = f"missing-{secrets.token_hex(4)}"
    outcomes = await stream.deliver([TopicMessage(name, "key", b"{}", {}) for name in (topic, missing, topic)])
    refused = [isinstance(outcome, Undeliverable) for outcome in outcomes]
    assert refused == ([False, True, False] if stream.delivers else [True, True, True])
    expected = refused.count(False)
    assert await committed(stream, topic, expected) == [b"{}"] * expected
