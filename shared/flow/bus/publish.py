"""Publishing: an event is accepted once all replicas of the log have it.

    stamp with the arrival ──> look up the topic ──> append, wait for the acknowledgement ──> answer
                                └─ not the publisher's yet: claim it, and try again

Events that a process publishes at the same time share one lookup of topics and one append. All events of an entity have
one key, topic and URL, so they lie in one partition, in order. If a partition does not answer, only its own events
wait. The arrival is the database's time. Without an acknowledgement the log may or may not have the events: publishing
them again may publish them twice.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import compress

from msgspec import Struct
from prometheus_client import Counter

from shared.domain.bus.events import EventDraft, stamp
from shared.domain.errors import Unavailable
from shared.domain.instants import ms
from shared.flow.bus.topics import TopicFlow
from shared.runtime.bounded_labels import BoundedLabels
from shared.runtime.coalescer import LINGER_SECONDS, Coalescer
from shared.runtime.faults import fault
from shared.runtime.metrics import BUS_EVENT_BYTES, BUS_EVENTS_PUBLISHED
from shared.runtime.settings import BusSettings
from shared.stream import LateRecords, Stream

_APPENDED_BYTES = 4 * 2**20
_ID_BYTES = 16
_TRIES = 5
_PATIENCE_SECONDS = 0.25  # a round holds up those behind it no longer for partitions that do not answer


class _Append(Struct, frozen=True):
    """Records that a namespace appends to a topic together, with the ids of their events and their keys."""

    topic: str
    namespace: str
    ids: list[str]
    keys: Sequence[bytes]
    records: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


_Appended = Collection[asyncio.Future[None]]
"""Futures that end once the log has everything; empty if it has."""


class EventPublisher:
    """Publishes events. `now` returns the database's time."""

    def __init__(
        self, topics: TopicFlow, stream: Stream, now: Callable[[], Awaitable[datetime]], settings: BusSettings
    ) -> None:
        self._topics = topics
        self._stream = stream
        self._now = now
        self._log = settings.log_topic
        self._seconds = settings.publish_seconds
        self._topic_label, self._publisher_label = BoundedLabels(), BoundedLabels()
        self._append = Coalescer[_Append, _Appended | None](
            self._append_all,
            most=_APPENDED_BYTES,
            size=lambda append: append.size,
            linger_seconds=LINGER_SECONDS,
        )

    async def publish(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> list[str]:
        """Publish events on a topic, which the namespace claims if it is free; returns their ids in order, once the log
        has them.

        Raises:
            Forbidden: the topic belongs to another namespace, or the namespace owns too many topics.
            Unavailable: the log may or may not have the events. Raised within `publish_seconds`.
        """
        try:
            async with asyncio.timeout(self._seconds):
                append = await self._claim_and_append(name, namespace, drafts)
        except TimeoutError:
            raise Unavailable(f"the log has not answered within {self._seconds:g} s", server="stream") from None
        events, size = _counters(self._topic_label(name), self._publisher_label(namespace))
        events.inc(len(drafts))
        size.inc(append.size)
        await fault("bus.after_append")
        return append.ids

    async def _claim_and_append(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> _Append:
        """Append first and claim only if needed: nearly every topic is its publisher's already."""
        for _ in range(_TRIES):
            append = await self._stamp(name, namespace, drafts)
            if (appended := await self._append(append)) is not None:
                for done in appended:
                    await asyncio.shield(done)
                return append
            await self._topics.claim(name, namespace)
        raise Unavailable(f"the topic {name} is claimed and removed all the time")

    async def _stamp(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> _Append:
        at = ms(await self._now())
        ids = [draft.id or secrets.token_hex(_ID_BYTES) for draft in drafts]
        records = [stamp(draft, topic=name, id=id, at=at) for draft, id in zip(drafts, ids, strict=True)]
        return _Append(name, namespace, ids, [f"{name}\0{draft.url}".encode() for draft in drafts], records)

    async def _append_all(self, appends: Sequence[_Append]) -> Sequence[_Appended | None]:
        """Append to topics that their publishers own; `None` for the others."""
        topics = await self._topics.find_all([append.topic for append in appends])
        owned = [
            topic is not None and topic.owner == append.namespace for topic, append in zip(topics, appends, strict=True)
        ]
        records = [record for append in compress(appends, owned) for record in append.records]
        keys = [key for append in compress(appends, owned) for key in append.keys]
        late: Sequence[LateRecords] = ()
        if records:
            late = await self._stream.append(
                self._log, records, keys, patience_seconds=_PATIENCE_SECONDS, seconds=self._seconds
            )
        if not late:
            return [() if is_owned else None for is_owned in owned]
        return _share_out(late, appends, owned)


def _share_out(
    late: Sequence[LateRecords], appends: Sequence[_Append], owned: Sequence[bool]
) -> list[_Appended | None]:
    """The futures that each append still waits for if some partitions are late."""
    done_by_place = {place: records.done for records in late for place in records.places}
    shared, first = list[_Appended | None](), 0
    for append, is_owned in zip(appends, owned, strict=True):
        if not is_owned:
            shared.append(None)
            continue
        places = range(first, first + len(append.records))
        shared.append({done_by_place[place] for place in places if place in done_by_place})
        first = places.stop
    return shared


@lru_cache(maxsize=1_000)
def _counters(topic: str, publisher: str) -> tuple[Counter, Counter]:
    return BUS_EVENTS_PUBLISHED.labels(topic, publisher), BUS_EVENT_BYTES.labels(topic, publisher)
