"""Schedules: one document each, with the callback that all of its occurrences share.

A list of up to 10,000 instants is a field of its own, so that whoever fires reads a schedule without it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from shared.domain.instants import from_ms, ms
from shared.domain.schedules import Definition, Schedule, ScheduleState
from shared.store.documents import Document, duplicates, only_duplicates, translated

_definitions = msgspec.json.Decoder(Definition)
_WITHOUT_INSTANTS = {"instants": 0}


class Schedules:
    """The `schedules` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._schedules = database["schedules"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._schedules.create_index([("namespace", ASCENDING), ("key", ASCENDING)])
        await self._schedules.create_index([("namespace", ASCENDING), ("state", ASCENDING), ("key", ASCENDING)])
        await self._schedules.create_index([("materialised", ASCENDING), ("accepted_at", ASCENDING)])
        await self._schedules.create_index([("state", ASCENDING), ("last_due", ASCENDING)])
        await self._schedules.create_index([("state", ASCENDING), ("finished_at", ASCENDING)])

    async def add(self, schedules: Sequence[Schedule]) -> set[str]:
        """Insert those whose ids are free; the ids that were taken."""
        try:
            with translated():
                await self._schedules.insert_many([_document(each) for each in schedules], ordered=False)
        except BulkWriteError as error:
            if not only_duplicates(error):
                raise
            return {schedules[index].id for index in duplicates(error)}
        return set()

    async def get(self, schedule_id: str) -> Schedule | None:
        """The whole schedule."""
        with translated():
            return _maybe(await self._schedules.find_one({"_id": schedule_id}))

    async def many(self, schedule_ids: Sequence[str]) -> dict[str, Schedule]:
        """Those that are there, by id, without their instants. One query."""
        with translated():
            found = self._schedules.find({"_id": {"$in": list(schedule_ids)}}, _WITHOUT_INSTANTS)
            return {document["_id"]: _value(document) async for document in found}

    async def page(
        self, namespace: str, *, prefix: str = "", state: ScheduleState | None = None, after: str = "", limit: int
    ) -> list[Schedule]:
        """A caller's schedules by key, those behind the key `after`, without their instants."""
        query: dict[str, Any] = {"namespace": namespace}
        if state is not None:
            query["state"] = state.value
        # Behind every key that begins so: keys are ASCII.
        query["key"] = {"$gte" if after < prefix else "$gt": max(prefix, after), "$lt": f"{prefix}\x7f"}
        with translated():
            found = self._schedules.find(query, _WITHOUT_INSTANTS).sort("key", ASCENDING).limit(limit)
            return [_value(document) async for document in found]

    async def replace(self, schedule: Schedule, *, generation: str) -> bool:
        """Put this in the place of what has that generation; `False` when somebody else was faster. A pause stays."""
        change = _document(schedule)
        del change["_id"], change["created_at"], change["state"]
        state = {"$cond": [{"$eq": ["$state", ScheduleState.PAUSED.value]}, "$state", ScheduleState.ACTIVE.value]}
        literal = {field: {"$literal": value} for field, value in change.items()}
        with translated():
            result = await self._schedules.update_one(
                {"_id": schedule.id, "generation": generation}, [{"$set": literal | {"state": state}}]
            )
        return result.matched_count == 1

    async def materialised(self, schedules: Sequence[Schedule]) -> int:
        """Note that all their occurrences are there; of how many, since some may have another generation by now."""
        query = {
            "_id": {"$in": [each.id for each in schedules]},
            "generation": {"$in": [each.generation for each in schedules]},
        }
        with translated():
            return (await self._schedules.update_many(query, {"$set": {"materialised": True}})).matched_count

    async def move(self, schedule_id: str, *, to: ScheduleState, only: frozenset[ScheduleState]) -> Schedule | None:
        """Give the schedule this state if its present one is among `only`."""
        with translated():
            found = await self._schedules.find_one_and_update(
                {"_id": schedule_id, "state": {"$in": sorted(only)}},
                {"$set": {"state": to.value}},
                return_document=ReturnDocument.AFTER,
            )
        return _maybe(found)

    async def remove(self, schedule_id: str) -> Schedule | None:
        """Forget the schedule: what it was, `None` when there was none."""
        with translated():
            return _maybe(await self._schedules.find_one_and_delete({"_id": schedule_id}, _WITHOUT_INSTANTS))

    async def incomplete(self, *, before: datetime, limit: int) -> list[Schedule]:
        """Schedules whose occurrences are not all there, accepted before that moment."""
        query = {"materialised": False, "accepted_at": {"$lt": before}}
        with translated():
            return [_value(document) async for document in self._schedules.find(query).limit(limit)]

    async def end(self, schedules: Sequence[Schedule], *, last_due: datetime) -> None:
        """Note when the last instant of recurrences was."""
        query = {
            "_id": {"$in": [each.id for each in schedules]},
            "generation": {"$in": [each.generation for each in schedules]},
        }
        with translated():
            await self._schedules.update_many(query, {"$set": {"last_due": last_due}})

    async def past(self, *, before: datetime, limit: int) -> list[Schedule]:
        """Active ones whose last instant lies before the moment."""
        query = {"state": ScheduleState.ACTIVE.value, "last_due": {"$lt": before}}
        with translated():
            found = self._schedules.find(query, _WITHOUT_INSTANTS).sort("last_due", ASCENDING).limit(limit)
            return [_value(document) async for document in found]

    async def finish(self, schedules: Sequence[Schedule], *, at: datetime) -> None:
        """Nothing is left of these: active → finished, where the generation is still the same."""
        query = {
            "_id": {"$in": [each.id for each in schedules]},
            "generation": {"$in": [each.generation for each in schedules]},
            "state": ScheduleState.ACTIVE.value,
        }
        with translated():
            await self._schedules.update_many(
                query, {"$set": {"state": ScheduleState.FINISHED.value, "finished_at": at}}
            )

    async def forget_finished(self, *, before: datetime, limit: int) -> int:
        """Forget some that were finished before then; how many."""
        query = {"state": ScheduleState.FINISHED.value, "finished_at": {"$lt": before}}
        with translated():
            ids = [document["_id"] async for document in self._schedules.find(query, {"_id": 1}).limit(limit)]
            if not ids:
                return 0
            return (await self._schedules.delete_many({"_id": {"$in": ids}} | query)).deleted_count


def _document(schedule: Schedule) -> Document:
    definition = msgspec.structs.replace(schedule.definition, instants=())
    fields = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    return {
        "_id": fields.pop("id"),
        **fields,
        "state": schedule.state.value,
        "definition": msgspec.json.encode(definition).decode(),
        "instants": [ms(instant) for instant in schedule.definition.instants],
    }


def _value(document: Document) -> Schedule:
    fields = dict(document)
    definition = _definitions.decode(fields["definition"])
    if instants := fields.pop("instants", None):
        definition = msgspec.structs.replace(definition, instants=tuple(from_ms(instant) for instant in instants))
    state = ScheduleState(fields["state"])
    id = fields.pop("_id")
    return Schedule(**(fields | {"id": id, "state": state, "definition": definition}))


def _maybe(document: Document | None) -> Schedule | None:
    return None if document is None else _value(document)
