"""Schedules, one document each with the callback that all of its occurrences share; and their calendars.

A list of up to 10,000 instants is a field of its own, so that firing reads a schedule without it.

A schedule with labels has them outside of its definition too, each after its namespace, and its key once more: a
sparse index over both finds labels in the order of keys, and costs schedules without labels nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.clock.rules.calendars import Calendar
from shared.clock.rules.schedules import (
    PENDING,
    TRANSITIONS,
    Backfill,
    Definition,
    Schedule,
    ScheduleState,
    calendar_ids,
    schedule_id,
)
from shared.core.documents import sources
from shared.core.instants import EPOCH, from_ms, ms
from shared.drivers.mongo.documents import Aggregate, Codec, Document, Page, insert_new, read_page

_definitions = msgspec.json.Decoder(Definition)
_WITHOUT_INSTANTS = {"instants": 0}
_ANCHORED = "anchored"  # absent without an anchor
_ENDING = {"state": 1, "generation": 1, _ANCHORED: 1}
_BATCH = 64  # a payload of 256 KiB takes up to 512 as a text in JSON, and 10,000 instants take 140
_FIELDS = frozenset(Schedule.__struct_fields__)
_OPTIONAL = ("sweep_at", "finished_at")  # absent rather than null: their indexes are sparse
_LAST = ("last_job_id", "last_job_at", "last_moves")  # absent at first; a replacement keeps them
_ALIGNING = "aligning"  # its occurrences are about to follow its anchor
_BACKFILLS = "backfills"
_EXCLUDES = "excludes"  # the ids of its calendars
_LABELS, _LABELLED_KEY = "labels", "labelled_key"


class Ending(Struct, frozen=True):
    state: ScheduleState
    generation: str
    anchored: bool = False


class Schedules(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._schedules = database["schedules"]

    async def setup(self) -> None:
        await self._schedules.create_index([("namespace", ASCENDING), ("state", ASCENDING), ("key", ASCENDING)])
        await self._schedules.create_index([("sweep_at", ASCENDING)], sparse=True)
        await self._schedules.create_index([("finished_at", ASCENDING)], sparse=True)
        await self._schedules.create_index([(_ALIGNING, ASCENDING)], sparse=True)
        await self._schedules.create_index([(_EXCLUDES, ASCENDING), ("_id", ASCENDING)], sparse=True)
        await self._schedules.create_index([(_LABELS, ASCENDING), (_LABELLED_KEY, ASCENDING)], sparse=True)

    async def add(self, schedules: Sequence[Schedule]) -> set[str]:
        """Insert the schedules whose ids are free; returns the ids that are taken."""
        places = await insert_new(self._schedules, [_document(schedule) for schedule in schedules])
        taken = {schedules[place].id: schedules[place].generation for place in places}
        return taken.keys() - await self._find_own(taken)

    async def get(self, id: str) -> Schedule | None:
        return _maybe(await self._schedules.find_one({"_id": id}))

    async def many(self, ids: Sequence[str], *, whole: bool = False, small: bool = False) -> dict[str, Schedule]:
        """The existing schedules by id, without their instants unless `whole`. One query; one round trip if they are
        `small`: the caller then knows that all fit into a reply."""
        query = {"_id": {"$in": list(ids)}}
        found = await self._schedules.find(
            query, None if whole else _WITHOUT_INSTANTS, batch_size=len(ids) + 1 if small else _BATCH
        ).to_list()
        return {document["_id"]: _value(document) for document in found}

    async def find_active(self, ids: Sequence[str]) -> dict[str, str]:
        query = {"_id": {"$in": list(ids)}, "state": ScheduleState.ACTIVE.value}
        found = await self._schedules.find(query, {"generation": 1}, batch_size=len(ids) + 1).to_list()
        return {document["_id"]: document["generation"] for document in found}

    async def page(
        self,
        namespace: str,
        *,
        prefix: str = "",
        state: ScheduleState | None = None,
        labels: Sequence[str] = (),
        after: str = "",
        limit: int,
    ) -> Page[Schedule]:
        """A namespace's schedules by key, after the key `after`, that have all these labels (`name:value`); without
        their instants. The namespace `""` means all, by id, after the id `after`."""
        field, query = _range_of(namespace, prefix, state, labels, after)
        return await read_page(
            self._schedules, query, _value, order=(field,), limit=limit, without=_WITHOUT_INSTANTS, batch=_BATCH
        )

    async def count(
        self,
        namespace: str,
        *,
        prefix: str = "",
        state: ScheduleState | None = None,
        labels: Sequence[str] = (),
        most: int,
    ) -> int:
        # All schedules of a namespace are one value of its index.
        is_whole = not (prefix or state or labels)
        query = {"namespace": namespace} if is_whole else _range_of(namespace, prefix, state, labels)[1]
        return await self._schedules.count_documents(query, limit=most)

    async def count_pending(self, namespace: str) -> int:
        query = {"namespace": namespace, "state": {"$in": sorted(PENDING)}}
        return await self._schedules.count_documents(query)

    async def replace(self, schedule: Schedule, *, generation: str) -> bool:
        # With another generation, backfills begin anew.
        changed = await self._change(schedule, {"generation": generation}, {}, kept=_LAST)
        return changed or bool(await self._find_own({schedule.id: schedule.generation}))

    async def amend(self, schedule: Schedule, *, before: Schedule, keeps_maker: bool) -> bool:
        """Put the content in place of that of `before`, and record that its occurrences are to be aligned."""
        query: Document = {name: getattr(before, name) for name in ("generation", "digest", "accepted_at")}
        query |= {"state": {"$in": sorted(PENDING)}}
        more: Document = {_ALIGNING: True} | ({"last_moves": schedule.last_moves} if schedule.last_moves else {})
        # Another request may begin a backfill meanwhile, or become the maker.
        kept = (*_LAST, _BACKFILLS, *(["made_by"] if keeps_maker else []))
        return await self._change(schedule, query, more, kept=kept)

    async def mark_changed(self, schedules: Sequence[Schedule]) -> None:
        """Have the schedulers align the occurrences of those whose content was changed since they were read."""
        await self._schedules.bulk_write(
            [
                UpdateOne(
                    {"_id": each.id, "generation": each.generation, "digest": {"$ne": each.digest}},
                    {"$set": {_ALIGNING: True}},
                )
                for each in schedules
            ],
            ordered=False,
        )

    async def find_aligning(self, *, limit: int) -> list[Schedule]:
        found = self._schedules.find({_ALIGNING: True}, _WITHOUT_INSTANTS, batch_size=limit)
        return [_value(document) async for document in found.limit(limit)]

    async def end_aligning(self, schedule: Schedule) -> None:
        query = {"_id": schedule.id, "digest": schedule.digest}
        await self._schedules.update_one(query, {"$unset": {_ALIGNING: ""}})

    async def _change(self, schedule: Schedule, query: Document, more: Document, *, kept: tuple[str, ...]) -> bool:
        """Replace the document that matches, but for these fields and those of its identity."""
        kept = ("_id", "created_at", "state", *kept)
        change = {name: value for name, value in _document(schedule).items() if name not in kept} | more
        state = {"$cond": [{"$eq": ["$state", ScheduleState.PAUSED.value]}, "$state", ScheduleState.ACTIVE.value]}
        literal = {field: {"$literal": value} for field, value in change.items()}
        absent = (*_OPTIONAL, _ALIGNING, _ANCHORED, _BACKFILLS, _EXCLUDES, _LABELS, _LABELLED_KEY)
        unset = [field for field in absent if field not in change and field not in kept]
        result = await self._schedules.update_one(
            {"_id": schedule.id} | query,
            [{"$set": literal | {"state": state}}, {"$unset": unset}],
        )
        return result.matched_count == 1

    async def set_state(self, id: str, *, to: ScheduleState) -> Schedule | None:
        """Give the schedule this state; `None` if its present state does not allow that. A schedule that has the state
        stays as it is."""
        query = {"_id": id, "state": {"$in": sorted(sources(TRANSITIONS, to) | {to})}}
        found = await self._schedules.find_one_and_update(
            query, {"$set": {"state": to.value}}, return_document=ReturnDocument.AFTER
        )
        return _maybe(found)

    async def note_job(self, schedule: Schedule, job_id: str, at: datetime, *, alone: bool) -> bool:
        """Record that the schedule is about to start this job; `False` if it was replaced, or if jobs start `alone` and
        it has started another one since it was read."""
        query: Document = {"_id": schedule.id, "generation": schedule.generation}
        if alone:
            query["last_job_id"] = {"$in": [schedule.last_job_id or None, job_id]}
        change = {"$set": {"last_job_id": job_id, "last_job_at": at}}
        return (await self._schedules.update_one(query, change)).matched_count == 1

    async def page_excluding(self, calendar_id: str, *, after: str = "", limit: int) -> list[Schedule]:
        """The schedules that exclude this calendar, by id after the id `after`; without their instants."""
        query = {_EXCLUDES: calendar_id, "_id": {"$gt": after}}
        found = self._schedules.find(query, _WITHOUT_INSTANTS, batch_size=_BATCH).sort("_id", ASCENDING).limit(limit)
        return [_value(document) async for document in found]

    async def note_backfill(self, schedule: Schedule, backfill: Backfill) -> bool:
        """Record the backfill, or that it was taken over; `False` if the schedule was replaced, or has other backfills
        since it was read."""
        before = [_plain_backfill(each) for each in schedule.backfills]
        after = [_plain_backfill(each) for each in schedule.backfills if each.at != backfill.at]
        query = {"_id": schedule.id, "generation": schedule.generation, _BACKFILLS: before or None}
        change = {"$set": {_BACKFILLS: [*after, _plain_backfill(backfill)]}}
        return (await self._schedules.update_one(query, change)).matched_count == 1

    async def end_backfill(self, schedule: Schedule, backfill: Backfill) -> None:
        query = {"_id": schedule.id, f"{_BACKFILLS}.at": backfill.at}
        await self._schedules.update_one(query, {"$set": {f"{_BACKFILLS}.$.done": True}})

    async def adopt(self, schedule: Schedule, made_by: str) -> None:
        """Record that this token wants the schedule's content too, unless another request has changed the content."""
        query = {"_id": schedule.id, "generation": schedule.generation, "digest": schedule.digest}
        await self._schedules.update_one(query, {"$set": {"made_by": made_by}})

    async def pause(self, ids: Sequence[str]) -> int:
        query = {"_id": {"$in": list(ids)}} | _may_become(ScheduleState.PAUSED)
        change = {"$set": {"state": ScheduleState.PAUSED.value}}
        return (await self._schedules.update_many(query, change)).modified_count

    async def remove(self, id: str) -> Schedule | None:
        return _maybe(await self._schedules.find_one_and_delete({"_id": id}, _WITHOUT_INSTANTS))

    async def to_sweep(self, *, before: datetime, limit: int) -> dict[str, Ending]:
        """Up to `limit` schedules that the sweep has to look at before `before`, by id."""
        cursor = self._schedules.find({"sweep_at": {"$lt": before}}, _ENDING, batch_size=limit + 1)
        found = await cursor.limit(limit).to_list()
        return {
            document["_id"]: Ending(
                ScheduleState(document["state"]), document["generation"], document.get(_ANCHORED, False)
            )
            for document in found
        }

    async def sweep_again(self, ids: Sequence[str], *, before: datetime, at: datetime) -> None:
        await self._update_swept(ids, {}, before, {"$set": {"sweep_at": at}})

    async def finish(self, ids: Sequence[str], *, before: datetime, at: datetime) -> None:
        """Finish schedules of `to_sweep` that have nothing left: active → finished."""
        change = {"$set": {"state": ScheduleState.FINISHED.value, "finished_at": at}, "$unset": {"sweep_at": ""}}
        await self._update_swept(ids, _may_become(ScheduleState.FINISHED), before, change)

    async def end(self, schedules: Sequence[Schedule], *, at: datetime) -> None:
        """Have the sweep look at ended recurrences at `at`, if the generation is unchanged."""
        updates = [
            UpdateOne({"_id": schedule.id, "generation": schedule.generation}, {"$set": {"sweep_at": at}})
            for schedule in schedules
        ]
        await self._schedules.bulk_write(updates, ordered=False)

    async def find_finished(self, *, before: datetime, limit: int) -> list[Schedule]:
        found = self._schedules.find({"finished_at": {"$lt": before}}, _WITHOUT_INSTANTS, batch_size=limit)
        return [_value(document) async for document in found.limit(limit)]

    async def keep_finished(self, ids: Sequence[str], *, at: datetime) -> int:
        if not ids:
            return 0
        query = {"_id": {"$in": list(ids)}, "state": ScheduleState.FINISHED.value}
        return (await self._schedules.update_many(query, {"$set": {"finished_at": at}})).matched_count

    async def forget_finished(self, ids: Sequence[str], *, before: datetime) -> int:
        if not ids:
            return 0
        result = await self._schedules.delete_many({"_id": {"$in": list(ids)}, "finished_at": {"$lt": before}})
        return result.deleted_count

    async def _find_own(self, generations: Mapping[str, str]) -> set[str]:
        """The ids stored with the generation of this process. The driver repeats a write whose reply was lost. Some
        servers do not remember the first write, so the repeated one conflicts with it."""
        if not generations:
            return set()
        found = await self._schedules.find(
            {"_id": {"$in": list(generations)}}, {"generation": 1}, batch_size=len(generations) + 1
        ).to_list()
        return {document["_id"] for document in found if document["generation"] == generations[document["_id"]]}

    async def _update_swept(self, ids: Sequence[str], query: Document, before: datetime, change: Document) -> None:
        # A schedule that was replaced meanwhile has an instant ahead, or no end.
        query = {"_id": {"$in": list(ids)}} | query | {"sweep_at": {"$lt": before}}
        if ids:
            await self._schedules.update_many(query, change)


def _range_of(
    namespace: str, prefix: str, state: ScheduleState | None, labels: Sequence[str], after: str = ""
) -> tuple[str, Document]:
    """The query for a namespace's keys with this prefix after `after`, and the field that orders them."""
    if not (namespace or prefix or state or labels):
        return "_id", {"_id": {"$gt": after}}
    field, lead = "_id", schedule_id(namespace, "")
    equal: Document = {}
    if labels:
        first, *others = [_findable(namespace, label) for label in labels]
        field, lead, equal = _LABELLED_KEY, "", {_LABELS: first}
        if others:
            equal["$and"] = [{_LABELS: label} for label in others]
    elif state is not None:
        field, lead, equal = "key", "", {"namespace": namespace}
    if state is not None:
        equal["state"] = state.value
    # After every key with this prefix: keys are ASCII.
    bounds = {"$gte" if after < prefix else "$gt": lead + max(prefix, after), "$lt": f"{lead}{prefix}\x7f"}
    return field, equal | {field: bounds}


def _findable(namespace: str, label: str) -> str:
    return f"{namespace}\0{label}"


def _may_become(to: ScheduleState) -> Document:
    return {"state": {"$in": sorted(sources(TRANSITIONS, to))}}


def _document(schedule: Schedule) -> Document:
    definition = msgspec.structs.replace(schedule.definition, instants=())
    document: Document = {
        "_id": schedule.id,
        "namespace": schedule.namespace,
        "key": schedule.key,
        "generation": schedule.generation,
        "digest": schedule.digest,
        "definition": msgspec.json.encode(definition).decode(),
        "state": schedule.state.value,
        "created_at": schedule.created_at,
        "accepted_at": schedule.accepted_at,
        **_present(schedule, _OPTIONAL),
        "made_by": schedule.made_by,
        **_present(schedule, _LAST),
    }
    if schedule.backfills:
        document[_BACKFILLS] = [_plain_backfill(each) for each in schedule.backfills]
    if definition.exclude:
        document[_EXCLUDES] = calendar_ids(schedule.namespace, definition)
    if definition.anchor:
        document[_ANCHORED] = True
    if definition.labels:
        labels = [_findable(schedule.namespace, f"{name}:{value}") for name, value in sorted(definition.labels.items())]
        document |= {_LABELS: labels, _LABELLED_KEY: schedule.key}
    document["instants"] = [ms(instant) for instant in schedule.definition.instants]
    return document


def _present(schedule: Schedule, names: Sequence[str]) -> Document:
    return {name: value for name in names if (value := getattr(schedule, name))}


def _value(document: Document) -> Schedule:
    fields = {name: value for name, value in document.items() if name in _FIELDS}
    definition = _definitions.decode(fields["definition"])
    if instants := document.get("instants"):
        definition = msgspec.structs.replace(definition, instants=tuple(from_ms(instant) for instant in instants))
    state = ScheduleState(fields["state"])
    if backfills := fields.get(_BACKFILLS):
        fields[_BACKFILLS] = tuple(Backfill(**each) for each in backfills)
    if last_moves := fields.get("last_moves"):
        fields["last_moves"] = tuple(last_moves)
    return Schedule(**(fields | {"id": document["_id"], "state": state, "definition": definition}))


def _plain_backfill(backfill: Backfill) -> Document:
    return {name: value for name, value in msgspec.structs.asdict(backfill).items() if value is not None}


def _maybe(document: Document | None) -> Schedule | None:
    return None if document is None else _value(document)


_calendars = Codec(Calendar)
_CHANGED = "changed"  # the time of the next look at the series that exclude the calendar


class Calendars(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._collection = database["calendars"]

    async def setup(self) -> None:
        await self._collection.create_index([(_CHANGED, ASCENDING)], sparse=True)

    async def put(self, calendar: Calendar) -> bool:
        """Make or replace the calendar, and mark it as changed; whether it is new."""
        change = {"$set": _calendars.document(calendar) | {_CHANGED: EPOCH}}
        return (await self._collection.update_one({"_id": calendar.id}, change, upsert=True)).upserted_id is not None

    async def get(self, id: str) -> Calendar | None:
        return _calendars.maybe(await self._collection.find_one({"_id": id}))

    async def many(self, ids: Sequence[str]) -> dict[str, Calendar]:
        found = await self._collection.find({"_id": {"$in": list(ids)}}).to_list()
        return {document["_id"]: _calendars.value(document) for document in found}

    async def page(self, lead: str, *, after: str = "", limit: int) -> Page[Calendar]:
        """The calendars whose ids begin with `lead`, which ends in a slash, after the name `after`; for an empty one
        all, after the id `after`."""
        bounds = {"$gt": lead + after} | ({"$lt": f"{lead[:-1]}0"} if lead else {})
        return await read_page(self._collection, {"_id": bounds}, _calendars.value, order=("_id",), limit=limit)

    async def remove(self, id: str) -> bool:
        return (await self._collection.delete_one({"_id": id})).deleted_count == 1

    async def find_changed(self, *, before: datetime, limit: int) -> list[Calendar]:
        """The changed calendars to look at before this time."""
        found = self._collection.find({_CHANGED: {"$lt": before}}).limit(limit)
        return [_calendars.value(document) async for document in found]

    async def look_again(self, calendar: Calendar, at: datetime | None) -> None:
        """Have the next look at this time, or no further one, unless the calendar has been changed again."""
        change = {"$unset": {_CHANGED: ""}} if at is None else {"$set": {_CHANGED: at}}
        await self._collection.update_one({"_id": calendar.id, "updated_at": calendar.updated_at}, change)
