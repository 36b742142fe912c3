"""Counting who would get a message of a job, within a time limit: the audience is read from its beginning, and looked
up part by part. Memory holds a part, and a hash of each recipient, to find repeated ones."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import compress

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import BEGINNING, KeyRange
from shared.audience.rules.columns import Chosen, Header, choose
from shared.audience.rules.csv_cuts import Slice, Slicer
from shared.audience.rules.repeats import Repeats, hashes_of
from shared.drivers.blobs import Blobs
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.rules.jobs import Job
from shared.messages.barring import find_barred
from shared.messages.rules.answers import Channel
from shared.messages.rules.contents import ADDRESSES, LOCALES, RecipientCount, find_flaws
from shared.messages.rules.credentials import Credential
from shared.messages.rules.jobs import Duplicates, MessageOptions, options_of
from shared.messages.rules.recipients import Malformed, address_reader, repeat_form
from shared.messages.rules.rendering import LOCALE, UNSUBSCRIBE_URL, MessageTexts, TextColumn, decode_column
from shared.store import Store

_ROWS = 1_000
_BATCHES = 10
_SOME_LINK = "https://example.com/u/" + "x" * 100


class _Part(Struct, frozen=True):
    """The next rows: the `recipients` who repeat none before them, with the `values` of the columns that their messages
    need, how many rows are `repeated`, and where they end."""

    recipients: Sequence[str]
    values: Mapping[str, TextColumn]
    repeated: int
    scanned: int
    total: int
    columns: tuple[str, ...]


class Previewed(Struct, frozen=True):
    """A job that is not stored, its texts, and the account that would send it."""

    job: Job
    texts: MessageTexts
    credential: Credential

    @property
    def options(self) -> MessageOptions:
        return options_of(self.job)

    def find_flaws(self, values: Mapping[str, TextColumn], count: int) -> dict[int, str]:
        """Why some messages with these values cannot be sent, by their places."""
        links = {UNSUBSCRIBE_URL: [_SOME_LINK] * count} if UNSUBSCRIBE_URL in self.texts.tags else {}
        columns = {**values, **links}
        lengths = self.texts.measure(columns, count)
        flaws = find_flaws(self.texts, columns, lengths, self.credential)
        return {place: why for some in flaws for place, why in some.items()}


def _columns_to_read(texts: MessageTexts, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that the messages need, and the locale, even with one template."""
    used = {*texts.used_columns(names), LOCALE}
    return tuple(name for name in names if name in used)


class RecipientCounting:
    def __init__(self, store: Store, load_tables: Callable[[], RecipientTables], blobs: Blobs) -> None:
        self._store = store
        self._load_tables = load_tables
        self._blobs = blobs

    async def count(self, previewed: Previewed, *, seconds: float) -> RecipientCount:
        """As many of the job's recipients as can be looked at in this time. Raises `Invalid` if a job over this file or
        table would fail."""
        counted, folded = RecipientCount(), set[int]()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as limit, aclosing(self._parts(previewed)) as parts:
                async for part in parts:
                    counted = await self._add(counted, previewed, part, folded)
                    # A driver may take the time-out for its own, where its answer comes at the same moment.
                    if limit.expired():
                        return counted
                counted = replace(counted, exact=True)
        return counted

    async def _add(
        self, counted: RecipientCount, previewed: Previewed, part: _Part, folded: set[int]
    ) -> RecipientCount:
        """`folded` contains the hashes of earlier mail addresses without case."""
        job, options = previewed.job, previewed.options
        read = address_reader(options.channel, options.default_region, kind=job.table_kind)
        addresses = [read(recipient) for recipient in part.recipients]
        known = [address for address in addresses if not isinstance(address, Malformed)]
        if options.channel is Channel.MAIL and options.duplicates is Duplicates.ONCE and len(folded) < ADDRESSES:
            before = len(folded)
            folded.update(hash(address.lower()) for address in known)
            alike = len(known) - (len(folded) - before)
            counted = replace(counted, differ_in_case=counted.differ_in_case + alike)
        barred = await find_barred(self._store, job.app_id, options, known)
        flaws = await asyncio.to_thread(previewed.find_flaws, part.values, len(addresses))
        called = [not isinstance(address, Malformed) and address not in barred for address in addresses]
        counted = counted.with_part(
            rows=len(part.recipients) + part.repeated,
            malformed=len(addresses) - len(known),
            suppressed=len(known) - sum(called),
            unrendered=sum(called[place] for place in flaws),
            repeated=part.repeated,
            scanned=part.scanned,
        )
        locales = Counter(counted.locales)
        for locale, rows in Counter(part.values.get(LOCALE, ())).items():
            if locale in locales or len(locales) < LOCALES:
                locales[locale] += rows
        first = counted.first or {name: column[0] for name, column in part.values.items() if len(column)}
        return replace(counted, total=part.total, columns=part.columns, first=first, locales=dict(locales))

    def _parts(self, previewed: Previewed) -> AsyncGenerator[_Part]:
        return self._read_file(previewed) if previewed.job.csv_path else self._read_table(previewed)

    async def _read_file(self, previewed: Previewed) -> AsyncGenerator[_Part]:
        options, texts = previewed.options, previewed.texts

        def choose_columns(header: Header) -> Chosen:
            return choose(header, options.recipient_column, _columns_to_read(texts, header.names))

        file = await self._blobs.stat(previewed.job.csv_path)
        normalize = repeat_form(options.channel, options.default_region)
        once = options.duplicates is Duplicates.ONCE
        slicer = Slicer(_ROWS, normalize, choose=choose_columns, once=once)

        def part_of(found: Slice) -> _Part:
            names = () if slicer.header is None else slicer.header.names
            values = dict(zip(_columns_to_read(texts, names), map(decode_column, found.others), strict=True))
            return _Part(found.users, values, found.repeated, found.upto, file.size, names)

        async with aclosing(self._blobs.read(file, 0, file.size)) as chunks:
            async for chunk in chunks:
                # To normalise a chunk of phone numbers takes a second.
                for found in await asyncio.to_thread(slicer.feed, chunk):
                    yield part_of(found)
        for found in await asyncio.to_thread(slicer.finish):
            yield part_of(found)

    async def _read_table(self, previewed: Previewed) -> AsyncGenerator[_Part]:
        job, options = previewed.job, previewed.options
        tables, table, after = self._load_tables(), job.table, BEGINNING
        columns, highest = await tables.columns(table), await tables.highest(table)
        used = _columns_to_read(previewed.texts, columns)
        repeats = Repeats() if options.duplicates is Duplicates.ONCE else None
        normalize = repeat_form(options.channel, options.default_region)
        lowest: int | None = None
        while cuts := await tables.cut(table, job.filters, after=after, upto=highest, size=_ROWS, batches=_BATCHES):
            for cut in cuts:
                keys = KeyRange(after, cut.upto)
                rows = await tables.read(table, job.filters, keys, [options.recipient_column, *used])
                after, (spelled, *others) = cut.upto, rows.columns
                if not spelled:
                    continue
                lowest = int(rows.keys[0]) if lowest is None else lowest
                fresh = [True] * len(spelled)
                if repeats is not None:
                    repeated = repeats.mark(await asyncio.to_thread(hashes_of, spelled, normalize)).tolist()
                    fresh = [not flag for flag in repeated]
                recipients, *values = (decode_column([*compress(column, fresh)]) for column in (spelled, *others))
                yield _Part(
                    recipients,
                    dict(zip(used, values, strict=True)),
                    len(spelled) - len(recipients),
                    after - lowest + 1,
                    highest - lowest + 1,
                    columns,
                )
