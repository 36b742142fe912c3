"""Suppressions: one document for each recipient and list, under an id made of both.

So a repeated suppression is stored once, and a batch's recipients are looked up by id alone. A bar replaces an
unsubscription, never the other way round (`shared.messages.rules.suppressions`).
"""

from collections.abc import Collection, Mapping, Sequence

from pymongo import ASCENDING, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    read_page,
    with_ids,
)
from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import (
    EVERYTHING,
    Suppression,
    SuppressionCause,
    hash_address,
    strongest,
    suppression_id,
)

_codec = Codec(Suppression)
_PAGE = 1_000
_BY_ID = [("app_id", ASCENDING), ("_id", ASCENDING)]
_BY_ADDRESS = [("app_id", ASCENDING), ("address_hash", ASCENDING), ("_id", ASCENDING)]
_STATE = {"cause": 1, "unsubscribed_at": 1}
_UNSUBSCRIBED = SuppressionCause.UNSUBSCRIBE.value


class Suppressions(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._suppressions = database["suppressions"]

    async def setup(self) -> None:
        await self._suppressions.create_index(_BY_ID)
        await self._suppressions.create_index(_BY_ADDRESS)

    async def add(self, suppressions: Sequence[Suppression]) -> set[int]:
        """Insert the new ones; returns the positions of the others. A bar replaces an unsubscription, and an
        unsubscription is recorded in a bar."""
        known = await self._read_states([each.id for each in suppressions])
        new = [position for position, each in enumerate(suppressions) if each.id not in known]
        taken = await insert_new(self._suppressions, [_codec.document(suppressions[position]) for position in new])
        there = {position for position, each in enumerate(suppressions) if each.id in known}
        changed = {position for position in there if _is_stronger(suppressions[position], known)}
        late = {new[index] for index in taken}
        changes = [_strengthen(suppressions[position]) for position in sorted(changed | late)]
        if changes:
            await self._suppressions.bulk_write(changes, ordered=False)
        return there | late

    async def _read_states(self, ids: Sequence[str]) -> dict[str, Document]:
        found = await self._suppressions.find({"_id": {"$in": list(ids)}}, _STATE).to_list() if ids else []
        return {document["_id"]: document for document in found}

    async def add_in(self, session: AsyncClientSession, suppressions: Sequence[Suppression]) -> None:
        changes: list[UpdateOne] = []
        for suppression in suppressions:
            document = _codec.document(suppression)
            del document["_id"]
            changes.append(UpdateOne({"_id": suppression.id}, {"$setOnInsert": document}, upsert=True))
            changes.append(_strengthen(suppression))
        if changes:
            await self._suppressions.bulk_write(changes, ordered=True, session=session)

    async def get(self, app_id: str, suppression_id: str) -> Suppression | None:
        return _codec.maybe(await self._suppressions.find_one({"_id": suppression_id, "app_id": app_id}))

    async def with_ids(self, suppression_ids: Sequence[str]) -> dict[str, Suppression]:
        return await with_ids(self._suppressions, _codec, suppression_ids)

    async def find(
        self, app_id: str, channel: Channel, addresses: Sequence[str], list_name: str = EVERYTHING
    ) -> dict[str, Suppression]:
        """The suppressions that decide whether these addresses (in normal form) get a message of this list, by address.
        One query."""
        lists = {EVERYTHING, list_name}
        ids = {suppression_id(app_id, channel, address, name): address for address in addresses for name in lists}
        query = {"_id": {"$in": list(ids)}}
        found = await self._suppressions.find(query).to_list() if ids else []
        of_address: dict[str, list[Suppression]] = {}
        for suppression in map(_codec.value, found):
            of_address.setdefault(ids[suppression.id], []).append(suppression)
        deciding = {address: strongest(theirs) for address, theirs in of_address.items()}
        return {address: suppression for address, suppression in deciding.items() if suppression is not None}

    async def page(
        self, app_id: str, *, addresses: Collection[str] = (), after: str = "", limit: int
    ) -> Page[Suppression]:
        """The app's suppressions whose ids follow `after`, by id; with `addresses` (in normal form) only theirs, of all
        channels and lists."""
        query: Document = {"app_id": app_id}
        hashes = sorted({hash_address(app_id, address) for address in addresses})
        query |= {"address_hash": {"$in": hashes}} if hashes else {}
        query |= {"_id": {"$gt": after}}
        # Without it the database may use the order's index, and scan every suppression of the app.
        hint = _BY_ADDRESS if hashes else _BY_ID
        return await read_page(
            self._suppressions, query, _codec.value, order=("_id",), limit=limit, batch=_PAGE, hint=hint
        )

    async def remove(self, app_id: str, suppression_id: str) -> Suppression | None:
        """Delete the app's suppression; returns it as it was, `None` if there is none. If it is a bar and the recipient
        has also unsubscribed, the unsubscription stays."""
        while found := await self.get(app_id, suppression_id):
            as_read = {"_id": found.id, "cause": found.cause.value, "unsubscribed_at": found.unsubscribed_at}
            if found.is_bar and found.unsubscribed_at is not None:
                change = {"cause": _UNSUBSCRIBED, "message_id": "", "at": found.unsubscribed_at}
                done = (await self._suppressions.update_one(as_read, {"$set": change})).matched_count
            else:
                done = (await self._suppressions.delete_one(as_read)).deleted_count
            if done:
                return found
        return None

    async def resubscribe(self, suppression_id: str) -> None:
        """Delete the recipient's unsubscription. A bar stays."""
        await self._suppressions.delete_one({"_id": suppression_id, "cause": _UNSUBSCRIBED})
        await self._suppressions.update_one(
            {"_id": suppression_id, "cause": {"$ne": _UNSUBSCRIBED}}, {"$set": {"unsubscribed_at": None}}
        )

    async def find_app(self, *, after: str = "") -> str | None:
        found = await self._suppressions.find_one(
            {"app_id": {"$gt": after}}, {"app_id": 1}, sort=[("app_id", ASCENDING), ("_id", ASCENDING)]
        )
        return None if found is None else str(found["app_id"])

    async def remove_some_of(self, app_id: str, *, limit: int) -> int:
        return await forget_some(self._suppressions, {"app_id": app_id}, limit)

    async def remove_of(self, app_id: str) -> None:
        while await self.remove_some_of(app_id, limit=_PAGE):
            pass


def _is_stronger(suppression: Suppression, known: Mapping[str, Document]) -> bool:
    present = known[suppression.id]
    if suppression.is_bar:
        return bool(present["cause"] == _UNSUBSCRIBED)
    return present.get("unsubscribed_at") is None


def _strengthen(suppression: Suppression) -> UpdateOne:
    """Only the id chooses the document: with other conditions the server may not use its index."""
    if not suppression.is_bar:
        first = {"$ifNull": ["$unsubscribed_at", suppression.unsubscribed_at]}
        return UpdateOne({"_id": suppression.id}, [{"$set": {"unsubscribed_at": first}}])
    document, is_no_bar = _codec.document(suppression), {"$eq": ["$cause", _UNSUBSCRIBED]}
    change = {
        name: {"$cond": [is_no_bar, {"$literal": document[name]}, f"${name}"]}
        for name in ("cause", "message_id", "at", "address")
        if document[name]
    }
    return UpdateOne({"_id": suppression.id}, [{"$set": change}])
