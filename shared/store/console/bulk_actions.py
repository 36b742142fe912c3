"""Bulk actions: one document each. A worker holds one by a token, for as long as its lease lasts; all that it writes
is fenced by that token, so a late worker moves nothing."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.bulk_actions import FAILURES, TRANSITIONS, BulkAction, BulkState, BulkTally
from shared.domain.instants import EPOCH
from shared.domain.transitions import sources
from shared.store.documents import Codec, Document, Page, forget_some, insert_once, read_page, translate_errors

_codec = Codec(BulkAction)
_BATCH = 32  # a hundred failures take up to a hundred kilobytes


class BulkActions:
    """The `bulk_actions` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._actions = database["bulk_actions"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._actions.create_index([("open", ASCENDING), ("leased_until", ASCENDING)])
        await self._actions.create_index([("namespace", ASCENDING), ("_id", ASCENDING)])
        await self._actions.create_index([("namespace", ASCENDING), ("open", ASCENDING)])
        await self._actions.create_index([("ended_at", ASCENDING)])

    async def add(self, action: BulkAction) -> BulkAction:
        """Store an action, unless it is there; returns what is."""
        return _codec.value(await insert_once(self._actions, _codec.document(action)))

    async def get(self, id: str) -> BulkAction | None:
        """The action with this id."""
        with translate_errors():
            return _codec.maybe(await self._actions.find_one({"_id": id}))

    async def page(self, namespace: str, *, before: str = "", limit: int) -> Page[BulkAction]:
        """The actions that this namespace's caller made, or all for `""`, the newest first, behind this id."""
        query: Document = {"namespace": namespace} if namespace else {}
        query |= {"_id": {"$lt": before}} if before else {}
        return await read_page(
            self._actions, query, _codec.value, order=("_id",), direction=DESCENDING, limit=limit, batch=_BATCH
        )

    async def count_open(self, namespace: str, *, most: int) -> int:
        """How many of this namespace are not over, as far as `most`."""
        with translate_errors():
            return await self._actions.count_documents({"namespace": namespace, "open": True}, limit=most)

    async def list_open(self, namespace: str, *, limit: int) -> list[BulkAction]:
        """Some of this namespace that are not over."""
        query = {"namespace": namespace, "open": True}
        with translate_errors():
            return [_codec.value(each) for each in await self._actions.find(query).limit(limit).to_list()]

    async def take(self, id: str, token: str, *, now: datetime, leased_until: datetime) -> BulkAction | None:
        """Hold an open action that nobody holds; `None` where somebody does, or it is over."""
        query = {"_id": id, "open": True, "leased_until": {"$lte": now}}
        return await self._set(query, {"state": BulkState.RUNNING.value, "token": token, "leased_until": leased_until})

    async def advance(
        self, action: BulkAction, tally: BulkTally, *, position: str, leased_until: datetime
    ) -> BulkAction | None:
        """Count a page that is done, whatever state the action has by now; `None` where the hold is another's."""
        failures = [{"id": failure.id, "reason": failure.reason} for failure in tally.failures]
        change: Document = {
            "$set": {"position": position, "leased_until": leased_until},
            "$inc": {"done": tally.done, "skipped": tally.skipped, "failed": len(failures)},
            "$push": {"failures": {"$each": failures, "$slice": FAILURES}},
        }
        return await self._update(_hold(action) | {"position": action.position}, change)

    async def end(self, action: BulkAction, to: BulkState, *, at: datetime, failure: str = "") -> BulkAction | None:
        """End an action that is held; `None` where the hold is another's, or it is over."""
        fields = {"state": to.value, "open": False, "ended_at": at, "failure": failure}
        states = {"state": {"$in": sorted(sources(TRANSITIONS, to))}}
        return await self._set(_hold(action) | states, fields)

    async def fail(self, id: str, *, at: datetime, failure: str) -> BulkAction | None:
        """End an action that somebody has begun, whoever holds it; `None` where it is over."""
        fields = {"state": BulkState.FAILED.value, "open": False, "ended_at": at, "failure": failure}
        return await self._set({"_id": id, "state": {"$in": sorted(sources(TRANSITIONS, BulkState.FAILED))}}, fields)

    async def release(self, action: BulkAction) -> None:
        """Let others hold it."""
        await self._set(_hold(action) | {"open": True}, {"leased_until": EPOCH})

    async def cancel(self, id: str, *, by: str, at: datetime) -> BulkAction | None:
        """Cancel an open action; `None` where it is over, or not there. A worker's page in hand is still counted."""
        fields = {"state": BulkState.CANCELLED.value, "open": False, "ended_at": at, "cancelled_by": by}
        return await self._set({"_id": id, "open": True}, fields)

    async def find_lost(self, *, before: datetime, limit: int) -> Sequence[str]:
        """The ids of some open actions that nobody has held since then."""
        with translate_errors():
            found = self._actions.find({"open": True, "leased_until": {"$lt": before}}, {"_id": 1})
            return [document["_id"] async for document in found.limit(limit)]

    async def await_turn(self, id: str, *, before: datetime, now: datetime) -> bool:
        """Note that workers are told of an action now; `False` where somebody held it since, or has told."""
        query = {"_id": id, "open": True, "leased_until": {"$lt": before}}
        return await self._set(query, {"leased_until": now}) is not None

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that ended before then; returns how many."""
        return await forget_some(self._actions, {"ended_at": {"$lt": before}}, limit)

    async def _set(self, query: Document, fields: Document) -> BulkAction | None:
        return await self._update(query, {"$set": fields})

    async def _update(self, query: Document, change: Document) -> BulkAction | None:
        with translate_errors():
            found = await self._actions.find_one_and_update(
                query, change | {"$currentDate": {"changed_at": True}}, return_document=ReturnDocument.AFTER
            )
        return _codec.maybe(found)


def _hold(action: BulkAction) -> Document:
    return {"_id": action.id, "token": action.token}
