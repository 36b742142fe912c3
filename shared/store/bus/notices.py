"""An outbox of notices. The transaction that makes a notice's cause stores it; the process that has told it deletes it
by its id."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.notices import BusNotice, NoticeWay
from shared.store.documents import Aggregate, Codec, Document, forget_some, make

NOTICES = "bus_notices"

_codec = Codec(BusNotice)


class BusNotices(Aggregate):
    """The `bus_notices` collection, for telling notices."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._notices = database[NOTICES]

    async def setup(self) -> None:
        await make(self._notices)
        await self._notices.create_index([("way", ASCENDING), ("due_at", ASCENDING)])
        await self._notices.create_index([("way", ASCENDING), ("at", ASCENDING)])
        await self._notices.create_index([("queue", ASCENDING)])

    async def take(self, way: NoticeWay, now: datetime, until: datetime) -> BusNotice | None:
        """Take a due notice of this way; no other process takes it before `until`."""
        change = {"$set": {"due_at": until}, "$inc": {"tries": 1}}
        found = await self._notices.find_one_and_update(
            {"way": way.value, "due_at": {"$lte": now}},
            change,
            sort=[("due_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return _codec.maybe(found)

    async def put_off(self, taken: BusNotice, until: datetime) -> None:
        """Tell it later, unless another process has taken it since."""
        await self._notices.update_one({"_id": taken.id, "tries": taken.tries}, {"$set": {"due_at": until}})

    async def note_told(self, taken: BusNotice, until: datetime) -> None:
        """Keep it until `until` as a mark that it was told."""
        told = {"$set": {"is_told": True, "due_at": until}}
        await self._notices.update_one({"_id": taken.id, "at": taken.at}, told)

    async def forget_mails(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` mails about causes before `before`, sent or not; returns the number."""
        return await forget_some(self._notices, {"way": NoticeWay.MAIL.value, "at": {"$lt": before}}, limit)

    async def remove(self, id: str) -> None:
        await self._notices.delete_one({"_id": id})

    async def find_oldest(self) -> BusNotice | None:
        """The event with the earliest cause, if any is left."""
        found = await self._notices.find({"way": NoticeWay.EVENT.value}).sort("at", ASCENDING).limit(1).to_list()
        return _codec.value(found[0]) if found else None


async def add_notices(
    database: AsyncDatabase[Document], notices: Sequence[BusNotice], session: AsyncClientSession
) -> None:
    """Add notices, in the transaction that makes their cause. A mail with a stored id, perhaps a mark, is not added
    again. Raises the driver's errors."""
    mails = [notice.id for notice in notices if notice.way is NoticeWay.MAIL]
    found = (
        await database[NOTICES].find({"_id": {"$in": mails}}, {"_id": 1}, session=session).to_list() if mails else []
    )
    known = {document["_id"] for document in found}
    if new := [_codec.document(notice) for notice in notices if notice.id not in known]:
        await database[NOTICES].insert_many(new, session=session)


async def add_loss(database: AsyncDatabase[Document], notice: BusNotice, session: AsyncClientSession) -> None:
    """Add a loss, in its transaction: it joins an untaken notice of its queue and reason, if there is one."""
    untold = {"queue": notice.queue, "kind": notice.kind.value, "reason": notice.reason, "tries": 0}
    change = {
        "$inc": {"events": notice.events},
        "$min": {"first_at": notice.first_at},
        "$max": {"last_at": notice.last_at},
    }
    found = await database[NOTICES].find_one_and_update(untold, change, {"_id": 1}, session=session)
    if found is None:
        await add_notices(database, [notice], session)
