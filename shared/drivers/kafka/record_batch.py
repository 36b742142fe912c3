"""Kafka's record batch, made at once from all its records.

The format is version 2 (protocol guide, "Record Batch"): a header of 61 bytes, then the records, which a batch may
compress together. Carillon's records have no key and one timestamp, and those of a batch have the same headers, mostly
none. So only three numbers around a value vary: the record's length, its index, and the value's length.

aiokafka's builder takes one record at a time. This one costs a third of it and makes the same bytes, except if
compression makes the records larger: aiokafka sends some of those compressed. `tests/drivers/kafka` compares it to
aiokafka's builder and to the records that a consumer reads. aiokafka calls the methods of its own builder here, some
with an underscore.
"""

import struct
from collections.abc import Callable, Mapping, Sequence

import google_crc32c
import numpy as np
from aiokafka import codec
from aiokafka.record.util import calc_crc32c
from numpy.typing import NDArray

# Without a wheel for the machine, google-crc32c computes in Python; aiokafka's function is in C.
checksum: Callable[[bytes], int] = google_crc32c.value if google_crc32c.implementation == "c" else calc_crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FROM_LENGTH, _FROM_CRC, _FROM_ATTRIBUTES = 12, 17, 21
_CRC = struct.Struct(">I")
_NO_LEADER_EPOCH, _MAGIC = -1, 2
_TRANSACTIONAL = 0x10

NO_HEADERS = b"\0"
_AROUND_BYTES = 15
"""The most bytes around a value, besides the headers: three numbers of up to four bytes, and three constant bytes."""

_ENCODERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, codec.gzip_encode),
    "lz4": (3, codec.lz4_encode),
    "zstd": (4, codec.zstd_encode),
}


class RecordBatch:
    """A batch with one timestamp (ms since the epoch); the producer's id is filled in when it is known."""

    def __init__(
        self,
        values: Sequence[bytes],
        *,
        now_ms: int,
        compression: str,
        transactional: bool,
        headers: bytes = NO_HEADERS,
    ) -> None:
        self._count = len(values)
        self._now_ms = now_ms
        self._attributes = _TRANSACTIONAL if transactional else 0
        self._producer = (-1, -1, 0)
        self._is_built = False
        self._content = _join(values, headers)
        if compression != "none":
            self._compress(compression)

    def record_count(self) -> int:
        return self._count

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None: ...

    def closed(self) -> bool:
        return True

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        """The bytes to send. A batch that is sent again is not built again."""
        if not self._is_built:
            content, last = self._content, self._count - 1
            length, times = len(content) - _FROM_LENGTH, (self._now_ms, self._now_ms)
            about = (self._attributes, last, *times, *self._producer, self._count)
            _HEADER.pack_into(content, 0, 0, length, _NO_LEADER_EPOCH, _MAGIC, 0, *about)
            with memoryview(content) as view:
                _CRC.pack_into(content, _FROM_CRC, checksum(bytes(view[_FROM_ATTRIBUTES:])))
            self._is_built = True
        return self._content

    def _compress(self, compression: str) -> None:
        attribute, encode = _ENCODERS[compression]
        records = bytes(self._content[_HEADER.size :])
        compressed = encode(records)
        if len(compressed) < len(records):
            self._attributes |= attribute
            self._content[_HEADER.size :] = compressed


def cut(values: Sequence[bytes], most_bytes: int, header_bytes: int = 1) -> list[Sequence[bytes]]:
    """Cut the values into the fewest batches of at most `most_bytes`, all of about the same size, so that no small
    one is left over at the end. A value that is too large for a batch gets its own."""
    sizes = _lengths(values) + _AROUND_BYTES + header_bytes
    ends = np.cumsum(sizes)
    most = most_bytes - _HEADER.size
    # An even part ends after the value that fills it.
    room = max(most - int(sizes.max(initial=0)), most // 2)
    total = int(sizes.sum())
    even = -(-total // -(-total // room)) if total else 0
    cuts: list[Sequence[bytes]] = []
    start = before = 0
    while start < len(values):
        full, fitting = np.searchsorted(ends, before + even) + 1, np.searchsorted(ends, before + most, side="right")
        end = max(start + 1, int(min(full, fitting)))
        cuts.append(values[start:end])
        start, before = end, int(ends[end - 1])
    return cuts


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """The headers at a record's end: their number, then each name and value after its length."""
    texts = [text.encode() for header in headers.items() for text in header]
    return _places[len(headers)] + b"".join(_places[len(text)] + text for text in texts)


class _Varints(dict[int, bytes]):
    """Whole numbers from 0 as zigzag varints, with constant bytes before and after. They are made when first asked
    for."""

    def __init__(self, *, before: bytes = b"", after: bytes = b"") -> None:
        self._before = before
        self._after = after

    def __missing__(self, number: int) -> bytes:
        encoded, rest = bytearray(self._before), number << 1
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        made = bytes(encoded) + self._after
        if len(self) < _REMEMBERED:
            self[number] = made
        return made


_REMEMBERED = 20_000
_VARINT_ENDS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""At each of these numbers, the varint grows by a byte."""

_ATTRIBUTES_AND_TIME, _NO_KEY = b"\0\0", b"\x01"
_sizes = _Varints(before=NO_HEADERS, after=_ATTRIBUTES_AND_TIME)  # after the end of the previous record
_places = _Varints()
_value_lengths = _Varints(before=_NO_KEY)


def _join(values: Sequence[bytes], headers: bytes) -> bytearray:
    """The records, after room for the batch's header. The headers of a record are written before the next record."""
    count = len(values)
    lengths, places = _lengths(values), np.arange(count)
    constant = len(_ATTRIBUTES_AND_TIME) + len(_NO_KEY) + len(headers)
    sizes = constant + _varint_bytes(places) + _varint_bytes(lengths) + lengths
    behind = _sizes if headers == NO_HEADERS else _Varints(before=headers, after=_ATTRIBUTES_AND_TIME)
    pieces = [b""] * (4 * count)
    pieces[0::4] = map(behind.__getitem__, sizes.tolist())
    pieces[1::4] = map(_places.__getitem__, range(count))
    pieces[2::4] = map(_value_lengths.__getitem__, lengths.tolist())
    pieces[3::4] = values
    if count:
        pieces[0] = pieces[0][len(headers) :]
        pieces.append(headers)
    return bytearray().join([bytes(_HEADER.size), *pieces])


def _lengths(values: Sequence[bytes]) -> NDArray[np.int64]:
    return np.fromiter(map(len, values), np.int64, len(values))


def _varint_bytes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(_VARINT_ENDS, numbers, side="right") + 1
