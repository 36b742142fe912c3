"""Browser sessions: one document each, found by the digest of its cookie with every page."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.sessions import IDLE, WebSession
from shared.store.documents import Aggregate, Codec, Document, with_ids

session_codec = Codec(WebSession)


class WebSessions(Aggregate):
    """The `sessions` collection. It holds neither cookies nor tokens."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._sessions = database["sessions"]

    async def setup(self) -> None:
        await self._sessions.create_index([("namespace", ASCENDING), ("began_at", ASCENDING)])
        await self._sessions.create_index([("seen_at", ASCENDING)])
        await self._sessions.create_index([("ends_at", ASCENDING)])

    async def add(self, session: WebSession) -> None:
        await self._sessions.insert_one(session_codec.document(session))

    async def with_ids(self, session_ids: Sequence[str]) -> dict[str, WebSession]:
        """The existing sessions, ended ones too, by id."""
        return await with_ids(self._sessions, session_codec, session_ids)

    async def take_link(self, session_id: str) -> WebSession | None:
        """Take the link with this id, so that it works once; `None` if there is none."""
        return session_codec.maybe(await self._sessions.find_one_and_delete({"_id": session_id, "is_link": True}))

    async def note_sight(self, session: WebSession, at: datetime) -> None:
        await self._sessions.update_one({"_id": session.id}, {"$max": {"seen_at": at}})

    async def find_of(self, namespace: str, *, limit: int) -> Sequence[WebSession]:
        """The newest sessions of this person."""
        found = (
            self._sessions.find({"namespace": namespace, "is_link": {"$ne": True}}).sort("began_at", -1).limit(limit)
        )
        return [session async for session in session_codec.values(found)]

    async def remove(self, session_id: str, namespace: str) -> bool:
        """End this person's session; `False` if they have none with this id."""
        found = await self._sessions.delete_one({"_id": session_id, "namespace": namespace})
        return found.deleted_count == 1

    async def remove_over(self, now: datetime) -> int:
        ended = await self._sessions.delete_many({"ends_at": {"$lte": now}})
        idle = await self._sessions.delete_many({"seen_at": {"$lte": now - IDLE}})
        return ended.deleted_count + idle.deleted_count
