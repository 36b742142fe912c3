"""The registry: a version that every change of subscriptions raises, in the transaction of that change.

The fan-out reads it in the transaction of its flush. If the version differs from that of the fold, nothing is written.
So every flush that begins after the answer to a change uses that change, even while the primary changes, because a
flush counts only after a majority has it.
"""

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.documents import Document, translate_errors

SUBSCRIPTIONS = "bus_subscriptions"
"""The collection of the registry's document."""

_REGISTRY = {"_id": "registry"}


async def make_registry(database: AsyncDatabase[Document]) -> None:
    """Make the document, idempotently."""
    await database[SUBSCRIPTIONS].update_one(_REGISTRY, {"$setOnInsert": {"version": 0, "forgotten": 0}}, upsert=True)


async def raise_version(database: AsyncDatabase[Document], session: AsyncClientSession) -> int:
    """Raise the version in this transaction; returns the new one."""
    document = await database[SUBSCRIPTIONS].find_one_and_update(
        _REGISTRY, {"$inc": {"version": 1}}, return_document=True, session=session
    )
    assert document is not None, "`setup` makes the registry"
    version: int = document["version"]
    return version


async def note_forgotten(database: AsyncDatabase[Document], version: int, session: AsyncClientSession) -> None:
    """Record that tombstones are gone: a reader below this version reads everything anew."""
    await database[SUBSCRIPTIONS].update_one(_REGISTRY, {"$set": {"forgotten": version}}, session=session)


async def read_registry(
    database: AsyncDatabase[Document], session: AsyncClientSession | None = None
) -> tuple[int, int]:
    """The version, and the version from which on all tombstones are there."""
    with translate_errors():
        document = await database[SUBSCRIPTIONS].find_one(_REGISTRY, session=session)
    return (0, 0) if document is None else (document["version"], document["forgotten"])
