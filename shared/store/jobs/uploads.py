"""Uploads in parts: one document each, so that every process of the API can take the next part."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.uploads import FileUpload, UploadedPart
from shared.store.documents import Aggregate, Codec, Document, insert_once

_codec = Codec(FileUpload)
_NOW = {"changed_at": True}


class FileUploads(Aggregate):
    """The `uploads` collection."""

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
        """Record that exactly these parts are joined; `None` if that was done before, or the upload is gone."""
        joined = {"completed": True, "parts": msgspec.to_builtins(upload.parts)}
        change = {"$set": joined, "$currentDate": _NOW}
        found = await self._uploads.find_one_and_update(_open(upload), change, return_document=ReturnDocument.AFTER)
        return _codec.maybe(found)

    async def find_unchanged(self, before: datetime, *, limit: int) -> Sequence[FileUpload]:
        """Up to `limit` uploads unchanged since `before`, the oldest first."""
        found = self._uploads.find({"changed_at": {"$lt": before}}).sort("changed_at", ASCENDING)
        return [_codec.value(document) for document in await found.limit(limit).to_list()]

    async def postpone(self, upload: FileUpload) -> None:
        """Count the upload as changed now, unless it has changed since it was read."""
        await self._uploads.update_one(_this_version(upload), {"$currentDate": _NOW})

    async def forget(self, upload: FileUpload) -> bool:
        """Delete an upload, unless it has changed since it was read."""
        result = await self._uploads.delete_one(_this_version(upload))
        return result.deleted_count == 1


def _open(upload: FileUpload) -> Document:
    """The query for an upload that is not completed. An upload that began anew under the same key has another token."""
    return {"_id": upload.id, "token": upload.token, "completed": False}


def _this_version(upload: FileUpload) -> Document:
    """The query for an upload as it was read."""
    return {"_id": upload.id, "changed_at": upload.changed_at}
