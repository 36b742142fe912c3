"""Credentials: one document each, with its pace and its places beside what people have chosen.

People change the one part, by compare-and-set on `version`; senders the other, several times a second, by
compare-and-set on `pace.seq`. Neither writes a field of the other.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.domain.errors import Conflict
from shared.domain.messages.credentials import CREDENTIAL_TRANSITIONS, Credential, CredentialStatus, Traffic
from shared.domain.messages.pacing import Pace
from shared.domain.messages.places import Places
from shared.domain.transitions import sources
from shared.store.documents import Codec, Document, Page, forget_some, insert_new, read_page, translate_errors

_codec = Codec(Credential, json=("fields", "test_content"), derived=("usable_by", "sealed_by"))
_TRAFFIC = ("pace", "places")
_WITHOUT_TRAFFIC = dict.fromkeys(_TRAFFIC, 0)
_OF_TRAFFIC = dict.fromkeys(("pace", "places", "rate", "max_in_flight", "order", "status"), 1)
_PAGE = 100


def _name_taken() -> Conflict:
    return Conflict("the app has a credential with this name", field="name")


class Credentials:
    """The `credentials` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._credentials = database["credentials"]
        # A majority read lags behind: the compare-and-set that follows would be in vain. It decides by what is there.
        self._traffic = self._credentials.with_options(read_concern=ReadConcern("local"))

    async def setup(self) -> None:
        """Make the indexes."""
        await self._credentials.create_index([("app_id", ASCENDING), ("name", ASCENDING)], unique=True)
        await self._credentials.create_index([("status", ASCENDING), ("_id", ASCENDING)])
        await self._credentials.create_index([("usable_by", ASCENDING), ("_id", ASCENDING)])
        await self._credentials.create_index([("mail_due", ASCENDING)], sparse=True)

    async def add(self, credential: Credential) -> bool:
        """Insert a credential that nobody sends by yet; `False` where it is there, by its id.

        Raises:
            Conflict: its app has one with this name.
        """
        document = _codec.document(credential) | {"pace": msgspec.to_builtins(Pace()), "places": []}
        if not await insert_new(self._credentials, [document]):
            return True
        if await self.get(credential.id) is None:
            raise _name_taken()
        return False

    async def get(self, credential_id: str) -> Credential | None:
        """The credential with this id, if there is one."""
        with translate_errors():
            return _codec.maybe(await self._credentials.find_one({"_id": credential_id}, _WITHOUT_TRAFFIC))

    async def with_ids(self, credential_ids: Sequence[str]) -> dict[str, Credential]:
        """Those of these that there are, by id."""
        with translate_errors():
            found = await self._credentials.find({"_id": {"$in": list(credential_ids)}}, _WITHOUT_TRAFFIC).to_list()
        return {credential.id: credential for credential in map(_codec.value, found)}

    async def find_named(self, app_id: str, name: str) -> Credential | None:
        """The app's own credential with this name."""
        with translate_errors():
            return _codec.maybe(await self._credentials.find_one({"app_id": app_id, "name": name}, _WITHOUT_TRAFFIC))

    async def find_usable(self, app_id: str, name: str, *, limit: int) -> list[Credential]:
        """Some with this name that the app may use, its own or others'."""
        query = {"usable_by": app_id, "name": name}
        with translate_errors():
            found = await self._credentials.find(query, _WITHOUT_TRAFFIC).limit(limit).to_list()
        return [_codec.value(document) for document in found]

    async def page(self, app_id: str, *, after: str = "", limit: int) -> Page[Credential]:
        """The credentials that an app may use, its own and others', whose ids follow `after`, the oldest first."""
        query = {"usable_by": app_id, "_id": {"$gt": after}}
        return await read_page(
            self._credentials, query, _codec.value, order=("_id",), limit=limit, without=_WITHOUT_TRAFFIC, batch=_PAGE
        )

    async def find_own(self, app_id: str, *, limit: int) -> list[Credential]:
        """Some that are the app's own."""
        with translate_errors():
            found = await self._credentials.find({"app_id": app_id}, _WITHOUT_TRAFFIC).limit(limit).to_list()
        return [_codec.value(document) for document in found]

    async def count_of(self, app_id: str, *, most: int) -> int:
        """How many credentials are the app's own, counted up to `most`."""
        with translate_errors():
            return await self._credentials.count_documents({"app_id": app_id}, limit=most)

    async def change(self, old: Credential, new: Credential) -> Credential | None:
        """Put the new one in the place of the old; `None` when that was changed meanwhile, or is gone.

        Raises:
            Conflict: its app has another one with this name.
        """
        document = _codec.document(msgspec.structs.replace(new, version=old.version + 1))
        del document["_id"]
        return await self._update({"_id": old.id, "version": old.version}, {"$set": document})

    async def move(
        self, credential_id: str, to: CredentialStatus, *, why: str, at: datetime, secret: str | None = None
    ) -> Credential | None:
        """Give it this status, if the table has the move from where it stands; `None` if not. With `secret`, only while
        this is its sealed secret: whoever was refused by an old one says nothing about the new one. A mail is due about
        one that is rejected."""
        before = sorted(status.value for status in sources(CREDENTIAL_TRANSITIONS, to))
        query: Document = {"_id": credential_id, "status": {"$in": before}}
        query |= {} if secret is None else {"secret": secret}
        change: Document = {"status": to.value, "why": why, "updated_at": at}
        change |= {"mail_due": at} if to.is_news else {}
        return await self._update(query, {"$set": change, "$inc": {"version": 1}})

    async def lease_mail(self, *, now: datetime, until: datetime) -> Credential | None:
        """A credential of which a mail is due, for whoever sends it until then; others leave it alone meanwhile."""
        return await self._update({"mail_due": {"$lte": now}}, {"$set": {"mail_due": until}})

    async def end_mail(self, credential_id: str, *, until: datetime) -> None:
        """Note that the mail was sent which was leased so."""
        with translate_errors():
            await self._credentials.update_one({"_id": credential_id, "mail_due": until}, {"$unset": {"mail_due": ""}})

    async def find_sealed_otherwise(self, key: str, *, after: str = "", limit: int) -> list[Credential]:
        """Some whose secrets were sealed under another key than this one, by their ids."""
        query = {"_id": {"$gt": after}} | _sealed_otherwise(key)
        found = self._credentials.find(query, _WITHOUT_TRAFFIC).sort([("_id", ASCENDING)]).limit(limit)
        return [credential async for credential in _codec.values(found)]

    async def count_sealed_otherwise(self, key: str) -> int:
        """How many secrets were sealed under another key than this one."""
        with translate_errors():
            return await self._credentials.count_documents(_sealed_otherwise(key))

    async def has_some(self) -> bool:
        """Whether there is any."""
        with translate_errors():
            return await self._credentials.find_one({}, {"_id": 1}) is not None

    async def find_still(self, *, after: str = "", limit: int) -> list[Credential]:
        """Some by which nothing is sent, by their ids."""
        still = [status.value for status in CredentialStatus if not status.sends]
        query = {"_id": {"$gt": after}, "status": {"$in": still}}
        found = self._credentials.find(query, _WITHOUT_TRAFFIC).sort([("_id", ASCENDING)]).limit(limit)
        return [credential async for credential in _codec.values(found)]

    async def remove(self, credential_id: str) -> bool:
        """Forget the credential; `False` when there is none."""
        with translate_errors():
            return (await self._credentials.delete_one({"_id": credential_id})).deleted_count == 1

    async def note_use(self, credential_id: str) -> bool:
        """Note that something new refers to it, which is stored; `False` when it is gone."""
        with translate_errors():
            noted = await self._credentials.update_one({"_id": credential_id}, {"$inc": {"uses": 1}})
        return noted.matched_count == 1

    async def count_uses(self, credential_id: str) -> int:
        """How often `note_use` was told of it."""
        with translate_errors():
            found = await self._credentials.find_one({"_id": credential_id}, {"uses": 1})
        uses: int = (found or {}).get("uses", 0)
        return uses

    async def remove_unused(self, credential_id: str, *, since: int) -> bool:
        """Forget the credential unless somebody noted a use since there were so many; `False` when nothing was
        forgotten."""
        unused: Document = {"uses": since} if since else {"uses": {"$in": [None, 0]}}
        with translate_errors():
            return (await self._credentials.delete_one({"_id": credential_id} | unused)).deleted_count == 1

    async def remove_of(self, app_id: str) -> None:
        """Forget all that are the app's own."""
        while await forget_some(self._credentials, {"app_id": app_id}, _PAGE):
            pass

    async def get_traffic(self, credential_id: str) -> Traffic | None:
        """The fields that grants go by, its status among them; `None` when it is gone."""
        with translate_errors():
            found = await self._traffic.find_one({"_id": credential_id}, _OF_TRAFFIC)
            if found is None:  # only a majority says that it is gone
                found = await self._credentials.find_one({"_id": credential_id}, _OF_TRAFFIC)
        return None if found is None else msgspec.convert(found, Traffic)

    async def change_traffic(self, credential_id: str, seq: int, pace: Pace, places: Places) -> bool:
        """Put pace and places in the place of those whose `seq` is this one; `False` when somebody else was faster, or
        the credential is gone. The pace has another `seq`, or the next one to change it would not notice."""
        assert pace.seq != seq
        traffic = {"pace": msgspec.to_builtins(pace), "places": msgspec.to_builtins(places)}
        with translate_errors():
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
