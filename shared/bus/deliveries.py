"""Deliveries: looking them up with their events, retrying a delivery that its receiver has not accepted, discarding it.

    retry ──> one transaction: remove the letter, open its delivery, note the queue to wake
          ──> wake the queue (the queues of a page together) ──> remove the note

If a process dies in between, the upkeep of the fan-outs finds the note. A settled delivery keeps the place of each
event in the log, and one digest of all. The digest decides: a log that was created anew may have other events
there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

from shared.bus.replays import BusReplayFlow
from shared.bus.rules.deliveries import (
    MOST_OPEN,
    BusDeadLetter,
    BusLetterPlace,
    DeliveryChoice,
    DeliveryPlace,
    EventDelivery,
    digest_events,
    place_of_letter,
)
from shared.bus.rules.events import published_form, read_event
from shared.bus.rules.subscriptions import EventForm, EventSubscription, has_to_be_made, subscription_of
from shared.bus.store_deliveries import LetterRetry
from shared.bus.store_log import Unwoken
from shared.bus.subscriptions import Subscribing
from shared.bus.waking import Waker
from shared.core.documents import LogRange
from shared.core.errors import Conflict, Gone, NotFound, TooMany
from shared.drivers.kafka import Stream
from shared.drivers.kafka.reading import Chunk
from shared.drivers.mongo.documents import Page
from shared.runtime.faults import fault
from shared.store import Store

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


class OwnedDelivery(Struct, frozen=True):
    delivery: EventDelivery
    subscription: EventSubscription


class DeliveryLookup:
    def __init__(self, store: Store, subscribing: Subscribing, logged: LoggedEvents) -> None:
        self._store = store
        self._subscribing = subscribing
        self._logged = logged

    async def page(
        self, namespace: str, key: str, choice: DeliveryChoice, *, before: DeliveryPlace | None, limit: int
    ) -> Page[EventDelivery]:
        subscription = await self._subscribing.get(namespace, key)
        upto = None if before is None else before.sequence
        return await self._store.bus_deliveries.page(subscription.queue, choice, before=upto, limit=limit)

    async def get(self, namespace: str, id: str) -> OwnedDelivery:
        """A delivery without its events. Raises `NotFound` also if it belongs to another namespace, or its subscription
        is removed."""
        delivery = await self._store.bus_deliveries.find(id, events=False)
        found = None
        if delivery is not None:
            found = await self._store.bus_subscriptions.get(subscription_of(delivery.queue))
        if delivery is None or found is None or has_to_be_made(found) or found.namespace != namespace:
            raise NotFound("there is no delivery with this id", field="id", value=id)
        return OwnedDelivery(delivery, found)

    async def read_events(self, owned: OwnedDelivery) -> tuple[bytes, ...]:
        """The events of a delivery, as its receiver gets them. Open deliveries and dead letters hold their events;
        those of other deliveries are read from the log. Raises `Gone` if the log has lost them, and `TooMany`."""
        id, namespace = owned.delivery.id, owned.subscription.namespace
        now = await self._store.bus_deliveries.find(id, events=True)
        if now is not None and now.events:
            return now.events
        letter = await self._store.bus_dead_letters.get(namespace, id)
        if letter is not None and letter.events:
            return letter.events
        return await self._logged.read(now or owned.delivery, owned.subscription.form)


MOST_AT_ONCE = 500
"""One call retries this many letters, or up to a page more."""
_PAGE, _PAGES = 100, 50
_UNKNOWN = "it does not tell in which log its events lie"
_GONE = "it is not there any more, or its subscription is gone: then it can only be discarded"


class RetriedLetters(Struct, frozen=True):
    retried: int
    more: bool


class BusDeadLetterFlow:
    def __init__(
        self, store: Store, waker: Waker, replays: BusReplayFlow, now: Callable[[], Awaitable[datetime]]
    ) -> None:
        self._store = store
        self._replays = replays
        self._waker = waker
        self._now = now

    async def page(
        self, namespace: str, *, key: str = "", before: BusLetterPlace | None = None, limit: int
    ) -> Page[BusDeadLetter]:
        return await self._store.bus_dead_letters.page(namespace, key=key, before=before, limit=limit)

    async def get(self, namespace: str, letter_id: str) -> BusDeadLetter:
        letter = await self._store.bus_dead_letters.get(namespace, letter_id)
        if letter is None:
            raise NotFound("there is no dead letter with this id", field="id", value=letter_id)
        return letter

    async def retry(self, namespace: str, letter_id: str) -> BusDeadLetter:
        """Open the delivery of a letter again, or replay the events that it reports as lost.

        Raises:
            Conflict: the subscription is gone, has too many open deliveries, or has an open replay.
            Gone: the letter reports a loss, and the log has lost these events.
        """
        letter = await self.get(namespace, letter_id)
        if refusal := await self._retry(letter):
            raise Conflict(refusal, field="id", value=letter_id)
        return letter

    async def retry_all(self, namespace: str, *, key: str = "") -> RetriedLetters:
        """Open the deliveries of letters again, newest first, as many as one call may. Letters that cannot be retried
        stay, and so do letters about losses, because a subscription has one replay at a time."""
        retried, place = 0, None
        for _ in range(_PAGES):
            page = await self._store.bus_dead_letters.page(namespace, key=key, before=place, limit=_PAGE, losses=False)
            retried += await self._retry_page(page)
            if not page.more or retried >= MOST_AT_ONCE:
                return RetriedLetters(retried, more=page.more)
            place = place_of_letter(page[-1])
        return RetriedLetters(retried, more=True)

    async def discard(self, namespace: str, letter_id: str) -> None:
        await self._store.bus_dead_letters.remove(await self.get(namespace, letter_id))

    async def _retry(self, letter: BusDeadLetter) -> str:
        if letter.queue not in await self._find_queues([letter]):
            return _GONE
        if letter.is_loss:
            return await self._replays.bring_back(letter) if letter.can_be_retried else _UNKNOWN
        retry = await self._store.bus_dead_letters.retry(letter, await self._now())
        if retry.is_full:
            return f"{MOST_OPEN:,} deliveries of its subscription are open: retry it when some of them are settled"
        if retry.unwoken is None:
            return _GONE
        await self._wake([retry.unwoken])
        return ""

    async def _retry_page(self, listed: Sequence[BusDeadLetter]) -> int:
        """Retry the letters of a page; returns how many. Their queues are looked up and woken together."""
        queues, now, opened = await self._find_queues(listed), await self._now(), list[Unwoken]()
        for one in listed:
            if one.queue not in queues:
                continue
            letter = await self._store.bus_dead_letters.get(one.namespace, one.id)
            retry = LetterRetry() if letter is None else await self._store.bus_dead_letters.retry(letter, now)
            if retry.is_full:
                queues.discard(one.queue)
            elif retry.unwoken is not None:
                opened.append(retry.unwoken)
        await self._wake(opened)
        return len(opened)

    async def _wake(self, opened: Sequence[Unwoken]) -> None:
        if opened:
            await fault("bus.after_retry")
            await self._waker.wake([wake for unwoken in opened for wake in unwoken.wakes])
            await self._store.bus_flushes.forget_unwoken([unwoken.id for unwoken in opened])

    async def _find_queues(self, letters: Sequence[BusDeadLetter]) -> set[str]:
        found = await self._store.bus_subscriptions.with_ids(list({letter.subscription for letter in letters}))
        return {subscription.queue for subscription in found.values() if not has_to_be_made(subscription)}
