"""Localized pushes: a document for each group, and one for each division with its steps and lists.

The content of a group's jobs is stored as JSON text. Steps and lists of a division are insert-only. Lists that no
step names come from a worker that was overtaken or died; they go with the division. The holder of a division saves
work but guarantees nothing: two workers may divide at once.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.audience.rules.audiences import DeviceList
from shared.core.errors import Conflict
from shared.core.instants import ns
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    free_keys,
    insert_new,
    insert_once,
    translate_errors,
)
from shared.jobs.rules.groups import Division, Group, Step

if TYPE_CHECKING:
    from shared.audience.rules.devices import Keys

_codec = Codec(Group, json=("job",))


class Groups(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._groups = database["groups"]

    async def setup(self) -> None:
        await self._groups.create_index([("idempotency.key", ASCENDING)], unique=True, sparse=True)
        await self._groups.create_index([("idempotency.created_at", ASCENDING)], sparse=True)
        await self._groups.create_index([("unmade_since", ASCENDING)], sparse=True)
        await self._groups.create_index([("app_id", ASCENDING)])

    async def add(self, group: Group) -> None:
        document = _codec.document(group) | {"unmade_since": group.created_at}
        if group.idempotency is None:
            del document["idempotency"]
        else:
            document["idempotency"]["created_at"] = group.created_at
        with translate_errors(duplicate=lambda: Conflict("a group with this id or idempotency key exists", field="id")):
            await self._groups.insert_one(document)

    async def get(self, group_id: str) -> Group | None:
        return _codec.maybe(await self._groups.find_one({"_id": group_id}))

    async def with_key(self, key: str) -> Group | None:
        return _codec.maybe(await self._groups.find_one({"idempotency.key": key}))

    async def find_incomplete(self, before: datetime) -> AsyncIterator[Group]:
        with translate_errors():
            async for document in self._groups.find({"unmade_since": {"$lt": ns(before)}}):
                yield _codec.value(document)

    async def mark_complete(self, group_id: str) -> None:
        await self._groups.update_one({"_id": group_id}, {"$set": {"made": True}, "$unset": {"unmade_since": ""}})

    async def expire_keys(self, before: datetime, *, limit: int) -> int:
        return await free_keys(self._groups, before, limit)

    async def remove(self, group_id: str) -> None:
        await self._groups.delete_one({"_id": group_id})

    async def remove_of(self, app_id: str) -> None:
        await self._groups.delete_many({"app_id": app_id})


_divisions = Codec(Division)
_steps = Codec(Step)
_NOBODY: Document = {"holder": "", "held_at": datetime(1970, 1, 1, tzinfo=UTC)}


class Divisions(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._divisions = database["divisions"]
        self._steps = database["division_steps"]
        self._lists = database["division_lists"]

    async def begin(self, division: Division) -> Division:
        """The stored division: this one, unless one was stored before."""
        return _divisions.value(await insert_once(self._divisions, _divisions.document(division) | _NOBODY))

    async def get(self, division_id: str) -> Division | None:
        return _divisions.maybe(await self._divisions.find_one({"_id": division_id}))

    async def take(self, division_id: str, holder: str, *, before: datetime) -> bool:
        """Let this holder work at the division; `False` if another holder has shown up since `before` (the database's
        time), or there is no such division."""
        return await self._hold({"_id": division_id, "held_at": {"$lt": before}}, {"holder": holder})

    async def renew(self, division_id: str, holder: str) -> bool:
        """Confirm the holder; `False` if another one took over, or there is no such division."""
        return await self._hold({"_id": division_id, "holder": holder}, {"holder": holder})

    async def release(self, division_id: str, holder: str) -> None:
        await self._divisions.update_one({"_id": division_id, "holder": holder}, {"$set": _NOBODY})

    async def _hold(self, query: Document, fields: Document) -> bool:
        change = {"$set": fields, "$currentDate": {"held_at": True}}
        return (await self._divisions.update_one(query, change)).matched_count == 1

    async def add_lists(self, lists: "Mapping[DeviceList, Keys]") -> None:
        """Store the lists of a step, which count after the step is stored."""
        from shared.jobs.rules.dividing import pack_keys

        await insert_new(self._lists, [{"_id": list_.id, "keys": pack_keys(keys)} for list_, keys in lists.items()])

    async def add_step(self, step: Step) -> Step:
        """The valid step of this number: this one, unless another one was first."""
        return _steps.value(await insert_once(self._steps, _steps.document(step)))

    async def last_step(self, division_id: str) -> Step | None:
        return _steps.maybe(await self._steps.find_one(_within(division_id), sort=[("_id", DESCENDING)]))

    async def steps(self, division_id: str) -> list[Step]:
        found = self._steps.find(_within(division_id), {"left": 0}).sort("_id", ASCENDING)
        return [_steps.value(document) async for document in found]

    async def keys(self, list_: DeviceList) -> "Keys | None":
        from shared.jobs.rules.dividing import unpack_keys

        document = await self._lists.find_one({"_id": list_.id})
        return None if document is None else unpack_keys(document["keys"])

    async def remove_lists(self, step: Step) -> None:
        await self._lists.delete_many(_within(f"{step.id}/{step.attempt}"))

    async def ids(self, *, after: str, limit: int) -> list[str]:
        found = self._divisions.find({"_id": {"$gt": after}}, {"_id": 1}).sort("_id", ASCENDING).limit(limit)
        return [document["_id"] async for document in found]

    async def remove_of(self, division_ids: Sequence[str]) -> None:
        for division_id in division_ids:
            await self._steps.delete_many(_within(division_id))
            await self._lists.delete_many(_within(division_id))
        these = {"_id": {"$in": list(division_ids)}}
        # One of the known servers fails to delete from a collection that never existed.
        if await self._divisions.find_one(these, {"_id": 1}) is not None:
            await self._divisions.delete_many(these)


def _within(prefix: str) -> Document:
    """The ids below this one: "0" follows "/"."""
    return {"_id": {"$gt": f"{prefix}/", "$lt": f"{prefix}0"}}
