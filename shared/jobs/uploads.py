"""Uploads in parts. Any process may take the next part: MongoDB lists the parts, and the file storage has them. An
upload cannot be read before it is completed.

| repeated | result |
| --- | --- |
| the first part, under the caller's id | it replaces itself; no second upload begins |
| another part | it replaces itself |
| the completion | the first answer, also if a process died between the joining and its note |
| the completion, while another one is underway | one file, never replaced, so readers read on |
| the file, once its upload is removed | another upload to another path: jobs go on reading the first one |

Two callers that send different contents as one part may leave the note of one and the content of the other. The
completion detects this and removes all notes of parts: the caller sends the parts again.

An upload that is untouched for a day is dropped, its parts first; after a death in between, the note makes the next run
do it again. An upload that cannot be dropped waits a day for its next try, so that it blocks no other. A death between
the begin of an upload and its note leaves an upload without parts, which a lifecycle rule of the bucket removes.
"""

import asyncio
import secrets
from datetime import timedelta

import structlog
from msgspec.structs import replace

from shared.core.errors import Conflict, Invalid, NotFound, Unavailable
from shared.drivers.blobs import Blobs
from shared.jobs.rules.uploads import (
    ABANDONED_AFTER,
    FileUpload,
    UploadedPart,
    check_part,
    check_size,
    check_whole,
    measure_part,
    upload_key,
)
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.store import Store
from shared.time import DatabaseTime

FIRST = 1
_STEP = 100
_MOST_FAILURES = 5  # of one run: each may take a minute

log = structlog.get_logger(__name__)


class UploadFlow:
    """Takes files of up to `max_bytes` in parts, stored below `folder` in a folder of their app."""

    def __init__(self, store: Store, blobs: Blobs, time: DatabaseTime, *, folder: str, max_bytes: int) -> None:
        self._store = store
        self._blobs = blobs
        self._time = time
        self._folder = folder
        self._max_bytes = max_bytes

    async def put_part(self, app_id: str, upload_id: str, number: int, content: bytes, *, by: str) -> UploadedPart:
        """Store a part; the first one begins the upload if it does not exist. Raises `NotFound` if the app has no such
        upload and this is not the first part, or the parts are gone; `Conflict` if the upload is completed, or was
        begun anew meanwhile."""
        upload = await self._store.uploads.get(upload_key(app_id, upload_id))
        if upload is None:
            if number != FIRST:
                raise _not_found(upload_id)
            upload = await self._draft(app_id, upload_id, by)
        check_part(upload, number, content, most=self._max_bytes)
        if not upload.token:
            upload = await self._begin(upload)
        try:
            version = await self._blobs.write_part(upload.path, upload.token, number, content)
        except NotFound:
            await self._require_file(await self._look_again(upload, upload_id), upload_id)
            raise _completed_meanwhile(upload_id) from None
        part = await asyncio.to_thread(measure_part, content, version)
        await fault("upload.after_part")
        if not await self._store.uploads.note_part(upload, number, part):
            raise _completed_meanwhile(upload_id)
        return part

    async def require(self, app_id: str, upload_id: str) -> FileUpload:
        upload = await self._store.uploads.get(upload_key(app_id, upload_id))
        if upload is None:
            raise _not_found(upload_id)
        if upload.completed:
            await self._require_file(upload, upload_id)
        return upload

    async def complete(self, app_id: str, upload_id: str, *, size: int | None) -> FileUpload:
        """Join the parts to a file that jobs can read. Raises `Conflict` if a part is missing, too small or being
        replaced; the parts do not have `size` bytes together; or a part differs from its note, and all must be sent
        again."""
        upload = await self.require(app_id, upload_id)
        check_whole(upload, size)
        if upload.completed:
            return upload
        check_size(upload.size, most=self._max_bytes)
        joined = await self._join(upload, upload_id)
        check_whole(joined, size)
        await fault("upload.after_join")
        return await self._store.uploads.complete(joined) or await self._look_again(joined, upload_id)

    async def drop_abandoned(self, *, after: timedelta = ABANDONED_AFTER) -> Swept:
        """Drop uploads untouched for `after`, and remove notes of completed ones of that age. A run ends early after
        `_MOST_FAILURES` failures."""
        before = await self._time.now() - after
        dropped = postponed = 0
        for upload in await self._store.uploads.find_unchanged(before, limit=_STEP):
            try:
                dropped += await self._drop(upload)
            except (Invalid, Unavailable) as error:
                log.warning("upload not dropped", upload=upload.id, reason=str(error))
                await self._store.uploads.postpone(upload)
                postponed += 1
            if postponed == _MOST_FAILURES:
                break
        return Swept(retried=postponed, discarded=dropped)

    async def _draft(self, app_id: str, upload_id: str, by: str) -> FileUpload:
        """An upload without a token: it has not begun. Its path is new, because jobs may still read an earlier file of
        this id."""
        return FileUpload(
            id=upload_key(app_id, upload_id),
            app_id=app_id,
            path=f"{self._blobs.bucket}/{self._folder}/{app_id}/{upload_id}-{secrets.token_hex(4)}.csv",
            token="",
            created_by=by,
            changed_at=await self._time.now(),
        )

    async def _begin(self, draft: FileUpload) -> FileUpload:
        begun = replace(draft, token=await self._blobs.begin_parts(draft.path))
        upload = await self._store.uploads.add(begun)
        if upload.token != begun.token:
            await self._blobs.drop_parts(begun.path, begun.token)
        return upload

    async def _join(self, upload: FileUpload, upload_id: str) -> FileUpload:
        """Join the parts, or find that another process has; returns the upload with the parts of the file."""
        parts = [(number, part.version) for number, part in upload.in_order]
        try:
            await self._blobs.join_parts(upload.path, upload.token, parts)
        except NotFound:
            latest = await self._look_again(upload, upload_id)
            await self._require_file(latest, upload_id)
            return latest
        except Conflict:
            latest = await self._look_again(upload, upload_id)
            if await self._has_file(latest):
                return latest
            if latest.parts != upload.parts:
                raise
            await self._store.uploads.forget_parts(latest)
            raise Conflict("a part is not what was noted of it: send all parts again", field="part") from None
        return upload

    async def _look_again(self, upload: FileUpload, upload_id: str) -> FileUpload:
        latest = await self.require(upload.app_id, upload_id)
        if latest.token != upload.token:
            raise Conflict("this upload was begun anew meanwhile", field="upload", value=upload_id)
        return latest

    async def _require_file(self, upload: FileUpload, upload_id: str) -> None:
        """Check that the file exists. If it is gone or replaced, remove the upload and raise `NotFound`."""
        if not await self._has_file(upload):
            await self._store.uploads.forget(upload)
            raise _not_found(upload_id)

    async def _has_file(self, upload: FileUpload) -> bool:
        try:
            return (await self._blobs.stat(upload.path)).size == upload.size
        except NotFound:
            return False

    async def _drop(self, upload: FileUpload) -> bool:
        if not upload.completed:
            await self._blobs.drop_parts(upload.path, upload.token)
        return await self._store.uploads.forget(upload)


def _completed_meanwhile(upload_id: str) -> Conflict:
    return Conflict("this upload was completed meanwhile", field="upload", value=upload_id)


def _not_found(upload_id: str) -> NotFound:
    return NotFound("there is no such upload of this app: it begins with part 1", field="uploadId", value=upload_id)
