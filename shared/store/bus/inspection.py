"""The questions of `carillon doctor` to the bus's collections. Nothing is written here, no event is read, and no answer
has more than `MOST` of anything."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.subscriptions import REMOVABLE, EventSubscription, SubscriptionStatus, subscription_of
from shared.domain.bus.wake_ups import QUEUE_OWNER, queue_of_owner
from shared.store.bus.cursors import CURSORS, cursor_codec
from shared.store.bus.flushes import UNWOKEN
from shared.store.bus.registry import SUBSCRIPTIONS
from shared.store.documents import Codec, Document, translate_errors

MOST = 1_000

_OF_THE_BUS = {"$gte": f"{QUEUE_OWNER}/", "$lt": f"{QUEUE_OWNER}0"}  # "0" follows "/"
_codec = Codec(EventSubscription)


class Waiting(Struct, frozen=True):
    """So many wait for something that should have happened, up to `MOST`, the first of them since then."""

    count: int
    since: datetime


class TroubledQueue(Struct, frozen=True):
    """The queue of a subscription that workers die with, or fail with, so often in a row."""

    subscription_id: str
    deaths: int
    faults: int


class BusInspection:
    """Questions to the bus's collections. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database

    async def has_subscriptions(self) -> bool:
        """Whether there is one at all."""
        with translate_errors():
            return await self._database[SUBSCRIPTIONS].find_one({"state": {"$in": _STANDING}}, {"_id": 1}) is not None

    async def find_suspended(self) -> list[EventSubscription]:
        """Those that are suspended, the first ones first."""
        return await self._read_subscriptions({"state": SubscriptionStatus.SUSPENDED.value})

    async def find_signed(self) -> list[EventSubscription]:
        """Those whose deliveries are signed."""
        return await self._read_subscriptions({"state": {"$in": _STANDING}, "secrets.0": {"$exists": True}})

    async def find_failing(self, since: datetime) -> list[Cursor]:
        """The cursors whose receivers did nothing but fail since then, or for longer, and are called."""
        with translate_errors():
            called = {"health.failing_since": {"$lte": since}, "health.idle_since": None}
            found = self._database[CURSORS].find(called).limit(MOST)
            return [cursor_codec.value(document) for document in await found.to_list()]

    async def find_unwoken(self, before: datetime) -> Waiting | None:
        """Flushes from before then whose queues nobody has told."""
        return await self._find_waiting(UNWOKEN, {}, "at", before)

    async def find_overdue(self, before: datetime) -> Waiting | None:
        """Wake-ups that came due before then, or whose lease ended, and that nobody has handed over."""
        return await self._find_waiting("occurrences", {"owner": _OF_THE_BUS}, "visible_at", before)

    async def find_troubled(self, times: int) -> list[TroubledQueue]:
        """The queues that nobody came back from, or that nobody could work on, so many times in a row."""
        often = {"$gte": times}
        query = {"owner": _OF_THE_BUS, "$or": [{"of.deaths": often}, {"of.faults": often}]}
        with translate_errors():
            found = await self._database["occurrences"].find(query, {"owner": 1, "of": 1}).limit(MOST).to_list()
        return [_read_trouble(document) for document in found]

    async def _read_subscriptions(self, query: Document) -> list[EventSubscription]:
        with translate_errors():
            found = self._database[SUBSCRIPTIONS].find(query).sort("updated_at", ASCENDING).limit(MOST)
            return [_codec.value(document) for document in await found.to_list()]

    async def _find_waiting(self, name: str, query: Document, field: str, before: datetime) -> Waiting | None:
        with translate_errors():
            cursor = self._database[name].find(query | {field: {"$lt": before}}, {field: 1})
            found: Sequence[Mapping[str, Any]] = await cursor.sort(field, ASCENDING).limit(MOST).to_list()
        return Waiting(len(found), found[0][field]) if found else None


_STANDING = sorted(status.value for status in REMOVABLE)


def _read_trouble(document: Mapping[str, Any]) -> TroubledQueue:
    queue, of = queue_of_owner(document["owner"]), document["of"]
    return TroubledQueue(subscription_of(queue), of.get("deaths", 0), of.get("faults", 0))
