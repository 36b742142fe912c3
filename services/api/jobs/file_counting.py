"""Counting the audience of a file within a time limit: its users are looked up while it is read, some at a time.

Memory holds one chunk of the file, and so long as it is read a hash of each user, to tell who stands in it twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from msgspec.structs import replace

from shared.audience import Audience
from shared.blobs import Blobs
from shared.domain.audience.counts import Counted
from shared.domain.audience.csv_slices import Slice, Slicer
from shared.domain.audience.sources import File
from shared.domain.audience.user_ids import NORMAL_FORMS

SLICE_ROWS = 5_000


class FileCounting:
    """Counts the audiences of files."""

    def __init__(self, audience: Audience, blobs: Blobs) -> None:
        self._audience = audience
        self._blobs = blobs

    async def count(self, table: str, file: File, *, seconds: float) -> Counted:
        """The counts of the file's users in the table, or of as many as can be looked up in this time. Raises `Invalid`
        if a job over this file would fail."""
        slicer = Slicer(SLICE_ROWS, NORMAL_FORMS[await self._audience.user_type(table)])
        counted = Counted(total=file.size)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), aclosing(self._slices(file, slicer)) as slices:
                async for each in slices:
                    if not counted.scanned:
                        first = await self._audience.count_users(table, [slicer.title])
                        counted = replace(counted, lacks_header=first.users > 0)
                    found = await self._audience.count_users(table, each.users)
                    counted = counted.with_slice(found, repeated=each.repeated, upto=each.upto)
                counted = replace(counted, scanned=file.size, exact=True)
        return replace(counted, lacks_header=counted.lacks_header or slicer.lacks_header)

    async def _slices(self, file: File, slicer: Slicer) -> AsyncGenerator[Slice]:
        async with aclosing(self._blobs.read(file, 0, file.size)) as chunks:
            async for chunk in chunks:
                # A chunk of 100,000 ids takes a tenth of a second.
                for each in await asyncio.to_thread(slicer.feed, chunk):
                    yield each
        for each in await asyncio.to_thread(slicer.finish):
            yield each
