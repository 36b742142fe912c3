"""Dead letters: occurrences that were refused to the last attempt, until somebody decides about them."""

from collections.abc import Sequence
from typing import Any

from pymongo import ASCENDING, DeleteOne, ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.clock.outcomes import DeadLetter
from shared.store.documents import Codec, Document, Page, insert_new, read_page, translate_errors

_codec = Codec(DeadLetter)
_BATCH = 500  # of a few kilobytes each


class DeadLetters:
    """The `dead_letters` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._letters = database["dead_letters"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._letters.create_index([("namespace", ASCENDING), ("_id", ASCENDING)])
        await self._letters.create_index([("namespace", ASCENDING), ("key", ASCENDING), ("_id", ASCENDING)])

    async def add(self, letters: Sequence[DeadLetter]) -> None:
        """Insert them; an instant that has died again takes the place of its earlier letter."""
        documents = [_codec.document(letter) for letter in letters]
        taken = await insert_new(self._letters, documents)
        newer = [
            ReplaceOne(
                {"_id": documents[place]["_id"], "died_at": {"$lt": documents[place]["died_at"]}}, documents[place]
            )
            for place in taken
        ]
        if newer:
            with translate_errors():
                await self._letters.bulk_write(newer, ordered=False)

    async def get(self, namespace: str, letter_id: str) -> DeadLetter | None:
        """One of a caller's dead letters, if it is there."""
        with translate_errors():
            return _codec.maybe(await self._letters.find_one({"_id": letter_id, "namespace": namespace}))

    async def page(self, namespace: str, *, key: str = "", after: str = "", limit: int) -> Page[DeadLetter]:
        """A caller's dead letters by id, those behind `after`; of one key, if it is given."""
        query: dict[str, Any] = {"namespace": namespace} | ({"key": key} if key else {}) | {"_id": {"$gt": after}}
        return await read_page(self._letters, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def count(self) -> int:
        """About how many there are."""
        with translate_errors():
            return await self._letters.estimated_document_count()

    async def remove(self, letters: Sequence[DeadLetter]) -> int:
        """Forget these, but not what has died again since; returns how many were there."""
        if not letters:
            return 0
        with translate_errors():
            result = await self._letters.bulk_write(
                [DeleteOne({"_id": letter.id, "died_at": letter.died_at}) for letter in letters], ordered=False
            )
        return result.deleted_count
