"""The indexes that `Store.setup` makes, found without making any, and those that a database has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, cast

from bson.son import SON
from msgspec import Struct
from pymongo import IndexModel
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.documents import Aggregate, Document

# The options that distinguish two indexes over the same fields.
_OPTIONS = ("unique", "sparse", "expireAfterSeconds", "partialFilterExpression")
_OF_EVERY_COLLECTION = "_id_"


class CollectionIndex(Struct, frozen=True):
    """An index: its fields with their order (1 or -1), and its options."""

    collection: str
    name: str
    keys: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, str], ...] = ()

    @property
    def does(self) -> tuple[str, tuple[tuple[str, Any], ...], tuple[tuple[str, str], ...]]:
        """The work of the index, whatever its name."""
        return self.collection, self.keys, self.options

    def hinders(self, other: "CollectionIndex") -> bool:
        """Whether the server refuses to make `other` beside this index."""
        return self.collection == other.collection and (self.name == other.name or self.keys == other.keys)

    def __str__(self) -> str:
        fields = ", ".join(field if order == 1 else f"{field} ({order})" for field, order in self.keys)
        kind = "".join(f"{name} " for name, value in self.options if value == "True")
        return f"{self.collection}: {kind}{fields}"


async def find_wanted(makers: Iterable[Callable[[AsyncDatabase[Document]], Aggregate]]) -> "_Recorder":
    """The collections and indexes that `setup` of these kinds of documents would make."""
    recorder = _Recorder()
    for make in makers:
        with suppress(_NotOfIndexes):
            await make(cast(Any, recorder)).setup()
    return recorder


def read_indexes(collection: str, information: Mapping[str, Mapping[str, Any]]) -> list[CollectionIndex]:
    """The indexes of a collection, except the one over `_id`."""
    return [
        _index(collection, name, described["key"], described)
        for name, described in information.items()
        if name != _OF_EVERY_COLLECTION
    ]


def _index(
    collection: str, name: str, keys: Iterable[tuple[str, Any]], described: Mapping[str, Any]
) -> CollectionIndex:
    # Some servers return the orders as floats.
    ordered = tuple((field, int(order) if isinstance(order, float) else order) for field, order in keys)
    chosen = ((option, described[option]) for option in _OPTIONS if described.get(option))
    # The driver reads a filter as a `SON`, whose text differs from that of its `dict`.
    options = tuple((option, str(value.to_dict() if isinstance(value, SON) else value)) for option, value in chosen)
    return CollectionIndex(collection, name, ordered, options)


class _NotOfIndexes(Exception):
    """A setup has named its indexes and goes on to change documents."""


class _Recorder:
    """Takes the place of a database, and records the collections and indexes asked of it."""

    def __init__(self) -> None:
        self.collections: dict[str, None] = {}
        self.indexes: list[CollectionIndex] = []
        self.models: dict[str, list[IndexModel]] = {}

    def __getitem__(self, name: str) -> "_RecordedCollection":
        return _RecordedCollection(self, name)

    def with_options(self, **_: object) -> Self:
        return self

    async def create_collection(self, name: str) -> None:
        self.collections[name] = None


class _RecordedCollection:
    def __init__(self, database: _Recorder, name: str) -> None:
        self.database = database
        self.name = name

    def with_options(self, **_: object) -> Self:
        return self

    async def create_index(self, keys: Sequence[tuple[str, Any]], **options: Any) -> None:
        model = IndexModel(keys, **options)
        described = model.document
        await self.database.create_collection(self.name)
        self.database.indexes.append(_index(self.name, described["name"], described["key"].items(), described))
        self.database.models.setdefault(self.name, []).append(model)

    def __getattr__(self, operation: str) -> Any:
        raise _NotOfIndexes(operation)
