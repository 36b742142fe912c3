"""Service tokens: one document each, found by the digest of the secret with every request."""

from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import Token
from shared.domain.errors import Conflict
from shared.store.documents import Codec, Document, Page, read_page, translate_errors

_codec = Codec(Token, json=("roles",))
_BATCH = 32  # what may use 27,000 apps has a megabyte


class Tokens:
    """The `tokens` collection. It never holds a secret."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._tokens = database["tokens"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._tokens.create_index([("digest", ASCENDING)], unique=True)

    async def add(self, token: Token) -> None:
        """Insert a token.

        Raises:
            Conflict: the secret exists already.
        """
        with translate_errors(duplicate=lambda: Conflict("this token exists already", field="token")):
            await self._tokens.insert_one(_codec.document(token))

    async def get(self, token_id: str) -> Token | None:
        """The token with this id, if there is one."""
        with translate_errors():
            return _codec.maybe(await self._tokens.find_one({"_id": token_id}))

    async def with_digests(self, digests: Sequence[str]) -> dict[str, Token]:
        """The tokens whose secrets have these digests, by them. One query."""
        with translate_errors():
            found = await self._tokens.find({"digest": {"$in": list(digests)}}).to_list()
        return {document["digest"]: _codec.value(document) for document in found}

    async def page(self, *, after: str = "", limit: int) -> Page[Token]:
        """The tokens whose ids follow `after`, the oldest first."""
        query = {"_id": {"$gt": after}}
        return await read_page(self._tokens, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def remove(self, token_id: str) -> bool:
        """Forget the token, which revokes it; `False` when there is none."""
        with translate_errors():
            return (await self._tokens.delete_one({"_id": token_id})).deleted_count == 1
