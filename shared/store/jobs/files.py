"""Files of users, cut into batches once for a job, or for all jobs of a group.

One document says which version of the file is meant and how many records a cut has; the cuts stand in pages, numbered
from 0. All of it is insert-only, and the same whoever makes it: of two that cut one file, either may be first at any
page.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.audience.csv_header import Header
from shared.domain.audience.ranges import ByteRange
from shared.domain.audience.sources import File
from shared.store.documents import Codec, Document, insert_new, insert_once, make, translate_errors

PAGE = 50
"""Cuts of a page; only the last has fewer."""


class FilePlan(Struct, frozen=True, kw_only=True):
    """How a file is cut: into ranges of `cut_records` records. Two ids are one user if they are equal for `user_type`,
    the type of the push table's column; if that is empty, if they are the same bytes. Once the file is read to the end,
    the `pages` and what it holds: so many `users`, and `repeated` rows of the same ones; or the `failure` that kept it
    from being read. If columns are read by their names, the `header` is there before the first page."""

    id: str
    file: File
    cut_records: int
    user_type: str = ""
    pages: int | None = None
    users: int = 0
    repeated: int = 0
    failure: str = ""
    header: Header | None = None


class _Page(Struct, frozen=True):
    id: str
    cuts: list[ByteRange]


_plans = Codec(FilePlan)
_pages = Codec(_Page)


class Files:
    """The collections `files` and `file_cuts`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._files = database["files"]
        self._cuts = database["file_cuts"]

    async def setup(self) -> None:
        """Make the collections. Everything is found by its key."""
        await make(self._files)
        await make(self._cuts)

    async def begin(self, plan_id: str, file: File, *, cut_records: int, user_type: str = "") -> FilePlan:
        """How the file is cut: like this, unless that was decided before."""
        plan = FilePlan(id=plan_id, file=file, cut_records=cut_records, user_type=user_type)
        return _plans.value(await insert_once(self._files, _plans.document(plan)))

    async def keep_header(self, plan_id: str, header: Header) -> None:
        """Note the file's header: whoever reads this version of the file finds the same."""
        with translate_errors():
            await self._files.update_one({"_id": plan_id}, {"$set": {"header": msgspec.to_builtins(header)}})

    async def add_page(self, plan_id: str, number: int, cuts: Sequence[ByteRange]) -> None:
        """Store a page, unless it is there."""
        await insert_new(self._cuts, [_pages.document(_Page(_page_id(plan_id, number), list(cuts)))])

    async def page(self, plan_id: str, number: int) -> list[ByteRange] | None:
        """The cuts of a page, if it is there."""
        with translate_errors():
            page = _pages.maybe(await self._cuts.find_one({"_id": _page_id(plan_id, number)}))
        return None if page is None else page.cuts

    async def end(self, plan_id: str, *, pages: int, users: int, repeated: int) -> None:
        """Note that the file is read to its end."""
        change = {"pages": pages, "users": users, "repeated": repeated}
        with translate_errors():
            await self._files.update_one({"_id": plan_id}, {"$set": change})

    async def fail(self, plan_id: str, failure: str, *, path: str) -> None:
        """Note what is wrong with the file, even if it was not there to be cut; what was noted first stays."""
        await self.begin(plan_id, File(path, size=0, version=""), cut_records=1)
        with translate_errors():
            await self._files.update_one({"_id": plan_id, "failure": ""}, {"$set": {"failure": failure}})

    async def plan(self, plan_id: str) -> FilePlan | None:
        """How the file is cut, if that is decided."""
        with translate_errors():
            return _plans.maybe(await self._files.find_one({"_id": plan_id}))

    async def ids(self, *, after: str, limit: int) -> list[str]:
        """The ids of the plans behind this one, in their order."""
        with translate_errors():
            found = self._files.find({"_id": {"$gt": after}}, {"_id": 1}).sort("_id", ASCENDING).limit(limit)
            return [document["_id"] async for document in found]

    async def remove_of(self, plan_ids: Sequence[str]) -> None:
        """Forget these plans."""
        with translate_errors():
            for plan_id in plan_ids:
                await self._cuts.delete_many({"_id": {"$gte": _page_id(plan_id, 0), "$lt": f"{plan_id}0"}})
            await self._files.delete_many({"_id": {"$in": list(plan_ids)}})


def _page_id(plan_id: str, number: int) -> str:
    return f"{plan_id}/{number:08d}"
