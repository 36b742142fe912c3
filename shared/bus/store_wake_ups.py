"""Wake-ups: `shared/bus/rules/wake_ups.py` explains their life.

They are documents of `occurrences`, which the clock claims like any other; the sub-document `of` has the fields of the
bus. Every write after a claim matches (id, token). One update writes to many wake-ups, to each a different value; a
read by the fresh token finds the changed ones.

Only the insert of a new or missing wake-up is part of a transaction. Wakes write to these documents all the time, so
that other transactions would never end; and a process that dies in one would lock them for all writers. So the cursor
alone decides about cuts and settlements, and a wake-up follows its subscription after that is stored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from pymongo import UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.subscriptions import EventSubscription, generation_of
from shared.bus.rules.wake_ups import (
    FAR_AHEAD,
    QUEUE_OWNER,
    Rest,
    TakenWakeUp,
    Wake,
    WakeStage,
    WakeUp,
    queue_of_owner,
    queue_owner,
)
from shared.clock.rules.occurrences import Occurrence, series
from shared.drivers.mongo.documents import BSON_TYPES, Aggregate, Codec, Document, of_same_place

WAKES_AT_ONCE = 200
"""Recommended maximum for one update: the server compares each document with a list of all of them."""

_ABSENT = ("token", "begun", "trace", "offset_ms", "raws", "passed")
_OF_THE_BUS = {"$gte": f"{QUEUE_OWNER}/", "$lt": f"{QUEUE_OWNER}0"}  # "0" follows "/"
_codec = Codec(Occurrence)


class HandedWakeUp(Struct, frozen=True):
    """A wake-up for a worker to take with `token`. `slow` ones go apart; `deaths` counts the workers in a row that died
    with it. Workers are not yet told of one that `has_to_part`."""

    id: str
    token: str
    slow: bool
    deaths: int = 0
    has_to_part: bool = False


class WakeUps(Aggregate):
    """The wake-ups among `occurrences`, whose indexes the clock makes. `add` raises the driver's errors."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._wake_ups = database["occurrences"]

    async def add(self, queue: str, full: int, now: datetime, session: AsyncClientSession) -> None:
        await self._wake_ups.insert_one(_document_of(queue, WakeUp(full=full), now), session=session)

    async def find_asleep(self, queues: Sequence[str]) -> set[str]:
        """The queues at which no worker looks before they get an event: their wake-ups are far ahead or missing."""
        awake = {"_id": {"$in": list(map(wake_up_id, queues))}, "visible_at": {"$lt": FAR_AHEAD}}
        found = await self._wake_ups.find(awake, {"owner": 1}, batch_size=len(queues) + 1).to_list()
        return set(queues).difference(queue_of_owner(document["owner"]) for document in found)

    async def rouse(self, queue: str, wake_up: WakeUp, now: datetime, session: AsyncClientSession) -> None:
        """Make a sleeping wake-up due now, in a transaction. Raises `DuplicateKeyError` if it is not asleep."""
        document = _document_of(queue, wake_up, now) | {"fires_at": now, "visible_at": now}
        asleep = {"_id": document["_id"], "visible_at": FAR_AHEAD, "of.stage": WakeStage.RESTING.value}
        await self._wake_ups.replace_one(asleep, document, upsert=True, session=session)

    async def follow(self, subscription: EventSubscription) -> None:
        """Update the wake-up from its subscription, and make it due now if the receiver is called: a worker that has it
        looks once more. Safe to repeat: a wake-up of a later version stays as it is."""
        change: Document = {"of.full": subscription.max_events, "of.version": subscription.version}
        if subscription.is_called:
            change |= _looked_at(subscription.updated_at)
        is_news = {"$lte": [{"$ifNull": ["$of.version", 0]}, subscription.version]}
        await self._wake_ups.update_one({"_id": wake_up_id(subscription.queue)}, _where(is_news, change))

    async def remove(self, queue: str) -> None:
        await self._wake_ups.delete_one({"_id": wake_up_id(queue)})

    async def wake(
        self, wakes: Sequence[Wake], token: str, *, now: datetime, leased_until: datetime
    ) -> list[HandedWakeUp]:
        """Add waiting events to queues, each once; returns the wake-ups that are due, handed over with `token` until
        `leased_until`."""
        ids = [wake_up_id(wake.queue) for wake in wakes]
        added = {"$add": ["$of.waiting", of_same_place(ids, [wake.events for wake in wakes])]}
        asked = of_same_place(ids, [wake.due for wake in wakes])
        due = {"$max": [_if({"$gte": [added, "$of.full"]}, now, asked), "$of.not_before"]}
        change: list[Document] = [
            {"$set": {"of.waiting": added, "of.due": due}},
            {"$set": {"of.moves": _and(_IS_RESTING, {"$lt": ["$of.due", "$fires_at"]})}},
            {"$set": {"of.now": _and("$of.moves", {"$lte": ["$of.due", now]})}},
            {
                "$set": {
                    "fires_at": _if("$of.moves", "$of.due", "$fires_at"),
                    "visible_at": _if("$of.now", leased_until, _if("$of.moves", "$of.due", "$visible_at")),
                    "token": _if("$of.now", token, _if("$of.moves", "$$REMOVE", "$token")),
                    "of.stage": _if("$of.now", WakeStage.HANDED.value, "$of.stage"),
                }
            },
            {"$unset": ["of.due", "of.moves", "of.now"]},
        ]
        return await self._change_and_read_handover_fields(ids, change, token)

    async def hand_over(self, claimed: Sequence[Occurrence], token: str, *, until: datetime) -> list[HandedWakeUp]:
        """Hand over claims of the clock; returns those that were still valid. A wake-up whose worker never came back
        has one more death."""
        ids, is_ours = _ids_and_condition([(occurrence.id, occurrence.token) for occurrence in claimed])
        died = {"$add": ["$of.deaths", _if({"$eq": ["$of.stage", "busy"]}, 1, 0)]}
        change = {"of.deaths": died} | _handover_fields(token, until)
        return await self._change_and_read_handover_fields(ids, _where(is_ours, change), token)

    async def hand_over_due(
        self, ids: Sequence[str], token: str, *, now: datetime, until: datetime
    ) -> tuple[list[HandedWakeUp], dict[str, datetime]]:
        """Hand over the resting and due wake-ups, except those that the clock has claimed; returns them, and the due
        times of the other resting ones."""
        is_due = _and(_IS_RESTING, {"$lte": ["$fires_at", now]})
        is_due = _and(is_due, {"$eq": [{"$ifNull": ["$token", ""]}, ""]})
        await self._change(ids, _where(is_due, _handover_fields(token, until)))
        found = await self._wake_ups.find({"_id": {"$in": list(ids)}}, _READ | {"fires_at": 1}).to_list()
        handed = [_read_taken(document) for document in found if document.get("token") == token]
        free = (each for each in found if "token" not in each and each["of"]["stage"] == WakeStage.RESTING.value)
        return list(map(_read_handed, handed)), {each["_id"]: each["fires_at"] for each in free}

    async def hand_on(self, taken: Sequence[TakenWakeUp], token: str, *, until: datetime) -> list[HandedWakeUp]:
        """Return these wake-ups for any worker to take in their turn; returns those that were still owned."""
        ids, is_ours = _ids_and_condition([(wake_up.id, wake_up.token) for wake_up in taken])
        slow = of_same_place(ids, [wake_up.of.slow for wake_up in taken])
        change = {"of.slow": slow, "claims": 0} | _LAID_DOWN | _handover_fields(token, until)
        return await self._change_and_read_handover_fields(ids, _where(is_ours, change), token)

    async def put_back(self, handed: Sequence[HandedWakeUp], at: datetime) -> None:
        """Make wake-ups due at `at` of which no worker could be told, unless they are taken."""
        ids, is_ours = _ids_and_condition([(wake_up.id, wake_up.token) for wake_up in handed])
        await self._change(ids, _where(is_ours, _put_back_at(at)))

    async def part(self, handed: Sequence[HandedWakeUp], moments: Sequence[datetime]) -> None:
        ids, is_ours = _ids_and_condition([(wake_up.id, wake_up.token) for wake_up in handed])
        at = of_same_place(ids, moments)
        change = _put_back_at(at) | {"of.not_before": at, "of.parted": "$of.deaths", "claims": 0}
        await self._change(ids, _where(is_ours, change))

    async def put_off(self, taken: TakenWakeUp, at: datetime) -> None:
        """Make a wake-up due at `at` and no earlier after a fault of Carillon's, unless another worker has it."""
        ids, is_ours = _ids_and_condition([(taken.id, taken.token)])
        change = _put_back_at(at) | _LAID_DOWN | {"of.faults": taken.of.faults + 1, "of.not_before": at, "claims": 0}
        await self._change(ids, _where(is_ours, change))

    async def take(
        self, handed: Sequence[tuple[str, str]], token: str, *, until: datetime, sessions: Sequence[str] = ()
    ) -> dict[str, TakenWakeUp]:
        """Take wake-ups, each (id, token), with a fresh token until `until`, for writes in these sessions; returns the
        taken ones by id."""
        ids, is_ours = _ids_and_condition(handed)
        change = {
            "token": token,
            "visible_at": until,
            "of.stage": WakeStage.BUSY.value,
            "of.left": {"$concatArrays": [_or_none("$of.left"), _or_none("$of.sessions")]},
            "of.sessions": list(sessions),
        }
        await self._change(ids, _where(is_ours, change))
        return {wake_up.id: wake_up for wake_up in await self._read(ids, token)}

    async def renew(self, taken: Sequence[TakenWakeUp], *, until: datetime) -> set[tuple[str, str]]:
        """Extend the leases; returns the claims that are still valid. A wake-up may occur with several claims."""
        by_token = _by_token(taken)
        requests = [
            UpdateMany({"_id": {"$in": ids}, "token": token}, {"$set": {"visible_at": until}})
            for token, ids in by_token.items()
        ]
        result = await self._wake_ups.bulk_write(requests, ordered=False)
        if result.matched_count == len(taken):
            return {wake_up.claim for wake_up in taken}
        return set(await self._find_ours(taken))

    async def rest(self, rests: Sequence[Rest]) -> dict[tuple[str, str], TakenWakeUp]:
        """Lay wake-ups down, unless they got events since they were read. Returns by claim those that did and are still
        owned, as they are now; also, perhaps, those that occur with several claims. A wake-up in neither was lost."""
        ids, has_token = _ids_and_condition([(rest.taken.id, rest.taken.token) for rest in rests])
        as_read = {"$eq": ["$of.waiting", of_same_place(ids, [rest.taken.of.waiting for rest in rests])]}
        fires_at = of_same_place(ids, [rest.fires_at for rest in rests])
        change = {
            "fires_at": fires_at,
            "visible_at": fires_at,
            "token": "$$REMOVE",
            "claims": 0,
            "of.stage": WakeStage.RESTING.value,
            "of.waiting": of_same_place(ids, [rest.left for rest in rests]),
            "of.not_before": of_same_place(ids, [rest.not_before for rest in rests]),
            "of.slow": of_same_place(ids, [rest.slow for rest in rests]),
        } | _LAID_DOWN
        changed = await self._change(ids, _where(_and(has_token, as_read), change))
        if changed == len(rests):
            return {}
        return await self._find_ours([rest.taken for rest in rests])

    async def find_all(self, queues: Sequence[str]) -> list[WakeUp | None]:
        wanted = {"_id": {"$in": list(map(wake_up_id, queues))}}
        found = await self._wake_ups.find(wanted, {"of": 1}, batch_size=len(queues) + 1).to_list()
        wake_ups = {document["_id"]: _read_of(document) for document in found}
        return [wake_ups.get(wake_up_id(queue)) for queue in queues]

    async def count_stages(self) -> dict[str, int]:
        awake = {"owner": _OF_THE_BUS, "visible_at": {"$lt": FAR_AHEAD}}
        grouped = {"_id": "$of.stage", "n": {"$sum": 1}}
        found = await (await self._wake_ups.aggregate([{"$match": awake}, {"$group": grouped}])).to_list()
        return {document["_id"]: document["n"] for document in found}

    async def let_all_go(self, now: datetime) -> None:
        """Make every taken wake-up due now. The caller knows that no worker runs."""
        query = {"token": {"$gt": ""}, "owner": _OF_THE_BUS}
        change: list[Document] = [{"$set": {"visible_at": now, "fires_at": now}}, {"$unset": "token"}]
        await self._wake_ups.update_many(query, change)

    async def _change_and_read_handover_fields(
        self, ids: Sequence[str], change: list[Document], token: str
    ) -> list[HandedWakeUp]:
        await self._change(ids, change)
        return list(map(_read_handed, await self._read(ids, token)))

    async def _change(self, ids: Sequence[str], change: list[Document]) -> int:
        return (await self._wake_ups.update_many({"_id": {"$in": list(ids)}}, change)).modified_count

    async def _read(self, ids: Sequence[str], token: str) -> list[TakenWakeUp]:
        query = {"token": token, "_id": {"$in": list(ids)}}
        found = await self._wake_ups.find(query, _READ, batch_size=len(ids) + 1).to_list()
        return [_read_taken(document) for document in found]

    async def _find_ours(self, taken: Sequence[TakenWakeUp]) -> dict[tuple[str, str], TakenWakeUp]:
        claims = {wake_up.claim for wake_up in taken}
        query = {"_id": {"$in": [id for id, _ in claims]}, "token": {"$gt": ""}}
        found = await self._wake_ups.find(query, _READ, batch_size=len(claims) + 1).to_list()
        held = map(_read_taken, found)
        return {wake_up.claim: wake_up for wake_up in held if wake_up.claim in claims}


_READ = {"owner": 1, "token": 1, "of": 1}
_IS_RESTING = {"$eq": ["$of.stage", WakeStage.RESTING.value]}
# The fields that are reset if a live worker lays a wake-up down.
_LAID_DOWN = {"of.deaths": 0, "of.parted": 0, "of.faults": 0, "of.sessions": [], "of.left": []}


@lru_cache(maxsize=20_000)
def wake_up_id(queue: str) -> str:
    return _occurrence_of(queue, FAR_AHEAD).id


def _occurrence_of(queue: str, now: datetime) -> Occurrence:
    return series(queue_owner(queue), generation_of(queue), FAR_AHEAD, accepted_at=now)


def _document_of(queue: str, wake_up: WakeUp, now: datetime) -> Document:
    document = _codec.document(_occurrence_of(queue, now))
    for name in _ABSENT:
        del document[name]
    return document | {"of": msgspec.to_builtins(wake_up, builtin_types=BSON_TYPES)}


def _read_taken(document: Mapping[str, Any]) -> TakenWakeUp:
    queue = queue_of_owner(document["owner"])
    return TakenWakeUp(id=document["_id"], queue=queue, token=document["token"], of=_read_of(document))


def _read_handed(found: TakenWakeUp) -> HandedWakeUp:
    return HandedWakeUp(found.id, found.token, found.of.slow, found.of.deaths, found.of.has_to_part)


def _read_of(document: Mapping[str, Any]) -> WakeUp:
    return msgspec.convert(document["of"], WakeUp, builtin_types=BSON_TYPES)


def _ids_and_condition(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], Document]:
    """The ids, and the expression for whether the document has its token."""
    ids = [id for id, _ in pairs]
    return ids, {"$eq": ["$token", of_same_place(ids, [token for _, token in pairs])]}


def _looked_at(now: datetime) -> Document:
    return {
        "of.waiting": {"$add": ["$of.waiting", 1]},
        "of.not_before": None,
        "fires_at": now,
        "visible_at": _if(_IS_RESTING, now, "$visible_at"),
        "token": _if(_IS_RESTING, "$$REMOVE", "$token"),  # of an early claim of the clock
    }


def _handover_fields(token: str, until: datetime) -> Document:
    return {"token": token, "visible_at": until, "of.stage": WakeStage.HANDED.value}


def _put_back_at(at: datetime | Document) -> Document:
    stage = WakeStage.RESTING.value
    return {"fires_at": at, "visible_at": at, "token": "$$REMOVE", "claims": 0, "of.stage": stage}


def _where(condition: Document, change: Document) -> list[Document]:
    """The update that sets the fields if the condition holds, and changes nothing otherwise. The condition sees the
    document as it was, whichever field comes first."""
    return [{"$set": {name: _if(condition, value, f"${name}") for name, value in change.items()}}]


def _by_token(taken: Sequence[TakenWakeUp]) -> dict[str, list[str]]:
    by_token: dict[str, list[str]] = {}
    for wake_up in taken:
        by_token.setdefault(wake_up.token, []).append(wake_up.id)
    return by_token


def _or_none(names: str) -> Document:
    return {"$ifNull": [names, []]}


def _if(condition: Any, then: Any, otherwise: Any) -> Document:
    return {"$cond": [condition, then, otherwise]}


def _and(one: Any, other: Any) -> Document:
    return {"$and": [one, other]}
