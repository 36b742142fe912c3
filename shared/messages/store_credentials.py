"""Credentials, one document each with the users' settings, the pace and the places, and send limits of namespaces.

Users change the settings, by compare-and-set on `version`; senders change pace and places several times a second,
by compare-and-set on `pace.seq`. Neither writes a field of the other. A send limit is the generic cell rate
algorithm in one update of one document, exact over all processes: `next_us` is the time at which the last granted
message would be due at the namespace's rate, and may be ahead by at most the `burst`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.core.documents import sources
from shared.core.errors import Conflict
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    make,
    read_page,
    translate_errors,
)
from shared.messages.rules.credentials import CREDENTIAL_TRANSITIONS, Credential, CredentialStatus, Traffic
from shared.messages.rules.pacing import Pace
from shared.messages.rules.places import Places

_codec = Codec(Credential, json=("fields", "test_content"), derived=("usable_by", "sealed_by"))
_TRAFFIC = ("pace", "places")
_WITHOUT_TRAFFIC = dict.fromkeys(_TRAFFIC, 0)
_OF_TRAFFIC = dict.fromkeys(("pace", "places", "rate", "max_in_flight", "order", "status"), 1)
_PAGE = 100


def _name_taken() -> Conflict:
    return Conflict("the app has a credential with this name", field="name")


class Credentials(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._credentials = database["credentials"]
        # A majority read lags behind, so that the compare-and-set after it would fail. The compare-and-set sees the
        # present values.
        self._traffic = self._credentials.with_options(read_concern=ReadConcern("local"))

    async def setup(self) -> None:
        await self._credentials.create_index([("app_id", ASCENDING), ("name", ASCENDING)], unique=True)
        await self._credentials.create_index([("status", ASCENDING), ("_id", ASCENDING)])
        await self._credentials.create_index([("usable_by", ASCENDING), ("_id", ASCENDING)])
        await self._credentials.create_index([("mail_due", ASCENDING)], sparse=True)

    async def add(self, credential: Credential) -> bool:
        document = _codec.document(credential) | {"pace": msgspec.to_builtins(Pace()), "places": []}
        if not await insert_new(self._credentials, [document]):
            return True
        if await self.get(credential.id) is None:
            raise _name_taken()
        return False

    async def get(self, credential_id: str) -> Credential | None:
        return _codec.maybe(await self._credentials.find_one({"_id": credential_id}, _WITHOUT_TRAFFIC))

    async def with_ids(self, credential_ids: Sequence[str]) -> dict[str, Credential]:
        found = await self._credentials.find({"_id": {"$in": list(credential_ids)}}, _WITHOUT_TRAFFIC).to_list()
        return {credential.id: credential for credential in map(_codec.value, found)}

    async def find_named(self, app_id: str, name: str) -> Credential | None:
        return _codec.maybe(await self._credentials.find_one({"app_id": app_id, "name": name}, _WITHOUT_TRAFFIC))

    async def find_usable(self, app_id: str, name: str, *, limit: int) -> list[Credential]:
        """Up to `limit` credentials with this name that the app may use, its own or others'."""
        query = {"usable_by": app_id, "name": name}
        found = await self._credentials.find(query, _WITHOUT_TRAFFIC).limit(limit).to_list()
        return [_codec.value(document) for document in found]

    async def page(self, app_id: str, *, after: str = "", limit: int) -> Page[Credential]:
        """The credentials that an app may use, its own and others', whose ids follow `after`, the oldest first."""
        query = {"usable_by": app_id, "_id": {"$gt": after}}
        return await read_page(
            self._credentials, query, _codec.value, order=("_id",), limit=limit, without=_WITHOUT_TRAFFIC, batch=_PAGE
        )

    async def find_own(self, app_id: str, *, limit: int) -> list[Credential]:
        found = await self._credentials.find({"app_id": app_id}, _WITHOUT_TRAFFIC).limit(limit).to_list()
        return [_codec.value(document) for document in found]

    async def count_of(self, app_id: str, *, most: int) -> int:
        return await self._credentials.count_documents({"app_id": app_id}, limit=most)

    async def change(self, old: Credential, new: Credential) -> Credential | None:
        document = _codec.document(msgspec.structs.replace(new, version=old.version + 1))
        del document["_id"]
        return await self._update({"_id": old.id, "version": old.version}, {"$set": document})

    async def move(
        self, credential_id: str, to: CredentialStatus, *, why: str, at: datetime, secret: str | None = None
    ) -> Credential | None:
        """Give it this status; `None` if its present status does not allow that. With `secret`, only while this is
        its sealed secret, because a refusal of an old secret says nothing about the new one. A rejection makes a
        mail due."""
        before = sorted(status.value for status in sources(CREDENTIAL_TRANSITIONS, to))
        query: Document = {"_id": credential_id, "status": {"$in": before}}
        query |= {} if secret is None else {"secret": secret}
        change: Document = {"status": to.value, "why": why, "updated_at": at}
        change |= {"mail_due": at} if to.is_news else {}
        return await self._update(query, {"$set": change, "$inc": {"version": 1}})

    async def lease_mail(self, *, now: datetime, until: datetime) -> Credential | None:
        return await self._update({"mail_due": {"$lte": now}}, {"$set": {"mail_due": until}})

    async def end_mail(self, credential_id: str, *, until: datetime) -> None:
        await self._credentials.update_one({"_id": credential_id, "mail_due": until}, {"$unset": {"mail_due": ""}})

    async def find_sealed_otherwise(self, key: str, *, after: str = "", limit: int) -> list[Credential]:
        """The credentials after `after` whose secrets were sealed with a key other than `key`, by id."""
        query = {"_id": {"$gt": after}} | _sealed_otherwise(key)
        found = self._credentials.find(query, _WITHOUT_TRAFFIC).sort([("_id", ASCENDING)]).limit(limit)
        return [credential async for credential in _codec.values(found)]

    async def count_sealed_otherwise(self, key: str) -> int:
        return await self._credentials.count_documents(_sealed_otherwise(key))

    async def has_some(self) -> bool:
        return await self._credentials.find_one({}, {"_id": 1}) is not None

    async def find_still(self, *, after: str = "", limit: int) -> list[Credential]:
        still = [status.value for status in CredentialStatus if not status.sends]
        query = {"_id": {"$gt": after}, "status": {"$in": still}}
        found = self._credentials.find(query, _WITHOUT_TRAFFIC).sort([("_id", ASCENDING)]).limit(limit)
        return [credential async for credential in _codec.values(found)]

    async def remove(self, credential_id: str) -> bool:
        return (await self._credentials.delete_one({"_id": credential_id})).deleted_count == 1

    async def note_use(self, credential_id: str) -> bool:
        """Count a stored reference to it; `False` if it is gone."""
        noted = await self._credentials.update_one({"_id": credential_id}, {"$inc": {"uses": 1}})
        return noted.matched_count == 1

    async def count_uses(self, credential_id: str) -> int:
        found = await self._credentials.find_one({"_id": credential_id}, {"uses": 1})
        uses: int = (found or {}).get("uses", 0)
        return uses

    async def remove_unused(self, credential_id: str, *, since: int) -> bool:
        unused: Document = {"uses": since} if since else {"uses": {"$in": [None, 0]}}
        return (await self._credentials.delete_one({"_id": credential_id} | unused)).deleted_count == 1

    async def remove_of(self, app_id: str) -> None:
        while await forget_some(self._credentials, {"app_id": app_id}, _PAGE):
            pass

    async def get_traffic(self, credential_id: str) -> Traffic | None:
        """The fields for grants, with its status; `None` if it is gone."""
        found = await self._traffic.find_one({"_id": credential_id}, _OF_TRAFFIC)
        if found is None:  # only a majority read proves that it is gone
            found = await self._credentials.find_one({"_id": credential_id}, _OF_TRAFFIC)
        return None if found is None else msgspec.convert(found, Traffic)

    async def change_traffic(self, credential_id: str, seq: int, pace: Pace, places: Places) -> bool:
        """Replace pace and places if `pace.seq` is still `seq`; `False` if it has changed or the credential is gone.
        The new pace needs another `seq`, which shows the change to the next writer."""
        assert pace.seq != seq
        traffic = {"pace": msgspec.to_builtins(pace), "places": msgspec.to_builtins(places)}
        result = await self._credentials.update_one({"_id": credential_id, "pace.seq": seq}, {"$set": traffic})
        return result.matched_count == 1

    async def _update(self, query: Document, change: Document) -> Credential | None:
        with translate_errors(duplicate=_name_taken):
            found: Any = await self._credentials.find_one_and_update(
                query, change, projection=_WITHOUT_TRAFFIC, return_document=ReturnDocument.AFTER
            )
        return _codec.maybe(found)


def _sealed_otherwise(key: str) -> Document:
    return {"sealed_by": {"$nin": ["", key]}}


_SECOND = 1_000_000


class Granted(Struct, frozen=True):
    count: int
    wait_seconds: float


class SendLimits(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._callers = database["callers"]

    async def setup(self) -> None:
        await make(self._callers)

    async def take(self, namespace: str, count: int, *, rate: float, now: datetime) -> Granted:
        """Grant up to `count` messages at `rate` a second; at most one second's worth at once."""
        interval = round(_SECOND / rate)
        burst = max(int(rate), 1) * interval
        at = int((now - EPOCH).total_seconds() * 1_000) * 1_000
        # A corrected clock that was ahead delays no messages beyond the burst.
        free: Document = {"$min": [{"$max": [{"$ifNull": ["$next_us", 0]}, at]}, at + burst]}
        room: Document = {"$floor": {"$divide": [{"$subtract": [at + burst, free]}, interval]}}
        granted: Document = {"$max": [{"$min": [count, room]}, 0]}
        steps: list[Document] = [
            {"$set": {"free_us": free, "granted": granted}},
            {"$set": {"next_us": {"$add": ["$free_us", {"$multiply": ["$granted", interval]}]}}},
        ]
        found: Any = await self._callers.find_one_and_update(
            {"_id": namespace}, steps, upsert=True, return_document=ReturnDocument.AFTER
        )
        wait = found["next_us"] - (at + burst - interval)
        return Granted(int(found["granted"]), max(wait, 0) / _SECOND)
