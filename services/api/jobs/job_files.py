"""The file that a job's users stand in, as far as POST of the job looks at it."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from shared.audience import Audience
from shared.blobs import Blobs
from shared.domain.audience.csv_header import Chosen, Header
from shared.domain.audience.csv_slices import HEADER_IS_DATA, Slicer
from shared.domain.audience.sources import File
from shared.domain.errors import Invalid, NotFound, Unavailable
from shared.domain.jobs.jobs import Job
from shared.flow.jobs.kinds import JobKinds

CHECKED_BYTES = 1024 * 1024
_ROWS = 10_000
_LOOK_UP_SECONDS = 2


class JobFiles:
    """Finds the files of jobs, and checks their beginnings. A file may have `max_bytes`."""

    def __init__(self, blobs: Blobs, audience: Audience, kinds: JobKinds, *, max_bytes: int) -> None:
        self._blobs = blobs
        self._audience = audience
        self._kinds = kinds
        self._max_bytes = max_bytes

    async def find(self, path: str) -> File:
        """The file. Raises `Invalid` for one that is missing, empty or too large, and `Unavailable`."""
        try:
            file = await self._blobs.stat(path)
        except NotFound as error:
            raise Invalid(error.reason, field="csvPath", value=path) from error
        if not file.size:
            raise Invalid("invalid csvPath: the file is empty", field="csvPath", value=path)
        if file.size > self._max_bytes:
            reason = f"invalid csvPath: the file has {file.size:,} bytes, {self._max_bytes:,} are allowed"
            raise Invalid(reason, field="csvPath", value=path)
        return file

    async def check(self, job: Job, file: File) -> list[str]:
        """Read the first `CHECKED_BYTES` of the file as the planner of the job, which has its templates, would. Returns
        warnings. Raises `Invalid`, with byte and line, if the planner would stop the job over these bytes."""
        named = self._kinds.of(job.service).named_columns(job)
        upto = min(file.size, CHECKED_BYTES)
        async with aclosing(self._blobs.read(file, 0, upto)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        choose = None if named is None else named.choose
        slicer = await asyncio.to_thread(_read_rows, content, choose, whole=upto == file.size)
        lacks_header = slicer.lacks_header or (named is None and await self._is_user(job.table, slicer.title))
        return [HEADER_IS_DATA] if lacks_header else []

    async def _is_user(self, table: str, title: str) -> bool:
        """Whether a user has this id; `False` if the table is slow, because a warning must not delay the caller."""
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                return (await self._audience.count_users(table, [title])).users > 0
        return False


def _read_rows(content: bytes, choose: Callable[[Header], Chosen] | None, *, whole: bool) -> Slicer:
    slicer = Slicer(_ROWS, choose=choose, once=False)
    slicer.feed(content)
    if whole:
        slicer.finish()
    return slicer
