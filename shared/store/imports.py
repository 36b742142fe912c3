"""A digest of each thing imported from another system. The next import compares digests, and leaves alone the things
that were changed or deleted here since."""

from collections.abc import Mapping, Sequence

from pymongo import ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.documents import Aggregate, Document, insert_new, make


class Imports(Aggregate):
    """The `imports` collection, one document for each thing: `{_id: "<kind>/<id>", digest}`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._imports = database["imports"]

    async def setup(self) -> None:
        await make(self._imports)

    async def find_noted(self, kind: str, ids: Sequence[str]) -> dict[str, str]:
        keys = [f"{kind}/{id}" for id in ids]
        found = await self._imports.find({"_id": {"$in": keys}}).to_list()
        return {document["_id"].partition("/")[2]: document["digest"] for document in found}

    async def note(self, kind: str, digests: Mapping[str, str]) -> None:
        """Store these digests, by id, in place of older ones."""
        documents = [{"_id": f"{kind}/{id}", "digest": digest} for id, digest in digests.items()]
        older = await insert_new(self._imports, documents)
        changes = [ReplaceOne({"_id": documents[position]["_id"]}, documents[position]) for position in older]
        if changes:
            await self._imports.bulk_write(changes, ordered=False)
