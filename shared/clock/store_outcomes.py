"""The outcomes of attempts; and the dead letters: occurrences whose last attempt was refused, until a user decides."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, DeleteMany, DeleteOne, ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.clock.rules.outcomes import DeadLetter, ErrorCount, LetterPlace, Outcome, OutcomeResult
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    read_newest,
    read_page,
)

_letter_codec = Codec(DeadLetter)
_outcome_codec = Codec(Outcome)
_BATCH = 500  # of a few kilobytes each


class Outcomes(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._outcomes = database["outcomes"]

    async def setup(self) -> None:
        await self._outcomes.create_index([("owner", ASCENDING), ("at", DESCENDING)])
        await self._outcomes.create_index([("at", ASCENDING)])

    async def add(self, outcomes: Sequence[Outcome]) -> None:
        """Insert outcomes, in the order of their ids, as occurrences. If an attempt was made twice, by a process that
        died and another one, a successful outcome stays; otherwise the last one does."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.id)
        taken = await insert_new(self._outcomes, [_outcome_codec.document(outcome) for outcome in ordered])
        repeated = [ordered[place] for place in taken]
        if repeated:
            await self._outcomes.bulk_write([_overrule(outcome) for outcome in repeated], ordered=False)

    async def find(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are outcomes."""
        found = self._outcomes.find({"_id": {"$in": list(ids)}}, {"_id": 1}, batch_size=len(ids) + 1)
        return {document["_id"] for document in await found.to_list()}

    async def find_ended(self, owner: str) -> set[str]:
        """The message ids of the owner's occurrences that are not tried again."""
        query = {"owner": owner, "result": {"$ne": OutcomeResult.FAILED.value}}
        found = self._outcomes.find(query, {"_id": 1}, batch_size=_BATCH)
        return {document["_id"].partition("/")[0] async for document in found}

    async def latest(self, owner: str, limit: int) -> list[Outcome]:
        found = self._outcomes.find({"owner": owner}).sort("at", DESCENDING).limit(limit)
        return [outcome async for outcome in _outcome_codec.values(found)]

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._outcomes, {"at": {"$lt": before}}, limit)


def _overrule(outcome: Outcome) -> ReplaceOne[Document]:
    known = {"_id": outcome.id, "result": {"$ne": OutcomeResult.FIRED.value}}
    older = {} if outcome.result is OutcomeResult.FIRED else {"at": {"$lt": outcome.at}}
    return ReplaceOne(known | older, _outcome_codec.document(outcome))


class DeadLetters(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._letters = database["dead_letters"]

    async def setup(self) -> None:
        for leading in ((), ("namespace",), ("namespace", "key"), ("namespace", "error")):
            await self._letters.create_index([(field, ASCENDING) for field in (*leading, "died_at", "_id")])
        await self._letters.create_index([("death", ASCENDING)], sparse=True)

    async def add(self, letters: Sequence[DeadLetter]) -> None:
        """Insert letters; a later death of the same instant replaces its earlier letter."""
        documents = [_letter_codec.document(letter) for letter in letters]
        taken = await insert_new(self._letters, documents)
        # Not by its time: the database's clock may step back when another member takes over.
        others = [
            ReplaceOne({"_id": letters[place].id, "death": {"$ne": letters[place].death}}, documents[place])
            for place in taken
        ]
        if others:
            await self._letters.bulk_write(others, ordered=False)

    async def get(self, namespace: str, letter_id: str) -> DeadLetter | None:
        return _letter_codec.maybe(await self._letters.find_one({"_id": letter_id} | _chosen(namespace=namespace)))

    async def page(
        self, namespace: str, *, key: str = "", error: str = "", before: LetterPlace | None = None, limit: int
    ) -> Page[DeadLetter]:
        """A namespace's dead letters behind the place `before`, the newest first; of one `key` and `error` if given; of
        all namespaces for `""`."""
        query = _chosen(namespace=namespace, key=key, error=error)
        place = None if before is None else (before.died_at, before.id)
        return await read_newest(self._read, query, "died_at", place, limit)

    async def count(self, namespace: str, *, key: str = "", error: str = "", before: datetime, most: int) -> int:
        query = _chosen(namespace=namespace, key=key, error=error) | {"died_at": {"$lt": before}}
        return await self._letters.count_documents(query, limit=most)

    async def count_errors(self, namespace: str, *, key: str = "", last: int) -> list[ErrorCount]:
        pipeline: list[Document] = [
            {"$match": _chosen(namespace=namespace, key=key)},
            {"$sort": {"died_at": DESCENDING, "_id": DESCENDING}},
            {"$limit": last},
            {"$group": {"_id": "$error", "count": {"$sum": 1}, "last_died_at": {"$max": "$died_at"}}},
            {"$sort": {"count": DESCENDING, "_id": ASCENDING}},
        ]
        groups = await (await self._letters.aggregate(pipeline)).to_list()
        return [ErrorCount(error=group.pop("_id"), **group) for group in groups]

    async def estimate_count(self) -> int:
        return await self._letters.estimated_document_count()

    async def remove(self, letters: Sequence[DeadLetter]) -> int:
        if not letters:
            return 0
        return (await self._letters.bulk_write([_removal(letters)])).deleted_count

    async def _read(self, query: Document, limit: int) -> Page[DeadLetter]:
        order = ("died_at", "_id")
        return await read_page(
            self._letters, query, _letter_codec.value, order=order, direction=DESCENDING, limit=limit, batch=_BATCH
        )


def _removal(letters: Sequence[DeadLetter]) -> DeleteOne | DeleteMany:
    """The delete of these deaths. Many go by the index of `death`, at a tenth of the cost. A single one, as most are,
    goes by a `DeleteOne`, which the driver may repeat."""
    if len(letters) == 1:
        return DeleteOne({"_id": letters[0].id, "death": letters[0].death})
    return DeleteMany({"death": {"$in": [letter.death for letter in letters]}})


def _chosen(**fields: str) -> Document:
    return {field: value for field, value in fields.items() if value}
