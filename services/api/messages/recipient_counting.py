"""Counting who would get a message of a job, within a time limit: the audience is read from its beginning, and looked
up part by part. What is held is a part, and a hash of each recipient, to tell who stands there twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.recipient_tables import RecipientTables
from shared.blobs import Blobs
from shared.domain.audience.audiences import BEGINNING
from shared.domain.audience.csv_header import Chosen, Header, choose
from shared.domain.audience.csv_slices import Slicer
from shared.domain.audience.ranges import KeyRange
from shared.domain.audience.repeats import Repeats, hashes_of
from shared.domain.jobs.jobs import Job
from shared.domain.messages.counting import RecipientCount
from shared.domain.messages.jobs import Duplicates, MessageOptions, options_of
from shared.domain.messages.recipients import Malformed, address_reader, repeat_form
from shared.flow.messages.barring import find_barred
from shared.store import Store

_ROWS = 1_000
_BATCHES = 10


class _Part(Struct, frozen=True):
    """The next rows: the `recipients` who repeat none before them, how many are `repeated`, and where they end."""

    recipients: Sequence[str]
    repeated: int
    scanned: int
    total: int
    columns: tuple[str, ...]


class RecipientCounting:
    """Counts the recipients of jobs."""

    def __init__(self, store: Store, load_tables: Callable[[], RecipientTables], blobs: Blobs) -> None:
        self._store = store
        self._load_tables = load_tables
        self._blobs = blobs

    async def count(self, job: Job, *, seconds: float) -> RecipientCount:
        """As many of the job's recipients as can be looked at in so many seconds.

        Raises:
            Invalid: a job over this file or table would fail; the reason says why.
            Unavailable: the file, the table or the store cannot be read now.
        """
        options, counted = options_of(job), RecipientCount()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as limit, aclosing(self._parts(job, options)) as parts:
                async for part in parts:
                    counted = await self._add(counted, job, options, part)
                    # A driver may take the time-out for its own, where its answer comes at the same moment.
                    if limit.expired():
                        return counted
                counted = replace(counted, exact=True)
        return counted

    async def _add(self, counted: RecipientCount, job: Job, options: MessageOptions, part: _Part) -> RecipientCount:
        read = address_reader(options.channel, options.default_region, kind=job.table_kind)
        addresses = [read(recipient) for recipient in part.recipients]
        known = [address for address in addresses if not isinstance(address, Malformed)]
        barred = await find_barred(self._store, job.app_id, options, known)
        counted = counted.with_part(
            rows=len(part.recipients) + part.repeated,
            malformed=len(addresses) - len(known),
            suppressed=sum(address in barred for address in known),
            repeated=part.repeated,
            scanned=part.scanned,
        )
        return replace(counted, total=part.total, columns=part.columns)

    def _parts(self, job: Job, options: MessageOptions) -> AsyncGenerator[_Part]:
        return self._read_file(job, options) if job.csv_path else self._read_table(job, options)

    async def _read_file(self, job: Job, options: MessageOptions) -> AsyncGenerator[_Part]:
        def choose_recipients(header: Header) -> Chosen:
            return choose(header, options.recipient_column, ())

        file = await self._blobs.stat(job.csv_path)
        normalize = repeat_form(options.channel, options.default_region)
        once = options.duplicates is Duplicates.ONCE
        slicer = Slicer(_ROWS, normalize, choose=choose_recipients, once=once)
        async with aclosing(self._blobs.read(file, 0, file.size)) as chunks:
            async for chunk in chunks:
                # To normalise a chunk of phone numbers takes a second.
                for slice_ in await asyncio.to_thread(slicer.feed, chunk):
                    yield _Part(slice_.users, slice_.repeated, slice_.upto, file.size, _names(slicer))
        for slice_ in await asyncio.to_thread(slicer.finish):
            yield _Part(slice_.users, slice_.repeated, slice_.upto, file.size, _names(slicer))

    async def _read_table(self, job: Job, options: MessageOptions) -> AsyncGenerator[_Part]:
        tables, table, after = self._load_tables(), job.table, BEGINNING
        columns, highest = await tables.columns(table), await tables.highest(table)
        repeats = Repeats() if options.duplicates is Duplicates.ONCE else None
        normalize = repeat_form(options.channel, options.default_region)
        lowest: int | None = None
        while cuts := await tables.cut(table, job.filters, after=after, upto=highest, size=_ROWS, batches=_BATCHES):
            for cut in cuts:
                rows = await tables.read(table, job.filters, KeyRange(after, cut.upto), [options.recipient_column])
                after, [spelled] = cut.upto, rows.columns
                if not spelled:
                    continue
                lowest = int(rows.keys[0]) if lowest is None else lowest
                fresh = spelled
                if repeats is not None:
                    flags = repeats.mark(await asyncio.to_thread(hashes_of, spelled, normalize)).tolist()
                    fresh = [text for text, flag in zip(spelled, flags, strict=True) if not flag]
                yield _Part(
                    [str(text, "utf-8") for text in fresh],
                    len(spelled) - len(fresh),
                    after - lowest + 1,
                    highest - lowest + 1,
                    columns,
                )


def _names(slicer: Slicer) -> tuple[str, ...]:
    return () if slicer.header is None else slicer.header.names
