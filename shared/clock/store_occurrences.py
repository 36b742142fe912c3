"""Occurrences and the claim protocol: `shared/clock/rules/occurrences.py` explains their life.

A slice (the occurrences of a shard that are visible at a moment) is claimed by one update that writes a fresh token,
and read by that token. `visible_at` is the only key of the hot path, so there is no `$or` and no second query. A pause
leaves the token, so that a running attempt can still be completed; only a resume makes the occurrence visible again.
Every write after a claim matches (id, token), so a process that lost its claim changes nothing, with one
exception: `acquit` undoes the `begin` of its own process even then.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, DeleteMany, UpdateMany
from pymongo.asynchronous.database import AsyncDatabase

from shared.clock.rules.occurrences import HELD_BACK, PARKED, Occurrence, OccurrenceKind, Passed
from shared.clock.rules.schedules import COMMITTED_WITHIN
from shared.drivers.mongo.documents import Aggregate, Codec, Document, insert_new
from shared.runtime.tracing import current_trace

_KINDS = frozenset(kind.value for kind in OccurrenceKind)
_codec = Codec(Occurrence)
# Absent rather than empty: two indexes are sparse.
_OPTIONAL = ("token", "attempts", "begun", "trace", "offset_ms", "raws", "passed")
_RETRIES_COUNTED = 10_000
_RETRIES_OF_OWNER = 1_000
_SOME = 64
_BEHIND_SLASH = "0"  # the next character

_RELEASED: list[Document] = [{"$set": {"visible_at": "$fires_at", "claims": 0}}, {"$unset": "token"}]


class Visible(Struct, frozen=True):
    """The occurrences that became visible from `since` until `until`, except the groups of owners in `without`."""

    until: datetime
    since: datetime | None = None
    without: frozenset[str] = frozenset()


class Heads(Struct, frozen=True):
    """The shards with visible occurrences (`None` if there are too many to list), and the time of the
    oldest."""

    shards: tuple[int, ...] | None
    oldest: datetime


class PutOff(Struct, frozen=True):
    """A claimed occurrence that fires (again) at `fires_at`, after `attempts` attempts. `attempt_ended`: an attempt has
    ended by now."""

    occurrence: Occurrence
    fires_at: datetime
    attempts: int
    attempt_ended: bool = True


class Occurrences(Aggregate):
    """The `occurrences` collection, or another one whose documents are claimed the same way."""

    def __init__(self, database: AsyncDatabase[Document], name: str = "occurrences") -> None:
        self._occurrences = database[name]

    async def setup(self) -> None:
        await self._occurrences.create_index([("visible_at", ASCENDING)])
        await self._occurrences.create_index([("shard", ASCENDING), ("visible_at", ASCENDING)])
        await self._occurrences.create_index([("token", ASCENDING), ("_id", ASCENDING)], sparse=True)
        await self._occurrences.create_index([("owner", ASCENDING), ("due", ASCENDING)])
        await self._occurrences.create_index([("attempts", ASCENDING)], sparse=True)

    async def add(self, occurrences: Sequence[Occurrence]) -> None:
        """Insert missing occurrences. Ids are hashes: in their order, those of one index page go in together, which
        halves the cost of each."""
        ordered = sorted(occurrences, key=lambda occurrence: occurrence.id)
        await insert_new(self._occurrences, [_document(occurrence) for occurrence in ordered])

    async def heads(self, visible: Visible) -> Heads | None:
        """The shards with visible occurrences; `None` if there are none. One query."""
        cursor = self._occurrences.find(_query(visible), {"shard": 1, "visible_at": 1})
        found = await cursor.sort("visible_at", ASCENDING).limit(_SOME).to_list()
        if not found:
            return None
        shards = None if len(found) == _SOME else tuple({document["shard"] for document in found})
        return Heads(shards, found[0]["visible_at"])

    async def claim(self, shard: int, token: str, visible: Visible, *, leased_until: datetime) -> int:
        """Mark the visible occurrences of a shard with a fresh token; returns the number."""
        result = await self._occurrences.update_many(
            {"shard": shard} | _query(visible),
            {"$set": {"token": token, "visible_at": leased_until}, "$inc": {"claims": 1}},
        )
        return result.modified_count

    async def read(self, token: str, *, after: str = "", limit: int) -> list[Occurrence]:
        """The claims of a token, by id. Occurrences of a kind that only a later version knows are left to their
        lease."""
        found: list[Occurrence] = []
        while len(found) < limit:
            # Kinds are filtered here: with another field in the query, the embedded database would scan all
            # occurrences.
            claimed = self._occurrences.find({"token": token, "_id": {"$gt": after}}, batch_size=limit)
            documents = await claimed.sort("_id", ASCENDING).limit(limit).to_list()
            found += [_value(document) for document in documents if document["kind"] in _KINDS]
            if len(documents) < limit:
                break
            after = documents[-1]["_id"]
        return found[:limit]

    async def ours(self, claimed: Sequence[Occurrence], *, also_held_back: bool = False) -> list[Occurrence]:
        wanted = {occurrence.id: occurrence for occurrence in claimed}
        query = {"_id": {"$in": list(wanted)}}
        found = await self._occurrences.find(query, {"token": 1, "visible_at": 1}, batch_size=len(wanted) + 1).to_list()
        return [
            wanted[document["_id"]]
            for document in found
            if document.get("token") == wanted[document["_id"]].token
            and (also_held_back or document["visible_at"] < HELD_BACK)
        ]

    async def find_claimed(self, ids: Sequence[str]) -> set[str]:
        """The occurrences that exist and are claimed, by any process."""
        query = {"_id": {"$in": list(ids)}, "token": {"$exists": True}}
        found = await self._occurrences.find(query, {"_id": 1}, batch_size=len(ids) + 1).to_list()
        return {document["_id"] for document in found}

    async def complete(self, claimed: Iterable[Occurrence]) -> None:
        await self._write([DeleteMany(query) for query in _claims(claimed)])

    async def advance(self, moves: Sequence[tuple[Occurrence, Occurrence]]) -> None:
        """Advance each claimed document of a series to its next instant; a held-back one stays held back."""
        alike: dict[tuple[datetime, tuple[datetime, ...], Passed | None], list[Occurrence]] = {}
        for claimed, following in moves:
            alike.setdefault((following.due, following.raws, following.passed), []).append(claimed)
        await self._write(
            [
                UpdateMany(query, _next_instant_update(*values))
                for values, claimed in alike.items()
                for query in _claims(claimed)
            ]
        )

    async def find_offsets(self, owner: str, generation: str) -> list[Occurrence]:
        query = {"owner": owner, "generation": generation, "kind": OccurrenceKind.OFFSET.value}
        return [_value(document) async for document in self._occurrences.find(query)]

    async def align(self, moves: Sequence[tuple[Occurrence, Occurrence]]) -> int:
        """Move occurrences; each pair is (as read, moved). One that was claimed or changed since the read stays: the
        process that holds it moves it, or is firing it. Returns how many have moved."""
        updates = []
        for read, moved in moves:
            query = {"_id": read.id, "due": read.due, "visible_at": read.visible_at, "token": {"$exists": False}}
            updates.append(_move_to(query, moved))
        return await self._write(updates)

    async def move_claimed(self, moved: Sequence[Occurrence]) -> None:
        """Let these claimed occurrences go, at their new instants."""
        await self._write([_move_to({"_id": each.id, "token": each.token}, each) for each in moved])

    async def retry(self, retries: Sequence[PutOff]) -> None:
        """Make claimed occurrences visible again, each at its moment; a held-back one stays held back."""
        alike: dict[tuple[datetime, int, bool], list[Occurrence]] = {}
        for retry in retries:
            alike.setdefault((retry.fires_at, retry.attempts, retry.attempt_ended), []).append(retry.occurrence)
        await self._write(
            [
                UpdateMany(query, _retry_update(*values))
                for values, claimed in alike.items()
                for query in _claims(claimed)
            ]
        )

    async def release(self, claimed: Iterable[Occurrence]) -> None:
        """Make these claimable again, as if they had never been claimed."""
        await self._write([UpdateMany(_not_held_back(query), _RELEASED) for query in _claims(claimed)])

    async def begin(self, suspect: Occurrence) -> bool:
        """Record that an attempt of a claimed suspect begins; `False` if the claim is lost or held back."""
        query = _not_held_back({"_id": suspect.id, "token": suspect.token})
        result = await self._occurrences.update_one(query, {"$inc": {"begun": 1}})
        return result.matched_count == 1

    async def acquit(self, suspects: Iterable[Occurrence]) -> None:
        """Clear the suspicion of claimed suspects, as they were read before `begin`. Their leases stay.

        The reply to `begin` may come so late that another process has claimed the suspect. The count that `begin` left
        then shows that no other attempt has begun since.
        """
        change = {"$set": {"claims": 0}, "$unset": {"begun": ""}}
        await self._write(
            [
                UpdateMany({"_id": suspect.id, "$or": [{"token": suspect.token}, {"begun": suspect.begun + 1}]}, change)
                for suspect in suspects
            ]
        )

    async def release_rest(self, token: str, *, after: str) -> None:
        """Release the rest of a token's claims, after the id `after`, as `release` does."""
        await self._occurrences.update_many(_not_held_back({"token": token, "_id": {"$gt": after}}), _RELEASED)

    async def hand_over(self, claimed: Sequence[Occurrence], token: str, *, leased_until: datetime) -> None:
        """Give the claims another token until `leased_until`, for a process that is told it. Their count of claims
        stays."""
        change = {"$set": {"visible_at": leased_until, "token": token}}
        await self._write([UpdateMany(_not_held_back(query), change) for query in _claims(claimed)])

    async def take(self, id: str, token: str, *, leased_until: datetime) -> Occurrence | None:
        query = _not_held_back({"_id": id, "token": token})
        change = {"$set": {"visible_at": leased_until, "token": fresh_token()}, "$inc": {"claims": 1}}
        found = await self._occurrences.find_one_and_update(query, change, return_document=True)
        return None if found is None else _value(found)

    async def hold(self, owner: str, generation: str) -> None:
        """Hold back an owner's occurrences of a generation, except those fired by hand."""
        query = {"owner": owner, "generation": generation, "kind": {"$ne": OccurrenceKind.ASKED.value}}
        await self._occurrences.update_many(_not_parked(query), {"$set": {"visible_at": HELD_BACK}})

    async def hold_these(self, claimed: Sequence[Occurrence]) -> None:
        """Hold back claimed occurrences of a paused owner."""
        change = {"$set": {"visible_at": HELD_BACK}}
        await self._write([UpdateMany(query, change) for query in _claims(claimed)])

    async def let_go(self, owner: str, generation: str) -> None:
        """Make the held-back occurrences of an owner's generation visible at their own moments."""
        query = {"owner": owner, "generation": generation, "visible_at": HELD_BACK}
        await self._occurrences.update_many(query, [{"$set": {"visible_at": "$fires_at"}}, {"$unset": "token"}])

    async def find_held_back(self, shard: int, *, after: str = "", limit: int) -> dict[str, list[str]]:
        """The next `limit` owners after `after` with held-back occurrences in this shard, and their generations."""
        query = {"shard": shard, "visible_at": HELD_BACK, "owner": {"$gt": after}}
        grouped = {"_id": "$owner", "generations": {"$addToSet": "$generation"}}
        cursor = await self._occurrences.aggregate(
            [{"$match": query}, {"$group": grouped}, {"$sort": {"_id": ASCENDING}}, {"$limit": limit}]
        )
        return {found["_id"]: found["generations"] async for found in cursor}

    async def find_upcoming(
        self,
        owner: str,
        limit: int,
        *,
        generation: str = "",
        kind: OccurrenceKind | None = None,
        after: datetime | None = None,
    ) -> list[Occurrence]:
        """The next occurrences of an owner by instant, without parked ones; of one generation and kind, and after a
        moment, if given."""
        query: Document = _not_parked({"owner": owner}) | ({"generation": generation} if generation else {})
        query |= ({"kind": kind} if kind else {}) | ({"due": {"$gt": after}} if after else {})
        found = self._occurrences.find(query).sort("due", ASCENDING).limit(limit)
        return [_value(document) async for document in found]

    async def count_waiting(self, occurrence: Occurrence, *, most: int) -> int:
        """How many of the owner's occurrences of this generation are due before this one: neither parked nor held
        back."""
        query = {"owner": occurrence.owner, "generation": occurrence.generation, "due": {"$lt": occurrence.due}}
        return await self._occurrences.count_documents(query | {"visible_at": {"$lt": PARKED}}, limit=most)

    async def find_next_try(self, owner: str, generation: str, *, now: datetime) -> datetime | None:
        """When the first of an owner's failed occurrences is tried again: of one generation, or fired by hand."""
        ours = [{"generation": generation}, {"kind": OccurrenceKind.ASKED.value}]
        pipeline: list[Document] = [
            {"$match": {"owner": owner, "due": {"$lte": now}}},
            {"$sort": {"due": ASCENDING}},
            {"$limit": _RETRIES_OF_OWNER},
            {"$match": _not_held_back({"attempts": {"$gt": 0}, "$or": ours})},
            {"$sort": {"fires_at": ASCENDING}},
            {"$limit": 1},
        ]
        found = await (await self._occurrences.aggregate(pipeline)).to_list()
        return found[0]["fires_at"] if found else None

    async def count_retries(self, group: str) -> int:
        """How many that failed wait for their next try, of the owners that begin with `group`; at most 10,000."""
        pipeline: list[Document] = [
            {"$match": {"attempts": {"$gt": 0}}},
            {"$limit": _RETRIES_COUNTED},
            {"$match": _not_held_back({"owner": _begins(group)})},
            {"$count": "count"},
        ]
        found = await (await self._occurrences.aggregate(pipeline)).to_list()
        return found[0]["count"] if found else 0

    async def find_due(self, group: str, *, before: datetime, look_at: int, limit: int) -> list[Occurrence]:
        """The first occurrences visible before `before` whose owners begin with `group`, among the first `look_at` of
        all owners: the limit keeps the answer fast."""
        pipeline: list[Document] = [
            {"$match": {"visible_at": {"$lt": before}}},
            {"$sort": {"visible_at": ASCENDING}},
            {"$limit": look_at},
            {"$match": {"owner": _begins(group)}},
            {"$limit": limit},
        ]
        return [_value(document) async for document in await self._occurrences.aggregate(pipeline)]

    async def find_nth_visible(self, number: int, *, before: datetime) -> datetime | None:
        """The moment of the occurrence at position `number` of those visible before `before`; `None` if there are
        fewer."""
        found = self._occurrences.find({"visible_at": {"$lt": before}}, {"visible_at": 1, "_id": 0})
        there = await found.sort("visible_at", ASCENDING).skip(number).limit(1).to_list()
        return there[0]["visible_at"] if there else None

    async def with_any(self, owners: Sequence[str]) -> set[str]:
        return set(await self._occurrences.distinct("owner", {"owner": {"$in": list(owners)}}))

    async def with_pending(self, owners: Sequence[str], anchored: Sequence[str]) -> set[str]:
        """The owners that have occurrences. Parked ones do not count; only `anchored` owners have such."""
        busy = await self.with_any(owners)
        parking = busy.intersection(anchored)
        if not parking:
            return busy
        # This query reads documents, of which an anchored owner has few; an index alone answers the other one.
        unparked = await self._occurrences.distinct("owner", _not_parked({"owner": {"$in": sorted(parking)}}))
        return busy - parking | set(unparked)

    async def remove(self, id: str) -> bool:
        return (await self._occurrences.delete_one({"_id": id})).deleted_count == 1

    async def remove_of(self, *owners: str, generation: str = "") -> None:
        query: Document = {"owner": {"$in": owners}} | ({"generation": generation} if generation else {})
        await self._occurrences.delete_many(query)

    async def remove_parked(self, owner: str, *, generation: str) -> None:
        await self._occurrences.delete_many({"owner": owner, "generation": generation, "visible_at": PARKED})

    async def remove_if_parked(self, ids: Collection[str]) -> None:
        if ids:
            await self._occurrences.delete_many({"_id": {"$in": list(ids)}, "visible_at": PARKED})

    async def remove_void(self, generations: Mapping[str, str], *, now: datetime) -> None:
        """Delete occurrences of these owners, each with its generation, that are of none of these generations, if no
        schedule can be stored for them any more."""
        if not generations:
            return
        query: Document = {
            "owner": {"$in": list(generations)},
            "generation": {"$nin": list(generations.values())},
            "accepted_at": {"$lt": now - COMMITTED_WITHIN},
        }
        await self._occurrences.delete_many(query)

    async def remove_asked(self, owners: Sequence[str]) -> None:
        query: Document = {"owner": {"$in": list(owners)}, "kind": OccurrenceKind.ASKED.value}
        await self._occurrences.delete_many(query)

    async def count(self) -> int:
        """The approximate number of occurrences."""
        return await self._occurrences.estimated_document_count()

    async def _write(self, requests: Sequence[DeleteMany | UpdateMany]) -> int:
        """Returns how many documents the updates found."""
        if not requests:
            return 0
        return (await self._occurrences.bulk_write(requests, ordered=False)).matched_count


def fresh_token() -> str:
    return secrets.token_hex(12)


def _claims(claimed: Iterable[Occurrence]) -> list[Document]:
    """One query for each token: a few writes of many documents cost less than many writes of one, and each uses an
    index."""
    by_token: dict[str, list[str]] = {}
    for occurrence in claimed:
        by_token.setdefault(occurrence.token, []).append(occurrence.id)
    return [{"_id": {"$in": ids}, "token": token} for token, ids in by_token.items()]


def _query(visible: Visible) -> Document:
    between = {"$lte": visible.until} | ({} if visible.since is None else {"$gte": visible.since})
    passed_over = [{"owner": _begins(f"{group}/")} for group in visible.without]
    return {"visible_at": between} | ({"$nor": passed_over} if passed_over else {})


def _begins(group: str) -> Document:
    """The query for owners that begin with `group`, which ends in a slash."""
    return {"$gte": group, "$lt": group[:-1] + _BEHIND_SLASH}


def _not_parked(query: Document) -> Document:
    return query | {"visible_at": {"$ne": PARKED}}


def _move_to(query: Document, moved: Occurrence) -> UpdateMany:
    visible_at: Any = PARKED if moved.visible_at == PARKED else _unless_held_back(moved.visible_at)
    fields = {"due": moved.due, "fires_at": moved.due, "visible_at": visible_at, "claims": 0}
    return UpdateMany(query, _set_present(fields, ["token"], raws=moved.raws))


def _not_held_back(query: Document) -> Document:
    """Neither held back nor parked."""
    return query | {"visible_at": {"$lt": PARKED}}


def _retry_update(fires_at: datetime, attempts: int, attempt_ended: bool) -> list[Document]:
    fields = {"fires_at": fires_at, "visible_at": _unless_held_back(fires_at), "claims": 0}
    counted = {"attempts": attempts} if attempts else {}
    return [{"$set": fields | counted}, {"$unset": ["token", *(["begun"] if attempt_ended else [])]}]


def _unless_held_back(visible_at: Any) -> Document:
    return {"$cond": [{"$eq": ["$visible_at", HELD_BACK]}, HELD_BACK, visible_at]}


def _next_instant_update(due: datetime, raws: tuple[datetime, ...], passed: Passed | None) -> list[Document]:
    fields: Document = {"due": due, "fires_at": due, "visible_at": _unless_held_back(due), "claims": 0}
    fields["runs"] = {"$add": ["$runs", 1]}
    stored = msgspec.structs.asdict(passed) if passed else None
    return _set_present(fields, ["token", "begun", "attempts"], raws=raws, passed=stored)


def _set_present(fields: Document, unset: Sequence[str], **optional: Any) -> list[Document]:
    """Set the fields, and the optional ones that are not empty."""
    present = {name: value for name, value in optional.items() if value}
    return [{"$set": fields | present}, {"$unset": [*unset, *(optional.keys() - present.keys())]}]


def _document(occurrence: Occurrence) -> Document:
    document = _codec.document(occurrence)
    document["trace"] = document["trace"] or current_trace()
    for name in _OPTIONAL:
        if not document[name]:
            del document[name]
    return document


def _value(document: Document) -> Occurrence:
    return _codec.value(document)
