"""Subscriptions of the bus. Each write raises the registry's version in its own transaction."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.bus.rules.notices import notices_of_move
from shared.bus.rules.subscriptions import (
    COLLECTING,
    PUBLISHED_KEY,
    EventSubscription,
    SubscriptionStatus,
    calls_another,
    is_to_be_looked_at,
    restarts_failing_time,
    subscription_of,
)
from shared.bus.rules.wake_ups import WakeUp
from shared.bus.store_cuts import Cursors
from shared.bus.store_log import UNWOKEN, Unwoken, add_notices, unwoken_document
from shared.bus.store_queues import GoneQueues
from shared.bus.store_replays import move_replays
from shared.bus.store_topics import (
    SUBSCRIPTIONS,
    RegistryWriter,
    add_missing_topics,
    forget_free_topics,
    make_registry,
    note_forgotten,
    raise_version,
    read_gone_topics,
    read_registry,
)
from shared.bus.store_wake_ups import WakeUps
from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import Aggregate, Codec, Document, Page, read_page, translate_errors

log = structlog.get_logger(__name__)

_codec = Codec(EventSubscription)
_READ_AT_ONCE = 1_000
_REMOVED = SubscriptionStatus.REMOVED.value
_BEHIND_IDS = "g"  # ids are hex digits; the registry's id follows them
_PAGED_AT_ONCE = 200  # each has less than 200 kB
_UNFOLDED = {"secrets": 0, "headers": 0, "contact": 0}
_SHORT = _UNFOLDED | {"topics": 0, "filter": 0, "former": 0}


class SubscriptionWrite(Struct, frozen=True):
    """A subscription as it was read (`None` if there was no document, not even of a removed one) and as it is to be.
    Limits of the namespace after the write: `most` subscriptions if it is new, `most_topics` topics if it has more than
    before."""

    before: EventSubscription | None
    after: EventSubscription
    most: int | None = None
    most_topics: int | None = None

    @property
    def is_new(self) -> bool:
        return self.before is None or self.before.state is SubscriptionStatus.REMOVED

    @property
    def has_more_topics(self) -> bool:
        return len(_topics_of(self.after)) > len(_topics_of(self.before))

    @property
    def new_topics(self) -> Sequence[str]:
        return sorted(_topics_of(self.after) - _topics_of(self.before))

    @property
    def left_topics(self) -> Sequence[str]:
        return sorted(_topics_of(self.before) - _topics_of(self.after))

    @property
    def changes_wake_up(self) -> bool:
        before, after = self.before, self.after
        if before is None or before.queue != after.queue:
            return False
        is_gone = after.state is SubscriptionStatus.REMOVED
        return is_gone or after.max_events != before.max_events or is_to_be_looked_at(before, after)


class RegistryReading(Struct, frozen=True):
    """The changes since the version asked for, up to `version`. `whole`: all subscriptions that collect, not only
    changes."""

    version: int
    changed: Sequence[EventSubscription]
    whole: bool = False


class UnreadableSubscriptions(Unavailable):
    """This version cannot read these documents: a later version may have written them."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"{len(ids)} subscriptions cannot be read, as a later version may have written them: {ids[0]}")
        self.ids = ids


class BusSubscriptions(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._subscriptions = database[SUBSCRIPTIONS]
        self._wake_ups = WakeUps(database)
        self._cursors = Cursors(database)
        self._gone = GoneQueues(database)
        self._unwoken = database[UNWOKEN]
        self._writer = RegistryWriter(database)

    async def setup(self) -> None:
        await self._writer.setup()
        await self._subscriptions.create_index([("namespace", ASCENDING), ("key", ASCENDING)], sparse=True)
        await self._subscriptions.create_index([("topics", ASCENDING)], sparse=True)
        await self._subscriptions.create_index([("state", ASCENDING), ("updated_at", ASCENDING)], sparse=True)
        await self._subscriptions.create_index([("version", ASCENDING)])
        await self._subscriptions.create_index([("former.ends.id", ASCENDING)], sparse=True)
        await make_registry(self._database)

    async def get(self, id: str) -> EventSubscription | None:
        return _codec.maybe(await self._subscriptions.find_one({"_id": id, "namespace": {"$exists": True}}))

    async def with_ids(self, ids: Sequence[str]) -> dict[str, EventSubscription]:
        return {found.id: found for found in await self._read({"_id": {"$in": list(ids)}})}

    async def count_suspended(self) -> int:
        return await self._subscriptions.count_documents({"state": SubscriptionStatus.SUSPENDED.value})

    async def page(self, *, after: str = "", limit: int) -> Page[EventSubscription]:
        """The next subscriptions of all namespaces after the id `after`, without removed ones. Long fields (topics,
        filters, headers, secrets) are left out, so the values must not be written."""
        return await self._page(_behind(after), "_id", limit, _SHORT)

    async def page_published(self, *, after: str = "", limit: int) -> Page[EventSubscription]:
        """The same, only those of Routemaster's API, with their topics."""
        return await self._page(
            _behind(after) | {"key": PUBLISHED_KEY}, "_id", limit, _UNFOLDED | {"filter": 0, "former": 0}
        )

    async def page_signed(self, *, limit: int) -> Page[EventSubscription]:
        """The first subscriptions with signed deliveries, by id, without removed ones."""
        return await self._page({"secrets.0": {"$exists": True}}, "_id", limit)

    async def page_of(self, namespace: str, *, after: str = "", limit: int) -> Page[EventSubscription]:
        """The next subscriptions of a namespace after the key `after`, without removed ones."""
        return await self._page({"namespace": namespace, "key": {"$gt": after}}, "key", limit)

    async def count_of(self, namespace: str) -> int:
        return await self._count(namespace)

    async def count_topics(self, namespace: str, *, but: str) -> int:
        """The number of topics in the subscriptions of a namespace, except those of the id `but` and of removed
        ones."""
        return await self._count_topics(namespace, but)

    async def read_since(self, version: int) -> RegistryReading:
        """The changes since `version`; if that is too old, everything that collects. Secrets are left out. Raises
        `UnreadableSubscriptions`, because a fan-out that skips a subscription would withhold its events."""
        now, forgotten = await read_registry(self._database)
        if version < forgotten:
            # A state of a later version may collect: it is read, and found unreadable.
            others = sorted(state.value for state in SubscriptionStatus if state not in COLLECTING)
            collecting = {"state": {"$nin": others}, "generation": {"$exists": True}}
            return RegistryReading(now, await self._read_every(collecting), whole=True)
        if version == now:
            return RegistryReading(now, ())
        # The registry itself has no generation, and may have this version.
        newer = {"version": {"$gt": version}, "generation": {"$exists": True}}
        return RegistryReading(now, await self._read_every(newer))

    async def write(self, write: SubscriptionWrite, *, now: datetime) -> EventSubscription | None:
        """Write a subscription, its missing topics and its queue, in one transaction; `None` if it has changed or a
        limit is exceeded. Topics that it leaves go if they have no owner and no subscription. The queue's wake-up
        follows at once, or later by a note."""

        async def transact(session: AsyncClientSession) -> EventSubscription:
            return await self._write_in(session, write, now)

        try:
            after = await self._writer.write(transact, now=now)
        except (_Overtaken, DuplicateKeyError):
            return None
        if write.changes_wake_up:
            await self._have_wake_up_follow(after)
        return after

    async def rouse(self, queue: str, waiting: int, now: datetime) -> bool:
        """Make a queue with `waiting` events due now, because no worker would look at it. A missing wake-up is made
        anew. `False` if that does not apply any more."""
        stands = await self.get(subscription_of(queue))
        if stands is None or stands.queue != queue or not stands.is_called:
            return False

        async def transact(session: AsyncClientSession) -> None:
            # The subscription is written as well: a concurrent removal then removes the wake-up too.
            version = await raise_version(self._database, session)
            if not await self._put(stands, replace(stands, version=version), session):
                raise _Overtaken
            wake_up = WakeUp(full=stands.max_events, waiting=waiting, version=version)
            await self._wake_ups.rouse(queue, wake_up, now, session)

        try:
            await self._writer.write(transact, now=now)
        except (_Overtaken, DuplicateKeyError):
            return False
        return True

    async def forget_removed(self, before: datetime, limit: int, *, now: datetime) -> list[EventSubscription]:
        """Delete the remains of up to `limit` subscriptions removed before `before`; returns them."""
        query = {"state": SubscriptionStatus.REMOVED.value, "updated_at": {"$lt": before}}

        async def transact(session: AsyncClientSession) -> list[EventSubscription]:
            cursor = self._subscriptions.find(query, session=session).limit(limit)
            gone = [_codec.value(document) for document in await cursor.to_list()]
            if gone:
                ids = [subscription.id for subscription in gone]
                await self._subscriptions.delete_many({"_id": {"$in": ids}}, session=session)
                await note_forgotten(self._database, await raise_version(self._database, session), session)
            return gone

        return await self._writer.write(transact, now=now)

    async def find_with_former(self, limit: int, *, after: str = "") -> list[EventSubscription]:
        """The next subscriptions after the id `after` that collect and have former choices; without topics, filters and
        secrets."""
        query = {"former.ends.id": {"$exists": True}, "state": {"$in": sorted(state.value for state in COLLECTING)}}
        query |= {"_id": {"$gt": after}}
        cursor = self._subscriptions.find(query, _UNFOLDED | {"topics": 0, "filter": 0}, batch_size=_READ_AT_ONCE)
        return [_codec.value(document) for document in await cursor.sort("_id", ASCENDING).limit(limit).to_list()]

    async def forget_former(self, ids: Sequence[str], ends: Sequence[str], *, now: datetime) -> int:
        """Delete the former choices of these subscriptions that end at `ends`, by their ids, in one transaction;
        returns the number of subscriptions that had some."""
        pulled = {"former": {"ends.id": {"$in": list(ends)}}}
        query = {"_id": {"$in": list(ids)}, "former.ends.id": {"$in": list(ends)}}

        async def transact(session: AsyncClientSession) -> int:
            change = {"$pull": pulled, "$set": {"version": await raise_version(self._database, session)}}
            return (await self._subscriptions.update_many(query, change, session=session)).modified_count

        return await self._writer.write(transact, now=now)

    async def follow_up(self, queue: str) -> None:
        subscription = await self.get(subscription_of(queue))
        if subscription is None or subscription.queue != queue or subscription.state is SubscriptionStatus.REMOVED:
            await self._wake_ups.remove(queue)
        else:
            await self._wake_ups.follow(subscription)

    async def end_overdue_writers(self, now: datetime) -> int:
        return await self._writer.end_overdue(now)

    async def _have_wake_up_follow(self, after: EventSubscription) -> None:
        """The change is stored, so a failure here is left to upkeep, by the note."""
        try:
            await self.follow_up(after.queue)
            with translate_errors():
                await self._unwoken.delete_one({"_id": _note_id(after)})
        except Unavailable as error:
            log.warning("a wake-up is left to upkeep to follow", queue=after.queue, reason=str(error))

    async def _write_in(
        self, session: AsyncClientSession, write: SubscriptionWrite, now: datetime
    ) -> EventSubscription:
        version = await raise_version(self._database, session)
        gone = await read_gone_topics(self._database, write.new_topics, session) if write.new_topics else ()
        former = (*write.after.former, *gone)
        after = replace(write.after, updated_at=now, version=version, former=former)
        if not await self._put(write.before, after, session) or await self._is_beyond(write, session):
            raise _Overtaken
        if write.new_topics:
            await add_missing_topics(self._database, write.new_topics, after.namespace, now, session)
        await forget_free_topics(self._database, write.left_topics, session)
        await self._change_queue(write.before, after, session)
        if write.changes_wake_up:
            note = unwoken_document(Unwoken(_note_id(after), [], follows=after.queue), now)
            await self._unwoken.insert_one(note, session=session)
        await add_notices(self._database, notices_of_move(write.before, after), session)
        return after

    async def _put(
        self, before: EventSubscription | None, after: EventSubscription, session: AsyncClientSession
    ) -> bool:
        document = _codec.document(after)
        if before is None:
            await self._subscriptions.insert_one(document, session=session)
            return True
        stands = {"_id": before.id, "version": before.version}
        return (await self._subscriptions.replace_one(stands, document, session=session)).matched_count == 1

    async def _change_queue(
        self, before: EventSubscription | None, after: EventSubscription, session: AsyncClientSession
    ) -> None:
        """Make a queue, record its removal, or reset its receiver."""
        if before is None or before.queue != after.queue:
            await self._wake_ups.add(after.queue, after.max_events, after.updated_at, session)
            await self._cursors.add(after.queue, session)
            return
        await move_replays(self._database, before, after, session)
        if after.state is SubscriptionStatus.REMOVED:
            await self._gone.add(after.queue, after.updated_at, session)
        elif before.state is SubscriptionStatus.SUSPENDED:
            await self._cursors.forgive(after.queue, session)
        elif calls_another(before, after):
            await self._cursors.begin_with_another(after.queue, session)
        elif restarts_failing_time(before, after):
            await self._cursors.restart_failing_time(after.queue, session)

    async def _page(
        self, query: Document, order: str, limit: int, without: Document | None = None
    ) -> Page[EventSubscription]:
        present = query | {"state": {"$ne": SubscriptionStatus.REMOVED.value}}
        return await read_page(
            self._subscriptions,
            present,
            _codec.value,
            order=[order],
            limit=limit,
            without=without,
            batch=_PAGED_AT_ONCE,
        )

    async def _is_beyond(self, write: SubscriptionWrite, session: AsyncClientSession) -> bool:
        """Whether the namespace exceeds its limits by this write. A write that raised the version counts alone."""
        namespace = write.after.namespace
        if write.most is not None and write.is_new and await self._count(namespace, session) > write.most:
            return True
        if write.most_topics is None or not write.has_more_topics:
            return False
        return await self._count_topics(namespace, "", session) > write.most_topics

    async def _count(self, namespace: str, session: AsyncClientSession | None = None) -> int:
        present = {"namespace": namespace, "state": {"$ne": SubscriptionStatus.REMOVED.value}}
        return await self._subscriptions.count_documents(present, session=session)

    async def _count_topics(self, namespace: str, but: str, session: AsyncClientSession | None = None) -> int:
        others = {"namespace": namespace, "_id": {"$ne": but}, "state": {"$ne": SubscriptionStatus.REMOVED.value}}
        steps: list[Document] = [{"$match": others}, {"$group": {"_id": None, "n": {"$sum": {"$size": "$topics"}}}}]
        found = await (await self._subscriptions.aggregate(steps, session=session)).to_list()
        return int(found[0]["n"]) if found else 0

    async def _read(self, query: Document, without: Document | None = None) -> list[EventSubscription]:
        found = await self._subscriptions.find(query, without, batch_size=_READ_AT_ONCE).to_list()
        return [_codec.value(document) for document in found]

    async def _read_every(self, query: Document) -> list[EventSubscription]:
        found = await self._subscriptions.find(query, _UNFOLDED, batch_size=_READ_AT_ONCE).to_list()
        read = {document["_id"]: _read_for_fold(document) for document in found}
        if unreadable := [id for id, subscription in read.items() if subscription is None]:
            raise UnreadableSubscriptions(unreadable)
        return [subscription for subscription in read.values() if subscription is not None]


def _read_for_fold(document: Document) -> EventSubscription | None:
    """`None` if this version cannot read it. A removed subscription gets nothing, whatever its filter is."""
    try:
        return _codec.value(document | {"filter": {}} if document.get("state") == _REMOVED else document)
    except msgspec.ValidationError:
        return None


def _behind(id: str) -> Document:
    return {"_id": {"$gt": id, "$lt": _BEHIND_IDS}}


def _topics_of(subscription: EventSubscription | None) -> set[str]:
    if subscription is None or subscription.state is SubscriptionStatus.REMOVED:
        return set()
    return set(subscription.topics)


def _note_id(after: EventSubscription) -> str:
    return f"{after.queue}/follow/{after.version}"


class _Overtaken(Exception):
    """Aborts a transaction: the subscription or its namespace has changed since it was read."""
