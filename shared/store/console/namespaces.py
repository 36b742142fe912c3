"""The existing namespaces: those of users and tokens, and those without an owner that still have schedules.

There is no list of them. Each kind is read in order from an index, so the cost of a page depends on its size alone.
"""

from collections.abc import Sequence
from typing import Any

from pymongo import ASCENDING
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import token_namespace, user_namespace
from shared.store.documents import Aggregate, Document, Page, read_values

_UNNAMED = ["", None]  # as the first release writes it too


class NamespaceLists(Aggregate):
    """Reads the collections `users`, `tokens` and `schedules`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._users = database["users"]
        self._tokens = database["tokens"]
        self._schedules = database["schedules"]

    async def setup(self) -> None:
        """Make the index of the tokens whose namespace is their id."""
        await self._tokens.create_index([("namespace", ASCENDING), ("_id", ASCENDING)])

    async def page(self, *, after: str = "", limit: int) -> Page[str]:
        found = {
            *await self._read(self._users, "email", {}, user_namespace(""), after, limit + 1),
            *await self._read(
                self._tokens, "_id", {"namespace": {"$in": _UNNAMED}}, token_namespace(""), after, limit + 1
            ),
            *await read_values(self._tokens, "namespace", after=after, limit=limit + 1),
            *await read_values(self._schedules, "namespace", after=after, limit=limit + 1),
        }
        page = Page(sorted(found)[:limit])
        page.more = len(found) > limit
        return page

    async def count_tokens(self, namespace: str, *, most: int) -> int:
        """The number of tokens that share a namespace, up to `most`."""
        named = await self._tokens.count_documents({"namespace": namespace}, limit=most)
        own = {"_id": namespace.removeprefix(token_namespace("")), "namespace": {"$in": _UNNAMED}}
        return min(named + (await self._tokens.find_one(own, {"_id": 1}) is not None), most)

    async def _read(
        self, collection: AsyncCollection[Document], field: str, query: Document, prefix: str, after: str, limit: int
    ) -> Sequence[str]:
        """The namespaces after `after` that consist of a prefix and a field's value."""
        if after > prefix and not after.startswith(prefix):
            return []
        behind: Any = {field: {"$gt": after.removeprefix(prefix) if after.startswith(prefix) else ""}}
        found = collection.find(query | behind, {field: 1}).sort(field, ASCENDING).limit(limit)
        return [prefix + document[field] async for document in found]
