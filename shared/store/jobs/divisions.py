"""Divisions of localized pushes: a document for each, with its steps and their lists in collections of their own.

Steps and lists are insert-only. Lists that no step names are those of somebody who was overtaken or died; they go with
the division. That a division has a holder spares work and keeps no promise: two may divide at once.

Only workers read and write lists of keys, and so only they load numpy.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.audience.ranges import DeviceList
from shared.domain.jobs.divisions import Division, Step
from shared.store.documents import Codec, Document, insert_new, insert_once, translate_errors

if TYPE_CHECKING:
    from shared.domain.audience.devices import Keys

_divisions = Codec(Division)
_steps = Codec(Step)
_NOBODY: Document = {"holder": "", "held_at": datetime(1970, 1, 1, tzinfo=UTC)}


class Divisions:
    """The collections `divisions`, `division_steps` and `division_lists`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._divisions = database["divisions"]
        self._steps = database["division_steps"]
        self._lists = database["division_lists"]

    async def setup(self) -> None:
        """Nothing to make: everything is found by its key."""

    async def begin(self, division: Division) -> Division:
        """The division as it is stored: this one, unless one was decided before."""
        return _divisions.value(await insert_once(self._divisions, _divisions.document(division) | _NOBODY))

    async def get(self, division_id: str) -> Division | None:
        """The division, if it is decided."""
        with translate_errors():
            return _divisions.maybe(await self._divisions.find_one({"_id": division_id}))

    async def take(self, division_id: str, holder: str, *, before: datetime) -> bool:
        """Let this holder work at the division; `False` when another one does and showed up since then (the database's
        time), or when there is no such division."""
        return await self._hold({"_id": division_id, "held_at": {"$lt": before}}, {"holder": holder})

    async def renew(self, division_id: str, holder: str) -> bool:
        """Note that the holder still works at it; `False` when another one does, or when there is no such division."""
        return await self._hold({"_id": division_id, "holder": holder}, {"holder": holder})

    async def release(self, division_id: str, holder: str) -> None:
        """Let others work at it at once, if this holder still does."""
        with translate_errors():
            await self._divisions.update_one({"_id": division_id, "holder": holder}, {"$set": _NOBODY})

    async def _hold(self, query: Document, fields: Document) -> bool:
        change = {"$set": fields, "$currentDate": {"held_at": True}}
        with translate_errors():
            return (await self._divisions.update_one(query, change)).matched_count == 1

    async def add_lists(self, lists: "Mapping[DeviceList, Keys]") -> None:
        """Store the lists of a step, which count once that is stored."""
        from shared.domain.jobs.dividing import pack_keys

        await insert_new(self._lists, [{"_id": list_.id, "keys": pack_keys(keys)} for list_, keys in lists.items()])

    async def add_step(self, step: Step) -> Step:
        """The step of this number that counts: this one, unless another one was first."""
        return _steps.value(await insert_once(self._steps, _steps.document(step)))

    async def last_step(self, division_id: str) -> Step | None:
        """The last step, if there is one."""
        with translate_errors():
            return _steps.maybe(await self._steps.find_one(_within(division_id), sort=[("_id", DESCENDING)]))

    async def steps(self, division_id: str) -> list[Step]:
        """All steps in their order, without what each left over."""
        with translate_errors():
            found = self._steps.find(_within(division_id), {"left": 0}).sort("_id", ASCENDING)
            return [_steps.value(document) async for document in found]

    async def keys(self, list_: DeviceList) -> "Keys | None":
        """The keys of a list, if it is there."""
        from shared.domain.jobs.dividing import unpack_keys

        with translate_errors():
            document = await self._lists.find_one({"_id": list_.id})
        return None if document is None else unpack_keys(document["keys"])

    async def remove_lists(self, step: Step) -> None:
        """Forget the lists of a step that does not count."""
        with translate_errors():
            await self._lists.delete_many(_within(f"{step.id}/{step.attempt}"))

    async def ids(self, *, after: str, limit: int) -> list[str]:
        """The ids of the divisions behind this one, in their order."""
        with translate_errors():
            found = self._divisions.find({"_id": {"$gt": after}}, {"_id": 1}).sort("_id", ASCENDING).limit(limit)
            return [document["_id"] async for document in found]

    async def remove_of(self, division_ids: Sequence[str]) -> None:
        """Forget these divisions, with all that was ever stored of them."""
        with translate_errors():
            for division_id in division_ids:
                await self._steps.delete_many(_within(division_id))
                await self._lists.delete_many(_within(division_id))
            these = {"_id": {"$in": list(division_ids)}}
            # One of the servers that we know fails to delete where nothing has ever been.
            if await self._divisions.find_one(these, {"_id": 1}) is not None:
                await self._divisions.delete_many(these)


def _within(prefix: str) -> Document:
    """The ids below this one: "0" follows "/"."""
    return {"_id": {"$gt": f"{prefix}/", "$lt": f"{prefix}0"}}
