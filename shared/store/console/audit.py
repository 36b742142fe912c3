"""The acts, and who did them: one document an act. Nothing changes one but its end, and only time takes it away."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.audit import ActOutcome, AuditRecord, Fields
from shared.store.documents import (
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    json_text,
    read_page,
    translate_errors,
)

_NOTHING: Fields = {}
_codec = Codec(AuditRecord, json=("before", "after"))
_BATCH = 200  # of 36 kilobytes each at most


class AuditLog:
    """The `audit` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._audit = database["audit"]

    async def setup(self) -> None:
        """Make the indexes."""
        for field in ("act", "on.id", "on.app_id", "who.namespace"):
            await self._audit.create_index([(field, ASCENDING), ("_id", ASCENDING)])
        await self._audit.create_index([("at", ASCENDING)])

    async def begin(self, record: AuditRecord) -> None:
        """Write an act down that is about to be done."""
        with translate_errors():
            await self._audit.insert_one(_codec.document(record))

    async def add_missing(self, records: Sequence[AuditRecord]) -> list[AuditRecord]:
        """Write down those that are not there, whole as they are; returns these."""
        there = await insert_new(self._audit, [_codec.document(record) for record in records])
        return [record for position, record in enumerate(records) if position not in there]

    async def describe(self, record_id: str, *, reason: str, count: int, app_id: str, namespace: str) -> None:
        """Note what only the body of a request told: why, how many things it is about, and whose these are."""
        told: Document = {"reason": reason, "count": count, "on.app_id": app_id, "on.namespace": namespace}
        with translate_errors():
            await self._audit.update_one({"_id": record_id}, {"$set": told})

    async def count(self, record_id: str, count: int) -> None:
        """Note how many things were acted on in the end."""
        with translate_errors():
            await self._audit.update_one({"_id": record_id}, {"$set": {"count": count}})

    async def end(
        self,
        record: AuditRecord,
        *,
        outcome: ActOutcome,
        status: int,
        made: str = "",
        name: str = "",
        before: Fields = _NOTHING,
        after: Fields = _NOTHING,
    ) -> None:
        """Note how it ended, the id of what it made, the name of what it was done to, and what it changed."""
        fields: Document = {"outcome": outcome.value, "status": status}
        if before or after:
            fields |= {"before": json_text(before), "after": json_text(after)}
        if made:
            fields["on.id"] = made
        if name:
            fields["on.name"] = name
        if made and record.on.kind == "app":
            fields["on.app_id"] = made
        with translate_errors():
            await self._audit.update_one({"_id": record.id}, {"$set": fields})

    async def page(
        self, *, act: str = "", on: str = "", by: str = "", app_id: str = "", before: str = "", limit: int
    ) -> Page[AuditRecord]:
        """The records of this act, on the thing with this id, by this namespace, of this app, the newest first: those
        before this id."""
        wanted = {"act": act, "on.id": on, "who.namespace": by, "on.app_id": app_id}
        query: Document = {field: value for field, value in wanted.items() if value}
        return await read_page(
            self._audit,
            query | ({"_id": {"$lt": before}} if before else {}),
            _codec.value,
            order=("_id",),
            direction=DESCENDING,
            limit=limit,
            batch=_BATCH,
        )

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some of what was done before then; returns how many."""
        return await forget_some(self._audit, {"at": {"$lt": before}}, limit)
