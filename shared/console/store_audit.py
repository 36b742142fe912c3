"""The audit: one document for each act, with its actor. Only the end of the act changes it, and only age deletes it."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.console.rules.audit import ActOutcome, AuditRecord, Fields
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    json_text,
    read_page,
)

_NOTHING: Fields = {}
_codec = Codec(AuditRecord, json=("before", "after"))
_BATCH = 200  # 36 kilobytes each at most


class AuditLog(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._audit = database["audit"]

    async def setup(self) -> None:
        for field in ("act", "on.id", "on.app_id", "who.namespace"):
            await self._audit.create_index([(field, ASCENDING), ("_id", ASCENDING)])
        await self._audit.create_index([("at", ASCENDING)])

    async def begin(self, record: AuditRecord) -> None:
        await self._audit.insert_one(_codec.document(record))

    async def add_missing(self, records: Sequence[AuditRecord]) -> list[AuditRecord]:
        there = await insert_new(self._audit, [_codec.document(record) for record in records])
        return [record for position, record in enumerate(records) if position not in there]

    async def describe(self, record_id: str, *, reason: str, count: int, app_id: str, namespace: str) -> None:
        """Record the reason, the number of things and their owner, which only the body of the request contains."""
        told: Document = {"reason": reason, "count": count, "on.app_id": app_id, "on.namespace": namespace}
        await self._audit.update_one({"_id": record_id}, {"$set": told})

    async def count(self, record_id: str, count: int) -> None:
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
        """Record the outcome, the id of the made thing (`made`), the name of the thing, and the changed fields."""
        fields: Document = {"outcome": outcome.value, "status": status}
        if before or after:
            fields |= {"before": json_text(before), "after": json_text(after)}
        if made:
            fields["on.id"] = made
        if name:
            fields["on.name"] = name
        if made and record.on.kind == "app":
            fields["on.app_id"] = made
        await self._audit.update_one({"_id": record.id}, {"$set": fields})

    async def page(
        self, *, act: str = "", on: str = "", by: str = "", app_id: str = "", before: str = "", limit: int
    ) -> Page[AuditRecord]:
        """The records before the id `before`, the newest first: of this act, on the thing with this id, by this
        namespace, of this app."""
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
        return await forget_some(self._audit, {"at": {"$lt": before}}, limit)
