"""Files of users, cut into batches once for a job or for all jobs of a group, and uploads in parts.

One document names the version of the file and the number of records in a cut; the cuts are in pages, numbered from
0. All of it is insert-only and deterministic: if two workers cut one file, either may be first at any page. An
upload is one document, so that every process of the API can take the next part.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.audience.rules.audiences import ByteRange, File
from shared.audience.rules.columns import Header
from shared.drivers.mongo.documents import Aggregate, Codec, Document, insert_new, insert_once, make
from shared.jobs.rules.uploads import FileUpload, UploadedPart

PAGE = 50
"""Cuts of a page; only the last page has fewer."""


class FilePlan(Struct, frozen=True, kw_only=True):
    """The cuts of a file: ranges of `cut_records` records. Two ids are one user if they are equal as `user_type`, the
    type of the push table's column, or as bytes if that is empty. After the file is read: its `pages`, `users`, and
    `repeated` rows of the same users; or the `failure`. If columns are read by name, the `header` is there before the
    first page."""

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


class Files(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._files = database["files"]
        self._cuts = database["file_cuts"]

    async def setup(self) -> None:
        await make(self._files)
        await make(self._cuts)

    async def begin(self, plan_id: str, file: File, *, cut_records: int, user_type: str = "") -> FilePlan:
        """The stored plan of the file: this one, unless one was stored before."""
        plan = FilePlan(id=plan_id, file=file, cut_records=cut_records, user_type=user_type)
        return _plans.value(await insert_once(self._files, _plans.document(plan)))

    async def keep_header(self, plan_id: str, header: Header) -> None:
        """Store the file's header, which is the same for every reader of this version."""
        await self._files.update_one({"_id": plan_id}, {"$set": {"header": msgspec.to_builtins(header)}})

    async def add_page(self, plan_id: str, number: int, cuts: Sequence[ByteRange]) -> None:
        await insert_new(self._cuts, [_pages.document(_Page(_page_id(plan_id, number), list(cuts)))])

    async def page(self, plan_id: str, number: int) -> list[ByteRange] | None:
        page = _pages.maybe(await self._cuts.find_one({"_id": _page_id(plan_id, number)}))
        return None if page is None else page.cuts

    async def end(self, plan_id: str, *, pages: int, users: int, repeated: int) -> None:
        change = {"pages": pages, "users": users, "repeated": repeated}
        await self._files.update_one({"_id": plan_id}, {"$set": change})

    async def fail(self, plan_id: str, failure: str, *, path: str) -> None:
        """Record the first failure, even if the file was missing and has no plan."""
        await self.begin(plan_id, File(path, size=0, version=""), cut_records=1)
        await self._files.update_one({"_id": plan_id, "failure": ""}, {"$set": {"failure": failure}})

    async def plan(self, plan_id: str) -> FilePlan | None:
        return _plans.maybe(await self._files.find_one({"_id": plan_id}))

    async def ids(self, *, after: str, limit: int) -> list[str]:
        found = self._files.find({"_id": {"$gt": after}}, {"_id": 1}).sort("_id", ASCENDING).limit(limit)
        return [document["_id"] async for document in found]

    async def remove_of(self, plan_ids: Sequence[str]) -> None:
        for plan_id in plan_ids:
            await self._cuts.delete_many({"_id": {"$gte": _page_id(plan_id, 0), "$lt": f"{plan_id}0"}})
        await self._files.delete_many({"_id": {"$in": list(plan_ids)}})


def _page_id(plan_id: str, number: int) -> str:
    return f"{plan_id}/{number:08d}"


_codec = Codec(FileUpload)
_NOW = {"changed_at": True}


class FileUploads(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._uploads = database["uploads"]

    async def setup(self) -> None:
        await self._uploads.create_index([("changed_at", ASCENDING)])

    async def add(self, upload: FileUpload) -> FileUpload:
        """Insert an upload; returns the stored one if another process was first."""
        return _codec.value(await insert_once(self._uploads, _codec.document(upload)))

    async def get(self, key: str) -> FileUpload | None:
        return _codec.maybe(await self._uploads.find_one({"_id": key}))

    async def note_part(self, upload: FileUpload, number: int, part: UploadedPart) -> bool:
        """Record a stored part; `False` if the upload is completed or gone."""
        change = {"$set": {f"parts.{number}": msgspec.to_builtins(part)}, "$currentDate": _NOW}
        return (await self._uploads.update_one(_open(upload), change)).matched_count == 1

    async def forget_parts(self, upload: FileUpload) -> None:
        """Clear the stored parts, unless the upload is completed or gone."""
        await self._uploads.update_one(_open(upload), {"$set": {"parts": {}}, "$currentDate": _NOW})

    async def complete(self, upload: FileUpload) -> FileUpload | None:
        joined = {"completed": True, "parts": msgspec.to_builtins(upload.parts)}
        change = {"$set": joined, "$currentDate": _NOW}
        found = await self._uploads.find_one_and_update(_open(upload), change, return_document=ReturnDocument.AFTER)
        return _codec.maybe(found)

    async def find_unchanged(self, before: datetime, *, limit: int) -> Sequence[FileUpload]:
        """Up to `limit` uploads unchanged since `before`, the oldest first."""
        found = self._uploads.find({"changed_at": {"$lt": before}}).sort("changed_at", ASCENDING)
        return [_codec.value(document) for document in await found.limit(limit).to_list()]

    async def postpone(self, upload: FileUpload) -> None:
        await self._uploads.update_one(_this_version(upload), {"$currentDate": _NOW})

    async def forget(self, upload: FileUpload) -> bool:
        result = await self._uploads.delete_one(_this_version(upload))
        return result.deleted_count == 1


def _open(upload: FileUpload) -> Document:
    """The query for an upload that is not completed. An upload that began anew under the same key has another token."""
    return {"_id": upload.id, "token": upload.token, "completed": False}


def _this_version(upload: FileUpload) -> Document:
    return {"_id": upload.id, "changed_at": upload.changed_at}
