"""Our record batches are aiokafka's, byte for byte, and its producer takes them as it takes its own.

What stands below of aiokafka's private side is what `RecordBatch` relies on. A release that changes it fails here.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType, SimpleNamespace

import pytest
from aiokafka.producer import message_accumulator
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from shared.drivers.kafka.record_batch import NO_HEADERS, RecordBatch, cut, encode_headers

NOW_MS = 1_790_000_000_123
STATE = (4711, 3, 1234)
CODECS = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}

lengths = st.integers(0, 300) | st.integers(8_170, 8_200) | st.just(70_000)
value = st.builds(lambda length, byte: bytes([byte]) * length, lengths, st.integers(0, 255)) | st.binary(max_size=99)
values = st.lists(value, min_size=1, max_size=90)


@pytest.fixture(autouse=True, scope="module")
def stopped_clock() -> Iterator[None]:
    """For gzip writes the second at which it compresses into what it makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gzip.time", SimpleNamespace(time=lambda: NOW_MS // 1_000))
        yield


def aiokafkas(values: list[bytes], compression: str, *, transactional: bool) -> bytes:
    """Whichever is smaller, compressed or not. aiokafka also sends what compressing has made a few bytes larger."""
    plain, compressed = (_by_aiokafka(values, CODECS[codec], transactional) for codec in ("none", compression))
    return compressed if len(compressed) < len(plain) else plain


def _by_aiokafka(
    values: list[bytes], codec: int, transactional: bool, headers: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    builder = BatchBuilder(2**31 - 1, codec, is_transactional=transactional)
    encoded = [(name, text.encode()) for name, text in headers.items()]
    for value in values:
        assert builder.append(timestamp=NOW_MS, key=None, value=value, headers=encoded) is not None
    builder._set_producer_state(*STATE)
    return bytes(builder._build())


def ours(values: list[bytes], compression: str, *, transactional: bool) -> RecordBatch:
    batch = RecordBatch(values, now_ms=NOW_MS, compression=compression, transactional=transactional)
    batch._set_producer_state(*STATE)
    return batch


@given(values=values, compression=st.sampled_from(sorted(CODECS)), transactional=st.booleans())
def test_the_same_bytes_as_aiokafka(values: list[bytes], compression: str, transactional: bool) -> None:
    batch = ours(values, compression, transactional=transactional)
    built = aiokafkas(values, compression, transactional=transactional)
    assert bytes(batch._build()) == built
    assert bytes(batch._build()) == built, "it may be sent again"
    assert batch.size() == len(built)
    assert batch.record_count() == len(values)
    assert batch.closed()


@given(values=values, headers=st.dictionaries(st.text(max_size=80), st.text(max_size=80), max_size=3))
def test_the_same_bytes_with_headers(values: list[bytes], headers: dict[str, str]) -> None:
    encoded = encode_headers(headers)
    batch = RecordBatch(values, now_ms=NOW_MS, compression="none", transactional=True, headers=encoded)
    batch._set_producer_state(*STATE)
    assert bytes(batch._build()) == _by_aiokafka(values, CODECS["none"], True, headers)


def test_a_trace_adds_seventy_bytes_to_a_record() -> None:
    header = encode_headers({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    records = [bytes(389)] * 1_000
    without, traced = (
        RecordBatch(records, now_ms=NOW_MS, compression="none", transactional=True, headers=each).size()
        for each in (NO_HEADERS, header)
    )
    assert 65 <= (traced - without) / 1_000 <= 70


@given(values=st.lists(st.binary(max_size=200), min_size=1, max_size=90))
def test_batches_with_headers_are_as_small_as_they_must_be(values: list[bytes]) -> None:
    header = encode_headers({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    cuts = cut(values, 2_000, len(header))
    assert [value for part in cuts for value in part] == values
    for part in cuts:
        batch = RecordBatch(part, now_ms=NOW_MS, compression="none", transactional=True, headers=header)
        assert batch.size() <= 2_000


@pytest.mark.parametrize("length", [*range(2**20 - 12, 2**20 + 2), 2**21])
def test_the_same_bytes_where_a_number_takes_four_of_them(length: int) -> None:
    """The largest records that a setting allows have more than a megabyte."""
    values = [b"before", bytes(length), b"behind"]
    built = aiokafkas(values, "none", transactional=True)
    assert bytes(ours(values, "none", transactional=True)._build()) == built


@pytest.mark.parametrize("compression", CODECS)
def test_a_full_batch_is_read_as_it_was_written(compression: str) -> None:
    """Of thousands of records: their places take one, two and three bytes."""
    values = [b"%d " % number * 3 for number in range(20_000)]
    batch = ours(values, compression, transactional=True)._build()
    records = MemoryRecords(bytes(batch))
    [read] = iter(records.next_batch, None)
    assert read.validate_crc()
    found = list(read)
    assert [record.value for record in found] == values
    assert {(record.key, record.timestamp, tuple(record.headers)) for record in found} == {(None, NOW_MS, ())}


def test_a_machine_without_the_wheel_gives_the_same_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"value"] * 1_000
    built = bytes(ours(values, "none", transactional=True)._build())
    monkeypatch.setattr("shared.drivers.kafka.record_batch.checksum", calc_crc32c)
    assert bytes(ours(values, "none", transactional=True)._build()) == built


def test_aiokafka_asks_a_builder_for_nothing_else() -> None:
    source = inspect.getsource(message_accumulator)
    asked = set(re.findall(r"(?:_builder|\bbuilder)\.(\w+)", source.split("class MessageBatch")[1]))
    # `append` belongs to batches that the producer itself fills: ours are closed.
    assert asked == {"append", "record_count", "closed", "close", "_set_producer_state", "_build"}
    assert asked - {"append"} <= set(dir(RecordBatch))
    assert {name for name in vars(BatchBuilder) if not name.startswith("__")} >= asked


sizes = st.lists(st.integers(0, 400) | st.sampled_from([5_000, 40_000]), max_size=200)


@given(sizes=sizes, most=st.sampled_from([700, 3_000, 50_000]))
def test_cuts_lose_nothing_and_fit(sizes: list[int], most: int) -> None:
    values = [bytes(size) for size in sizes]
    cuts = cut(values, most)
    assert list(chain.from_iterable(cuts)) == values
    assert all(cuts)
    for part in cuts:
        assert len(part) == 1 or ours(list(part), "none", transactional=True).size() <= most


@pytest.mark.parametrize("count", [1, 10, 1_999, 2_000, 2_001, 5_000, 10_000])
def test_no_small_batch_is_left_over(count: int) -> None:
    cuts = cut([bytes(390 + number % 5) for number in range(count)], 960 * 1024)
    assert len(cuts) == -(-count // 2_400)
    assert max(map(len, cuts)) - min(map(len, cuts)) <= len(cuts) + 1


def test_nothing_makes_no_batch() -> None:
    assert cut([], 1_000) == []
