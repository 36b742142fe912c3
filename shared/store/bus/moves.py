"""Moving cursors, and writing many documents at once: the common part of cutting and settling."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

from shared.domain.bus.cursors import Cursor
from shared.store.bus.cursors import cursor_codec
from shared.store.documents import Document, of_same_place, translate_errors
from shared.store.transactions import LastingConflict

PATIENCE = 0.5
"""Seconds in which a group of writes is retried if another transaction has the same documents. A transaction takes
milliseconds, unless its process has died."""

Write = TypeVar("Write")


class CursorMoved(Exception):
    """Aborts a transaction: a cursor, or what it counts, has changed since it was read."""


async def move_cursors(
    cursors: AsyncCollection[Document], moves: Sequence[tuple[Cursor, Cursor]], session: AsyncClientSession
) -> None:
    """Replace unchanged cursors. Raises `CursorMoved`."""
    ids = [before.id for before, _ in moves]
    as_read = {"$eq": ["$v", of_same_place(ids, [before.v for before, _ in moves])]}
    after = of_same_place(ids, [cursor_codec.document(cursor) for _, cursor in moves])
    await change_all(cursors, ids, {"$replaceWith": {"$cond": [as_read, after, "$$ROOT"]}}, session)


async def change_all(
    collection: AsyncCollection[Document], ids: Sequence[str], change: Mapping[str, object], session: AsyncClientSession
) -> None:
    """Apply one update to all of these documents. Raises `CursorMoved` if it leaves one unchanged."""
    if not ids:
        return
    result = await collection.update_many({"_id": {"$in": list(ids)}}, [change], session=session)
    if result.modified_count < len(ids):
        raise CursorMoved


class CursorWrites(Struct, frozen=True):
    """The cursors for which everything was written, and those that an open transaction locks. For the others nothing
    was written: they have changed since they were read."""

    written: frozenset[str] = frozenset()
    locked: frozenset[str] = frozenset()

    def __or__(self, other: "CursorWrites") -> "CursorWrites":
        return CursorWrites(self.written | other.written, self.locked | other.locked)


class CursorWriter(Generic[Write]):
    """Writes in as few transactions as possible, one write for each cursor. `write_together` makes one transaction of
    several writes, with a patience in seconds, and returns whether all cursors were unchanged. A locked cursor does not
    delay the others."""

    def __init__(
        self,
        cursors: AsyncCollection[Document],
        cursor_of: Callable[[Write], Cursor],
        write_together: Callable[[Sequence[Write], float], Awaitable[bool]],
    ) -> None:
        self._cursors = cursors
        self._cursor_of = cursor_of
        self._write_together = write_together

    async def write(self, writes: Sequence[Write], patience: float) -> CursorWrites:
        """If the writes cannot go together, those whose cursor has moved are left out; if that fails too, each goes
        alone. If a conflict outlasts `patience`, the writes are halved until the conflicting ones are left out."""
        try:
            if await self._write_together(writes, patience):
                return CursorWrites(written=self._ids(writes))
        except LastingConflict:
            return await self._write_halves(writes)
        unmoved = await self._choose_unmoved(writes) if len(writes) > 1 else []
        return await self._write_all_or_each(unmoved) if unmoved else CursorWrites()

    async def _write_halves(self, writes: Sequence[Write]) -> CursorWrites:
        if len(writes) == 1:
            return CursorWrites(locked=self._ids(writes))
        middle = len(writes) // 2
        # Without patience: a conflicting write would delay the others.
        return await self.write(writes[:middle], 0) | await self.write(writes[middle:], 0)

    async def _write_all_or_each(self, writes: Sequence[Write]) -> CursorWrites:
        try:
            if await self._write_together(writes, 0):
                return CursorWrites(written=self._ids(writes))
        except LastingConflict:
            return await self._write_halves(writes)
        outcome = CursorWrites()
        for write in writes:
            outcome |= await self.write([write], 0)
        return outcome

    async def _choose_unmoved(self, writes: Sequence[Write]) -> list[Write]:
        ids = [self._cursor_of(write).id for write in writes]
        with translate_errors():
            found = await self._cursors.find({"_id": {"$in": ids}}, {"v": 1}, batch_size=len(ids) + 1).to_list()
        versions = {document["_id"]: document["v"] for document in found}
        return [write for write in writes if versions.get(self._cursor_of(write).id) == self._cursor_of(write).v]

    def _ids(self, writes: Sequence[Write]) -> frozenset[str]:
        return frozenset(self._cursor_of(write).id for write in writes)
