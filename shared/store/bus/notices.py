"""Notices that are to be told: an outbox. The process that makes what a notice tells puts it there in the same
transaction; the one that has told it takes it out by its id."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.notices import BusNotice, NoticeWay
from shared.store.documents import Codec, Document, forget_some, make, translate_errors

NOTICES = "bus_notices"

_codec = Codec(BusNotice)


class BusNotices:
    """The `bus_notices` collection, for those who tell them. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._notices = database[NOTICES]

    async def setup(self) -> None:
        """Make the indexes, and with them the collection: a transaction on an older server cannot."""
        await make(self._notices)
        await self._notices.create_index([("way", ASCENDING), ("due_at", ASCENDING)])
        await self._notices.create_index([("way", ASCENDING), ("at", ASCENDING)])
        await self._notices.create_index([("queue", ASCENDING)])

    async def take(self, way: NoticeWay, now: datetime, until: datetime) -> BusNotice | None:
        """One that is due to be told in this way, which nobody else takes before `until`."""
        change = {"$set": {"due_at": until}, "$inc": {"tries": 1}}
        with translate_errors():
            found = await self._notices.find_one_and_update(
                {"way": way.value, "due_at": {"$lte": now}},
                change,
                sort=[("due_at", ASCENDING)],
                return_document=ReturnDocument.AFTER,
            )
        return _codec.maybe(found)

    async def put_off(self, taken: BusNotice, until: datetime) -> None:
        """Have it told later; nothing happens where somebody else has taken it since."""
        with translate_errors():
            await self._notices.update_one({"_id": taken.id, "tries": taken.tries}, {"$set": {"due_at": until}})

    async def note_told(self, taken: BusNotice, until: datetime) -> None:
        """Keep it as a mark that it is told, until then."""
        told = {"$set": {"is_told": True, "due_at": until}}
        with translate_errors():
            await self._notices.update_one({"_id": taken.id, "at": taken.at}, told)

    async def forget_mails(self, before: datetime, limit: int) -> int:
        """Forget some mails about what happened before then, sent or not; returns how many."""
        return await forget_some(self._notices, {"way": NoticeWay.MAIL.value, "at": {"$lt": before}}, limit)

    async def remove(self, id: str) -> None:
        """Forget one that is told."""
        with translate_errors():
            await self._notices.delete_one({"_id": id})

    async def find_oldest(self) -> BusNotice | None:
        """The event that tells what happened first, if any is left."""
        with translate_errors():
            found = await self._notices.find({"way": NoticeWay.EVENT.value}).sort("at", ASCENDING).limit(1).to_list()
        return _codec.value(found[0]) if found else None


async def add_notices(
    database: AsyncDatabase[Document], notices: Sequence[BusNotice], session: AsyncClientSession
) -> None:
    """Have these told, in the transaction that makes what they tell, whose errors are the driver's. A mail that is
    there already, perhaps as a mark, stands for another one."""
    mails = [notice.id for notice in notices if notice.way is NoticeWay.MAIL]
    found = (
        await database[NOTICES].find({"_id": {"$in": mails}}, {"_id": 1}, session=session).to_list() if mails else []
    )
    known = {document["_id"] for document in found}
    if new := [_codec.document(notice) for notice in notices if notice.id not in known]:
        await database[NOTICES].insert_many(new, session=session)


async def add_loss(database: AsyncDatabase[Document], notice: BusNotice, session: AsyncClientSession) -> None:
    """Have a loss told, in its transaction: with others of its queue and reason, if nobody has taken their notice."""
    untold = {"queue": notice.queue, "kind": notice.kind.value, "reason": notice.reason, "tries": 0}
    change = {
        "$inc": {"events": notice.events},
        "$min": {"first_at": notice.first_at},
        "$max": {"last_at": notice.last_at},
    }
    found = await database[NOTICES].find_one_and_update(untold, change, {"_id": 1}, session=session)
    if found is None:
        await add_notices(database, [notice], session)
