"""Occurrences, and the one claim protocol: `shared/domain/occurrences.py` tells their life.

A slice (all of a shard that is visible up to a moment) is claimed by one update that marks it with a fresh token, and
read by that token. `visible_at` is the only key of the hot path, so there is no `$or` and no second query; a pause
leaves the token, so that what was being fired meanwhile is still completed, and nobody may make it visible again.

Everything after a claim matches (id, token): whoever lost it changes nothing.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from pymongo import ASCENDING, DeleteMany, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from shared.domain.occurrences import HELD_BACK, Kind, Occurrence
from shared.store.documents import Codec, Document, only_duplicates, translated

_codec = Codec(Occurrence)
_SOME = 64


class Heads(Struct, frozen=True):
    """What is visible: the shards in which something is (`None`: there is much, so all of them), and since when."""

    shards: tuple[int, ...] | None
    oldest: datetime


class Retry(Struct, frozen=True):
    """A claimed occurrence that is to fire (again) at a moment, after so many attempts and fruitless claims."""

    occurrence: Occurrence
    fires_at: datetime
    attempts: int
    claims: int


class Occurrences:
    """The `occurrences` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._occurrences = database["occurrences"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._occurrences.create_index([("visible_at", ASCENDING)])
        await self._occurrences.create_index([("shard", ASCENDING), ("visible_at", ASCENDING)])
        await self._occurrences.create_index([("token", ASCENDING), ("_id", ASCENDING)], sparse=True)
        await self._occurrences.create_index([("owner", ASCENDING), ("due", ASCENDING)])

    async def add(self, occurrences: Sequence[Occurrence]) -> None:
        """Insert those that are not there."""
        if not occurrences:
            return
        try:
            with translated():
                await self._occurrences.insert_many([_document(each) for each in occurrences], ordered=False)
        except BulkWriteError as error:
            if not only_duplicates(error):
                raise

    async def heads(self, until: datetime) -> Heads | None:
        """What is visible by `until`; `None` for nothing. One query."""
        with translated():
            cursor = self._occurrences.find({"visible_at": {"$lte": until}}, {"shard": 1, "visible_at": 1})
            found = await cursor.sort("visible_at", ASCENDING).limit(_SOME).to_list()
        if not found:
            return None
        shards = None if len(found) == _SOME else tuple({document["shard"] for document in found})
        return Heads(shards, found[0]["visible_at"])

    async def claim(self, shard: int, *, until: datetime, leased_until: datetime) -> tuple[str, int]:
        """Mark all of a shard that is visible by `until` as ours: the token, and how many there are."""
        token = secrets.token_hex(12)
        with translated():
            result = await self._occurrences.update_many(
                {"shard": shard, "visible_at": {"$lte": until}},
                {"$set": {"token": token, "visible_at": leased_until}, "$inc": {"claims": 1}},
            )
        return token, result.modified_count

    async def read(self, token: str, *, after: str = "", limit: int) -> list[Occurrence]:
        """What a token claims, by id."""
        query = {"token": token, "_id": {"$gt": after}}
        with translated():
            return [_value(found) async for found in self._occurrences.find(query).sort("_id", ASCENDING).limit(limit)]

    async def ours(self, claimed: Sequence[Occurrence]) -> list[Occurrence]:
        """Those that are still there, under the same token and not held back by a pause. One query."""
        wanted = {each.id: each for each in claimed}
        query = {"_id": {"$in": list(wanted)}}
        with translated():
            found = await self._occurrences.find(query, {"token": 1, "visible_at": 1}).to_list()
        return [
            wanted[each["_id"]]
            for each in found
            if each.get("token") == wanted[each["_id"]].token and each["visible_at"] < HELD_BACK
        ]

    async def complete(self, claimed: Iterable[Occurrence]) -> None:
        """Delete what has been dealt with."""
        by_token: dict[str, list[str]] = {}
        for each in claimed:
            by_token.setdefault(each.token, []).append(each.id)
        if len(by_token) == 1:
            [(token, ids)] = by_token.items()
            with translated():
                await self._occurrences.delete_many({"_id": {"$in": ids}, "token": token})
        elif by_token:
            deletes = [DeleteMany({"_id": {"$in": ids}, "token": token}) for token, ids in by_token.items()]
            with translated():
                await self._occurrences.bulk_write(deletes, ordered=False)

    async def move(self, moves: Sequence[tuple[Occurrence, Occurrence]]) -> None:
        """Take each claimed document of a series to its next instant; one that is held back stays so."""
        await self._update(
            (
                _claimed(claimed),
                [
                    {
                        "$set": {
                            "due": following.due,
                            "fires_at": following.fires_at,
                            "accepted_at": following.accepted_at,
                            "visible_at": _unless_held_back(following.visible_at),
                            "attempts": 0,
                            "claims": 0,
                            "runs": following.runs,
                        }
                    },
                    {"$unset": "token"},
                ],
            )
            for claimed, following in moves
        )

    async def retry(self, retries: Sequence[Retry]) -> None:
        """Make claimed ones visible again, each at its moment, unless they are held back."""
        await self._update(
            (
                _claimed(each.occurrence) | {"visible_at": {"$lt": HELD_BACK}},
                {
                    "$set": {
                        "fires_at": each.fires_at,
                        "visible_at": each.fires_at,
                        "attempts": each.attempts,
                        "claims": each.claims,
                    },
                    "$unset": {"token": ""},
                },
            )
            for each in retries
        )

    async def hand_over(self, claimed: Sequence[Occurrence], *, leased_until: datetime) -> None:
        """Keep them claimed until then, for somebody who knows their tokens."""
        await self._update(
            (_claimed(each) | {"visible_at": {"$lt": HELD_BACK}}, {"$set": {"visible_at": leased_until}})
            for each in claimed
        )

    async def take(self, id: str, token: str, *, leased_until: datetime) -> Occurrence | None:
        """Renew the lease of one that was handed over, and count the claim; `None` when it is somebody else's."""
        query = {"_id": id, "token": token, "visible_at": {"$lt": HELD_BACK}}
        change = {"$set": {"visible_at": leased_until}, "$inc": {"claims": 1}}
        with translated():
            found = await self._occurrences.find_one_and_update(query, change, return_document=True)
        return None if found is None else _value(found)

    async def hold(self, owner: str) -> None:
        """Hold back all that an owner has, but for what is fired by hand."""
        query = {"owner": owner, "kind": {"$ne": Kind.ASKED.value}}
        with translated():
            await self._occurrences.update_many(query, {"$set": {"visible_at": HELD_BACK}})

    async def hold_these(self, claimed: Sequence[Occurrence]) -> None:
        """Hold back claimed ones whose owner was paused."""
        await self._update((_claimed(each), {"$set": {"visible_at": HELD_BACK}}) for each in claimed)

    async def let_go(self, owner: str) -> None:
        """Make what an owner has held back visible at its own moment."""
        with translated():
            await self._occurrences.update_many(
                {"owner": owner, "visible_at": HELD_BACK}, [{"$set": {"visible_at": "$fires_at"}}, {"$unset": "token"}]
            )

    async def upcoming(self, owner: str, limit: int) -> list[Occurrence]:
        """The next ones of an owner, by their instants."""
        with translated():
            found = self._occurrences.find({"owner": owner}).sort("due", ASCENDING).limit(limit)
            return [_value(document) async for document in found]

    async def with_any(self, owners: Sequence[str]) -> set[str]:
        """Which of these owners have any."""
        with translated():
            found = self._occurrences.find({"owner": {"$in": list(owners)}}, {"owner": 1})
            return {document["owner"] async for document in found}

    async def remove(self, id: str) -> bool:
        """Forget one, claimed or not; `False` when it is not there."""
        with translated():
            return (await self._occurrences.delete_one({"_id": id})).deleted_count == 1

    async def remove_of(self, owner: str, *, generation: str = "") -> None:
        """Forget all that an owner has, or all of one generation, claimed or not."""
        query = {"owner": owner} | ({"generation": generation} if generation else {})
        with translated():
            await self._occurrences.delete_many(query)

    async def count(self) -> int:
        """About how many there are."""
        with translated():
            return await self._occurrences.estimated_document_count()

    async def _update(self, updates: Iterable[tuple[Document, Document | list[Document]]]) -> None:
        requests = [UpdateOne(query, change) for query, change in updates]
        if requests:
            with translated():
                await self._occurrences.bulk_write(requests, ordered=False)


def _claimed(occurrence: Occurrence) -> Document:
    return {"_id": occurrence.id, "token": occurrence.token}


def _unless_held_back(moment: datetime) -> Document:
    return {"$cond": [{"$eq": ["$visible_at", HELD_BACK]}, HELD_BACK, moment]}


def _document(occurrence: Occurrence) -> Document:
    document = _codec.document(occurrence)
    if not occurrence.token:
        del document["token"]
    return document


def _value(document: Document) -> Occurrence:
    return _codec.value(document)
