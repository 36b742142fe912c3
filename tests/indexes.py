"""Whether an index serves a query: the server then examines only documents that it returns, in their order.

The stand-in for MongoDB reads all of an open range, and explains a read by `_id` as a collection scan. So tests apply
the rule of MongoDB's own planner: equal fields first, then the order or a range, and no field that is not in the index.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase


class Query(Struct, frozen=True):
    """A command that reads."""

    collection: str
    filter: Mapping[str, Any]
    sort: Sequence[str] = ()
    limit: int = 0

    @property
    def equal(self) -> frozenset[str]:
        """The fields that have one value or one of a few."""
        return frozenset(field for field, wanted in self.filter.items() if _is_equal(wanted))


def read_queries(commands: Iterable[Mapping[str, Any]]) -> list[Query]:
    """The queries among commands that were sent; for an aggregate, its first `$match`, `$sort` and `$limit`."""
    return [query for query in map(_read_query, commands) if query is not None]


def update_filters(commands: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The filters by which commands that were sent choose the documents to update."""
    return [update["q"] for command in commands for update in command.get("updates", ())]


async def keys_of(collection: AsyncCollection[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The fields of each index. A collection that is not made yet lists none, and will have the one of `_id`."""
    return [("_id",), *[tuple(index["key"]) async for index in await collection.list_indexes()]]


def serves(index: Sequence[str], query: Query) -> bool:
    """Whether an index with these fields holds the query's documents together, in its order."""
    if "_id" in query.equal:
        return index == ("_id",)
    leading = list(takewhile(query.equal.__contains__, index))
    rest = list(index[len(leading) :])
    order = [field for field in query.sort if field not in query.equal]
    ranges = [field for field in query.filter if field not in query.equal]
    if {*leading} != query.equal or rest[: len(order)] != order:
        return False
    return {*ranges} <= {*rest[: max(len(order), 1)]} and bool(query.filter or query.limit)


async def plans_index(database: AsyncDatabase[dict[str, Any]], query: Query) -> bool:
    """Whether the server says that it takes an index. Each `$in` has its first value alone here."""
    one = {field: wanted["$in"][0] if _is_several(wanted) else wanted for field, wanted in query.filter.items()}
    asked = {"find": query.collection, "filter": one, "sort": dict.fromkeys(query.sort, 1)}
    told = await database.command({"explain": asked, "verbosity": "queryPlanner"})
    return "IXSCAN" in str(told)


def _read_query(command: Mapping[str, Any]) -> Query | None:
    name, collection = next(iter(command.items()))
    if name == "find":
        return Query(collection, command.get("filter") or {}, tuple(command.get("sort") or ()), command.get("limit", 0))
    if name != "aggregate":
        return None
    stages = {stage: asked for each in reversed(command["pipeline"]) for stage, asked in each.items()}
    return Query(collection, stages.get("$match", {}), tuple(stages.get("$sort", ())), stages.get("$limit", 0))


def _is_equal(wanted: Any) -> bool:
    return not isinstance(wanted, Mapping) or _is_several(wanted)


def _is_several(wanted: Any) -> bool:
    return isinstance(wanted, Mapping) and "$in" in wanted
