"""Service tokens: one document each, found by the digest of the secret with every request."""

from collections.abc import Collection, Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import Token, TokenScope, token_namespace
from shared.domain.errors import Conflict
from shared.store.documents import Aggregate, Codec, Document, Page, read_page, translate_errors

_codec = Codec(Token, json=("roles",))
_BATCH = 32  # a token with rights over 27,000 apps has a megabyte


class Tokens(Aggregate):
    """The `tokens` collection. It never holds a secret."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._tokens = database["tokens"]

    async def setup(self) -> None:
        await self._tokens.create_index([("digest", ASCENDING)], unique=True)
        await self._tokens.create_index([("previous_digest", ASCENDING)])
        await self._tokens.create_index([("namespace", ASCENDING)])
        await self._tokens.create_index([("scope", ASCENDING), ("_id", ASCENDING)])

    async def add(self, token: Token) -> None:
        """Raise `Conflict` if the secret exists already."""
        with translate_errors(duplicate=lambda: Conflict("this token exists already", field="token")):
            await self._tokens.insert_one(_codec.document(token))

    async def get(self, token_id: str) -> Token | None:
        return _codec.maybe(await self._tokens.find_one({"_id": token_id}))

    async def with_digests(self, digests: Sequence[str]) -> dict[str, Token]:
        """The tokens whose present or previous secrets have these digests, by digest. One query, and another for the
        digests that it does not find."""
        found = await self._find("digest", digests)
        left = [digest for digest in digests if digest not in found]
        return found | (await self._find("previous_digest", left) if left else {})

    async def find_of_namespaces(self, namespaces: Collection[str]) -> list[Token]:
        # A token whose namespace follows from its id does not store it.
        ids = [namespace.removeprefix(token_namespace("")) for namespace in namespaces]
        owners = {"_id": {"$in": ids}, "namespace": {"$in": ["", None]}}
        found = await self._tokens.find({"$or": [{"namespace": {"$in": list(namespaces)}}, owners]}).to_list()
        return [_codec.value(document) for document in found]

    async def is_shared(self, token: Token) -> bool:
        """Whether another token has the same namespace."""
        own = token_namespace("")
        query = {"_id": {"$ne": token.id}, "namespace": token.owns}
        if await self._tokens.find_one(query, {"_id": 1}) is not None:
            return True
        # A token whose namespace follows from its id does not store it.
        owner = {"_id": token.owns.removeprefix(own), "namespace": {"$in": ["", None]}}
        found = await self._tokens.find_one(owner, {"_id": 1})
        return found is not None and found["_id"] != token.id

    async def rotate(
        self, token: Token, digest: str, *, previous_until: datetime, expires_at: datetime | None
    ) -> Token | None:
        """Give the token another secret, unless another process did since; the previous one is valid until
        `previous_until`."""
        change = {
            "digest": digest,
            "previous_digest": token.digest,
            "previous_until": previous_until,
            "expires_at": expires_at,
        }
        query = {"_id": token.id, "digest": token.digest}
        found = await self._tokens.find_one_and_update(query, {"$set": change}, return_document=True)
        return _codec.maybe(found)

    async def note_use(self, token: Token, at: datetime) -> None:
        """Record the use, unless another process has recorded one since the token was read."""
        query = {"_id": token.id, "last_used_at": token.last_used_at}
        await self._tokens.update_one(query, {"$set": {"last_used_at": at}})

    async def page(self, *, after: str = "", limit: int) -> Page[Token]:
        query = {"_id": {"$gt": after}}
        return await read_page(self._tokens, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def with_scope(self, scope: TokenScope, *, after: str = "", limit: int) -> Page[Token]:
        """The tokens of this scope whose ids follow `after`, the oldest first."""
        query = {"scope": scope.value, "_id": {"$gt": after}}
        return await read_page(self._tokens, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def names(self, token_ids: Sequence[str]) -> dict[str, str]:
        found = await self._tokens.find({"_id": {"$in": list(token_ids)}}, {"name": 1}).to_list()
        return {document["_id"]: document["name"] for document in found}

    async def remove(self, token_id: str) -> bool:
        return (await self._tokens.delete_one({"_id": token_id})).deleted_count == 1

    async def _find(self, field: str, digests: Sequence[str]) -> dict[str, Token]:
        found = await self._tokens.find({field: {"$in": list(digests)}}).to_list()
        return {document[field]: _codec.value(document) for document in found}
