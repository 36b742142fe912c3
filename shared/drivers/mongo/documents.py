"""Values as documents, and a driver's errors as Carillon's.

A value's `id` is the document's `_id`. JSON of users is stored as JSON text, because BSON would change or refuse a key
with a dot or a dollar, an integer of 70 digits or a NUL.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Generic, Protocol, TypeVar

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import (
    BulkWriteError,
    CollectionInvalid,
    ConnectionFailure,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from shared.core.errors import Conflict, Unavailable, Unserved
from shared.core.instants import ns

Document = dict[str, Any]

PAGE_BYTES = 8_000_000
_FORGOTTEN_AT_ONCE = 1_000
BATCH = 8
"""Documents of a megabyte or more in a reply: a reply has at most 48 MB."""

BSON_TYPES = (datetime, bytes)
"""The types of BSON that JSON lacks."""

_AWAY = (ConnectionFailure, NetworkTimeout, NotPrimaryError, ExecutionTimeout, WTimeoutError)
_DUPLICATE_KEY = 11000
_NAMESPACE_EXISTS = 48
_NO_RIGHT, _NO_LOGIN = 13, 18
DENIALS: Mapping[int | None, str] = {
    _NO_RIGHT: "MongoDB does not allow it",
    _NO_LOGIN: "MongoDB does not accept the user or the password",
}
_TRANSIENT = ("TransientTransactionError", "RetryableWriteError", "SystemOverloadedError")
# Some errors that deserve a retry have no label.
_AWAY_CODES = frozenset(
    {6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11601, 11602, 13435, 13436}  # it stops, steps down or interrupts
    | {43, 175, 237}  # a cursor or a query plan is gone
    | {24, 112, 239, 246, 251, 290, 388}  # a lock, a conflict, a snapshot or a transaction
    | {365, 402, 449, 462}  # the server is overloaded
)


class Aggregate:
    """The documents of one kind. Its methods raise Carillon's errors instead of the driver's; those in a caller's
    transaction do not, because the driver has to see their errors."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if iscoroutinefunction(method) and "AsyncClientSession" not in str(method.__annotations__):
                setattr(cls, name, _translate(method))

    async def setup(self) -> None:
        """Make the indexes, idempotently."""


class Identified(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Identified)
V = TypeVar("V")


class Codec(Generic[T]):
    """Turns values of one type into documents and back. `json` names the fields that are stored as JSON text."""

    def __init__(self, kind: type[T], *, json: tuple[str, ...] = (), derived: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.json = json
        self.derived = derived

    def document(self, value: T) -> Document:
        """The document of a value. `derived` properties are stored for queries and ignored when read."""
        document: Document = msgspec.to_builtins(value, builtin_types=BSON_TYPES)
        for field in self.json:
            document[field] = json_text(document[field])
        for name in self.derived:
            document[name] = getattr(value, name)
        document.pop("id", None)
        return {"_id": value.id} | document

    def value(self, document: Mapping[str, Any]) -> T:
        fields = dict(document)
        fields["id"] = fields.pop("_id", None)
        for field in self.json:
            if field in fields:
                fields[field] = msgspec.json.decode(fields[field])
        return msgspec.convert(fields, self.kind, builtin_types=BSON_TYPES)

    def maybe(self, document: Mapping[str, Any] | None) -> T | None:
        return None if document is None else self.value(document)

    async def values(self, documents: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[T]:
        with translate_errors():
            async for document in documents:
                yield self.value(document)


Place = tuple[datetime, str]
"""The place of a value in an order by time, then id."""


class Page(list[V]):
    more: bool = False


async def read_page(
    collection: AsyncCollection[Document],
    query: Document,
    value: Callable[[Document], V],
    *,
    order: Sequence[str],
    direction: int = ASCENDING,
    limit: int,
    without: Document | None = None,
    batch: int = BATCH,
    hint: Sequence[tuple[str, int]] | None = None,
) -> Page[V]:
    """The first values that match, in the order of the fields `order`: at most `limit` and at most `PAGE_BYTES`
    together, but always one. `without` is a projection. `batch` documents of any size must fit into a reply. `hint`
    names the index, if the database would sort with another."""
    options = collection.codec_options
    raw = collection.with_options(options.with_options(document_class=RawBSONDocument))
    sort = [(field, direction) for field in order]
    found = raw.find(query, without, batch_size=batch, hint=hint).sort(sort).limit(limit + 1)
    page: Page[V] = Page()
    size = 0
    with translate_errors():
        async with found:
            async for document in found:
                size += len(document.raw)
                if len(page) == limit or (page and size > PAGE_BYTES):
                    page.more = True
                    break
                page.append(value(bson.decode(document.raw, options)))
    return page


async def read_newest(
    read: Callable[[Document, int], Awaitable[Page[V]]], query: Document, field: str, before: Place | None, limit: int
) -> Page[V]:
    """The newest values that match, by the time in `field` and by id, behind the place `before`. `read` returns them in
    that order. Each query has one range, which an index serves."""
    if before is None:
        return await read(query, limit)
    at, id = before
    page = await read(query | {field: at, "_id": {"$lt": id}}, limit)
    if not page.more:
        older = await read(query | {field: {"$lt": at}}, limit - len(page))
        page.extend(older)
        page.more = older.more
    return page


def json_text(value: object) -> str:
    """A value as it is stored in a field of JSON text."""
    return msgspec.json.encode(value).decode()


def is_duplicate(error: BulkWriteError) -> bool:
    return _DUPLICATE_KEY in _codes(error)


def of_same_place(ids: Sequence[str], values: Sequence[Any]) -> Document:
    """The expression for the value at the position of the document's `_id` among `ids`: one update writes a different
    value to each document. The values are literals, because texts of users must not become expressions."""
    return {"$arrayElemAt": [{"$literal": list(values)}, {"$indexOfArray": [{"$literal": list(ids)}, "$_id"]}]}


async def make(collection: AsyncCollection[Document]) -> None:
    """Make a collection without indexes, unless it exists. Some servers cannot delete from a missing collection or make
    one inside a transaction."""
    try:
        await collection.database.create_collection(collection.name)
    except CollectionInvalid:
        return
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise


def time_of(hello: Mapping[str, Any]) -> datetime:
    """The database's clock in an answer to `hello`, to the millisecond."""
    # A command's reply is decoded with the driver's own defaults: naive, in UTC.
    measured: datetime = hello["localTime"]
    return measured.replace(tzinfo=UTC)


async def insert_new(collection: AsyncCollection[Document], documents: Sequence[Document]) -> set[int]:
    if not documents:
        return set()
    try:
        with translate_errors():
            await collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        return {failure["index"] for failure in error.details["writeErrors"]}
    return set()


async def insert_once(collection: AsyncCollection[Document], document: Document) -> Document:
    """Insert the document unless its key is taken; returns the stored one. Raises `Unavailable` if another document had
    the key, but is gone or unreadable."""
    try:
        with translate_errors():
            await collection.insert_one(document)
    except DuplicateKeyError:
        with translate_errors():
            found = await collection.find_one({"_id": document["_id"]})
        if found is None:
            raise Unavailable("MongoDB: the document exists but cannot be read yet; try again") from None
        return found
    return document


async def with_ids(collection: AsyncCollection[Document], codec: Codec[T], ids: Sequence[str]) -> dict[str, T]:
    found = codec.values(collection.find({"_id": {"$in": list(ids)}}, batch_size=BATCH))
    return {value.id: value async for value in found}


async def replace_unchanged(
    collection: AsyncCollection[Document], old: Document, new: Document, *, duplicate: Callable[[], Conflict]
) -> bool:
    with translate_errors(duplicate=duplicate):
        result = await collection.replace_one({"_id": old["_id"], "updated_at": old["updated_at"]}, new)
    return result.matched_count == 1


async def free_keys(collection: AsyncCollection[Document], before: datetime, limit: int) -> int:
    """Free the idempotency keys of up to `limit` documents made before `before`; returns the number of documents."""
    query = {"idempotency.created_at": {"$lt": ns(before)}}
    with translate_errors():
        ids = [document["_id"] async for document in collection.find(query, {"_id": 1}).limit(limit)]
        if not ids:
            return 0
        result = await collection.update_many({"_id": {"$in": ids}} | query, {"$unset": {"idempotency": ""}})
    return result.modified_count


async def forget_some(collection: AsyncCollection[Document], query: Document, limit: int) -> int:
    """Delete up to `limit` documents that match; returns the number. The query has one range, so that an index serves
    it."""
    with translate_errors():
        found = await collection.find(query, {"_id": 1}).limit(limit).to_list()
        if not found:
            return 0
        chosen = {"_id": {**query.get("_id", {}), "$in": [document["_id"] for document in found]}}
        return (await collection.delete_many(query | chosen)).deleted_count


async def forget_all(collection: AsyncCollection[Document], query: Document) -> None:
    while await forget_some(collection, query, _FORGOTTEN_AT_ONCE) == _FORGOTTEN_AT_ONCE:
        pass


async def read_values(collection: AsyncCollection[Document], field: str, *, after: str, limit: int) -> list[str]:
    """The next `limit` values of a field after `after`, in order. Each value costs one look into an index, however many
    documents have it."""
    found: list[str] = []
    while len(found) < limit:
        behind = {field: {"$gt": found[-1] if found else after}}
        with translate_errors():
            following = await collection.find_one(behind, {field: 1}, sort=[(field, ASCENDING)])
        if following is None:
            break
        found.append(following[field])
    return found


@contextmanager
def translate_errors(*, duplicate: Callable[[], Conflict] | None = None) -> Iterator[None]:
    """Raise Carillon's errors instead of the driver's.

    Raises:
        Conflict: `duplicate()`, if a unique value exists already.
        Unavailable: the server is away, stops, is too slow or denies access. The write may have happened.
        Unserved: any other failure, except duplicate keys: callers of bulk writes handle those.
    """
    try:
        yield
    except DuplicateKeyError as error:
        if duplicate is None:
            raise
        raise duplicate() from error
    except ServerSelectionTimeoutError as error:
        # A page of topology follows the addresses and the reason.
        reason = re.split(r",? Timeout: | \(configured ", str(error), maxsplit=1)[0]
        raise Unavailable(f"MongoDB cannot be reached: {reason}") from error
    except _AWAY as error:
        raise Unavailable(f"MongoDB: {type(error).__name__}") from error
    except OperationFailure as error:
        if error.code in DENIALS:
            raise Unavailable(DENIALS[error.code]) from error
        # A bulk write has a code, and its parts have theirs.
        away = _AWAY_CODES & (_codes(error) if isinstance(error, BulkWriteError) else {error.code})
        if away or error.timeout or any(map(error.has_error_label, _TRANSIENT)):
            raise Unavailable(f"MongoDB: {', '.join(map(str, sorted(away))) or error.code}") from error
        if isinstance(error, BulkWriteError) and _codes(error) == {_DUPLICATE_KEY}:
            raise
        # The message may contain what users have stored.
        name = (error.details or {}).get("codeName", "")
        raise Unserved(f"MongoDB refuses a command of Carillon's ({name or 'code'} {error.code})") from error
    except PyMongoError as error:
        if error.timeout or error.has_error_label("RetryableWriteError"):
            raise Unavailable(f"MongoDB: {type(error).__name__}") from error
        raise Unserved(f"MongoDB: {type(error).__name__}") from error


def _translate(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(*args: Any, **options: Any) -> Any:
        with translate_errors():
            return await method(*args, **options)

    return call


def _codes(error: BulkWriteError) -> set[int]:
    details = error.details
    return {failure["code"] for part in ("writeErrors", "writeConcernErrors") for failure in details.get(part, ())}
