"""Events of settled deliveries, read from the log again.

A settled delivery keeps the place of each event, and one digest of all. The records of each partition are read in one
go from the first of its events to the last. The digest decides: a log that was created anew may have other events in
these places.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from shared.domain.bus.deliveries import EventDelivery, digest_events
from shared.domain.bus.events import published_form, read_event
from shared.domain.bus.subscriptions import EventForm
from shared.domain.errors import Gone, TooMany
from shared.domain.positions import LogRange
from shared.store import Store
from shared.stream import Stream
from shared.stream.reading import Chunk

MOST_RECORDS = 50_000
"""The most records that are read for one delivery; it has at most a fifth as many events."""

_SECONDS = 10.0
_AT_ONCE, _QUEUE_SECONDS = 4, 5.0
_WAIT_SECONDS = 0.2

RecordPlace = tuple[str, int]


class LoggedEvents:
    """Reads events again, `_AT_ONCE` deliveries at a time, because each read takes connections and memory."""

    def __init__(self, store: Store, stream: Stream) -> None:
        self._store = store
        self._stream = stream
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def read(self, delivery: EventDelivery, form: EventForm) -> tuple[bytes, ...]:
        """The events of a delivery, byte for byte as its receiver got them in this form. Raises `Gone` if the log has
        lost them or they are too far apart, and `TooMany`."""
        ranges = await self._find_ranges(delivery.offsets)
        if sum(range.ends - range.begins for range in ranges.values()) > MOST_RECORDS:
            raise _make_gone(
                f"the log has the events of this delivery among more than {MOST_RECORDS:,}, too many to read"
            )
        async with self._hold_place():
            records = await self._read(set(delivery.offsets), ranges) if ranges else {}
        if not records or not records.keys() >= set(delivery.offsets):
            raise _make_gone("the log has forgotten events of this delivery")
        events = tuple(_encode(records[place], form) for place in delivery.offsets)
        if digest_events(events) != delivery.digest:
            raise _make_gone("another log has taken the place of the one that had the events of this delivery")
        return events

    async def _find_ranges(self, places: Iterable[RecordPlace]) -> dict[str, LogRange]:
        """The range to read of each partition, in the log that fan-outs read now."""
        offsets: dict[str, list[int]] = {}
        for partition, offset in places:
            offsets.setdefault(partition, []).append(offset)
        read = await self._store.bus_flushes.read_positions(list(offsets))
        return {
            name: LogRange(min(found), max(found) + 1, read[name].position.log)
            for name, found in offsets.items()
            if name in read
        }

    @asynccontextmanager
    async def _hold_place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise TooMany("the log is being read for others", retry_after_seconds=1) from None
        try:
            yield
        finally:
            self._places.release()

    async def _read(self, places: set[RecordPlace], ranges: Mapping[str, LogRange]) -> dict[RecordPlace, bytes]:
        found, left = dict[RecordPlace, bytes](), set(ranges)
        try:
            async with self._stream.read_ranges(ranges) as reader, asyncio.timeout(_SECONDS):
                while left:
                    for chunk in await reader.read(_WAIT_SECONDS):
                        found |= _pick(chunk, places)
                        left -= {chunk.partition} if chunk.next >= ranges[chunk.partition].ends else set()
        except TimeoutError:
            raise _make_gone(
                f"the events of this delivery cannot be read from the log in {_SECONDS:g} seconds"
            ) from None
        return found


def _pick(chunk: Chunk, places: set[RecordPlace]) -> dict[RecordPlace, bytes]:
    pairs = zip(chunk.offsets, chunk.values, strict=True)
    return {
        (chunk.partition, offset): value
        for offset, value in pairs
        if value is not None and (chunk.partition, offset) in places
    }


def _encode(record: bytes, form: EventForm) -> bytes:
    if form is EventForm.NATIVE:
        return record
    event = read_event(record)
    return b"" if event is None else published_form(event)


def _make_gone(reason: str) -> Gone:
    return Gone(reason, field="events", value="true")
