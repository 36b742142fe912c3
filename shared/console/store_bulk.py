"""Bulk actions, one document each, and the open jobs that one matches.

A worker holds an action by a token while its lease lasts. Every write matches that token, so a late worker changes
nothing.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.console.rules.bulk_actions import FAILURES, TRANSITIONS, BulkAction, BulkFilter, BulkState, BulkTally
from shared.core.documents import sources
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import Aggregate, Codec, Document, Page, forget_some, insert_once, read_page
from shared.jobs.rules.jobs import JobStatus, split_key
from shared.jobs.store_jobs import KEY_FIELDS, key_of

_codec = Codec(BulkAction)
_BATCH = 32  # a hundred failures take up to a hundred kilobytes


class BulkActions(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._actions = database["bulk_actions"]

    async def setup(self) -> None:
        await self._actions.create_index([("open", ASCENDING), ("leased_until", ASCENDING)])
        await self._actions.create_index([("namespace", ASCENDING), ("_id", ASCENDING)])
        await self._actions.create_index([("namespace", ASCENDING), ("open", ASCENDING)])
        await self._actions.create_index([("ended_at", ASCENDING)])

    async def add(self, action: BulkAction) -> BulkAction:
        return _codec.value(await insert_once(self._actions, _codec.document(action)))

    async def get(self, id: str) -> BulkAction | None:
        return _codec.maybe(await self._actions.find_one({"_id": id}))

    async def page(self, namespace: str, *, before: str = "", limit: int) -> Page[BulkAction]:
        """The actions of this namespace's caller, or all for `""`, the newest first, before the id `before`."""
        query: Document = {"namespace": namespace} if namespace else {}
        query |= {"_id": {"$lt": before}} if before else {}
        return await read_page(
            self._actions, query, _codec.value, order=("_id",), direction=DESCENDING, limit=limit, batch=_BATCH
        )

    async def count_open(self, namespace: str, *, most: int) -> int:
        return await self._actions.count_documents({"namespace": namespace, "open": True}, limit=most)

    async def list_open(self, namespace: str, *, limit: int) -> list[BulkAction]:
        query = {"namespace": namespace, "open": True}
        return [_codec.value(each) for each in await self._actions.find(query).limit(limit).to_list()]

    async def take(self, id: str, token: str, *, now: datetime, leased_until: datetime) -> BulkAction | None:
        query = {"_id": id, "open": True, "leased_until": {"$lte": now}}
        return await self._set(query, {"state": BulkState.RUNNING.value, "token": token, "leased_until": leased_until})

    async def advance(
        self, action: BulkAction, tally: BulkTally, *, position: str, leased_until: datetime
    ) -> BulkAction | None:
        """Count a finished page, whatever state the action has; `None` if another worker holds it."""
        failures = [{"id": failure.id, "reason": failure.reason} for failure in tally.failures]
        change: Document = {
            "$set": {"position": position, "leased_until": leased_until},
            "$inc": {"done": tally.done, "skipped": tally.skipped, "failed": len(failures)},
            "$push": {"failures": {"$each": failures, "$slice": FAILURES}},
        }
        return await self._update(_hold(action) | {"position": action.position}, change)

    async def end(self, action: BulkAction, to: BulkState, *, at: datetime, failure: str = "") -> BulkAction | None:
        fields = {"state": to.value, "open": False, "ended_at": at, "failure": failure}
        states = {"state": {"$in": sorted(sources(TRANSITIONS, to))}}
        return await self._set(_hold(action) | states, fields)

    async def fail(self, id: str, *, at: datetime, failure: str) -> BulkAction | None:
        fields = {"state": BulkState.FAILED.value, "open": False, "ended_at": at, "failure": failure}
        return await self._set({"_id": id, "state": {"$in": sorted(sources(TRANSITIONS, BulkState.FAILED))}}, fields)

    async def release(self, action: BulkAction) -> None:
        await self._set(_hold(action) | {"open": True}, {"leased_until": EPOCH})

    async def cancel(self, id: str, *, by: str, at: datetime) -> BulkAction | None:
        """Cancel an open action; `None` if it is over or does not exist. A worker's present page is still counted."""
        fields = {"state": BulkState.CANCELLED.value, "open": False, "ended_at": at, "cancelled_by": by}
        return await self._set({"_id": id, "open": True}, fields)

    async def find_lost(self, *, before: datetime, limit: int) -> Sequence[str]:
        found = self._actions.find({"open": True, "leased_until": {"$lt": before}}, {"_id": 1})
        return [document["_id"] async for document in found.limit(limit)]

    async def await_turn(self, id: str, *, before: datetime, now: datetime) -> bool:
        """Record that workers are told of an action now; `False` if a worker has held it since or was told."""
        query = {"_id": id, "open": True, "leased_until": {"$lt": before}}
        return await self._set(query, {"leased_until": now}) is not None

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._actions, {"ended_at": {"$lt": before}}, limit)

    async def _set(self, query: Document, fields: Document) -> BulkAction | None:
        return await self._update(query, {"$set": fields})

    async def _update(self, query: Document, change: Document) -> BulkAction | None:
        found = await self._actions.find_one_and_update(
            query, change | {"$currentDate": {"changed_at": True}}, return_document=ReturnDocument.AFTER
        )
        return _codec.maybe(found)


def _hold(action: BulkAction) -> Document:
    return {"_id": action.id, "token": action.token}


class BulkJobsOf(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def count(self, statuses: AbstractSet[JobStatus], wanted: BulkFilter, *, most: int) -> int:
        return await self._jobs.count_documents(_query(statuses, wanted), limit=most)

    async def keys(
        self, statuses: AbstractSet[JobStatus], wanted: BulkFilter, *, before: int, after: str = "", limit: int
    ) -> Page[str]:
        """The keys of matching jobs made before `before` (ns), by id, after the key `after`."""
        query = _query(statuses, wanted) | {"created_at": {"$lt": before}, "_id": {"$gt": split_key(after)[0]}}
        found = self._jobs.find(query, KEY_FIELDS).sort("_id", ASCENDING).limit(limit + 1)
        keys = [key_of(document) async for document in found]
        page = Page(keys[:limit])
        page.more = len(keys) > limit
        return page


def _query(statuses: AbstractSet[JobStatus], wanted: BulkFilter) -> Document:
    query: Document = {"open": True, "status": {"$in": sorted(statuses)}}
    query |= {"app_id": wanted.app} if wanted.app else {}
    query |= {"template_names": wanted.template.split(",")} if wanted.template else {}
    query |= {"created_by": wanted.by} if wanted.by else {}
    return query
