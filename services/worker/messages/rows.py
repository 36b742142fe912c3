"""The rows of a batch: read by the range, screened by their entries in the ledger, and filled a few at a time shortly
before their calls.

    read ──> screen: call now, later, or never ──> content
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from itertools import compress, pairwise

from cachetools import LRUCache
from msgspec import Struct

from services.worker.messages.entries import BatchTaken, Note, Prepared, Purpose
from shared.audience.rules.audiences import ByteRange, File, KeyRange, normal_locale
from shared.audience.rules.columns import Header, choose
from shared.audience.rules.csv_cuts import rows_in
from shared.audience.rules.devices import check_unshared
from shared.core.errors import Invalid, Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Job, split_key
from shared.messages.barring import UnsubscribeLinks, find_barred
from shared.messages.rules.answers import Channel, Reason
from shared.messages.rules.contents import ends_of_groups, find_flaws
from shared.messages.rules.credentials import Credential
from shared.messages.rules.jobs import (
    MESSAGE_SERVICE,
    MessageOptions,
    Resending,
    due_at,
    options_of,
    receipt_of_entries,
)
from shared.messages.rules.ledger import Message, entry_id
from shared.messages.rules.recipients import Address, Malformed, address_reader
from shared.messages.rules.rendering import UNSUBSCRIBE_URL, Body, MessageTexts, decode_column
from shared.messages.rules.suppressions import URL_FIELD
from shared.providers import Content
from shared.store import Store

_REMEMBERED_JOBS = 16


class MessagesOfJob(Struct, frozen=True):
    """A job with its texts; its file has this `header`, or its table these `columns`."""

    job: Job
    options: MessageOptions
    texts: MessageTexts
    header: Header | None
    columns: tuple[str, ...]
    resending: Resending


class Mailings:
    def __init__(self, store: Store, tables: RecipientTables) -> None:
        self._store = store
        self._tables = tables
        self._mailings: LRUCache[tuple[str, int], MessagesOfJob] = LRUCache(_REMEMBERED_JOBS)

    async def prepare(self, job_key: str) -> MessagesOfJob:
        """The messages of this job. Raises `Invalid` if its file or its table cannot be read any more, `Unavailable` if
        the job is gone or of another kind."""
        resending = await self._store.message_jobs.get_resending(job_key)
        known = self._mailings.get((job_key, resending.round))
        if known is None:
            known = self._mailings[job_key, resending.round] = await self._prepare(job_key, resending)
        return known

    async def _prepare(self, job_key: str, resending: Resending) -> MessagesOfJob:
        job = await self._store.jobs.get(job_key)
        if job is None or job.service != MESSAGE_SERVICE:
            raise Unavailable(f"the job {job_key} is gone or its batches are sent by another stage")
        options = options_of(job)
        texts = MessageTexts(job.plan.templates, job.context, locale=options.locale)
        header = await self._read_header(job) if job.csv_path else None
        columns = await self._tables.columns(job.table) if header is None else header.names
        return MessagesOfJob(job, options, texts, header, columns, resending)

    async def _read_header(self, job: Job) -> Header:
        plan = await self._store.files.plan(job.file_plan_id)
        if plan is None or plan.header is None:
            raise Invalid("the plan knows no header of the file", field="csvPath")
        return plan.header


class RecipientRows(Struct, frozen=True, eq=False):
    """Rows of an audience: the number of each, its recipient, and the columns that its message needs, by name."""

    numbers: Sequence[int]
    recipients: Sequence[str]
    columns: Mapping[str, Sequence[str]]


class RowsReader:
    def __init__(self, tables: RecipientTables, blobs: Blobs) -> None:
        self._tables = tables
        self._blobs = blobs

    async def read(self, mailing: MessagesOfJob, batch: Batch) -> RecipientRows:
        """The batch's rows. Raises `Invalid` if the file or the table cannot be read any more."""
        match batch.range:
            case ByteRange() as lines:
                return await self._read_file(mailing, lines)
            case KeyRange() as keys:
                return await self._read_table(mailing, keys)
            case other:
                raise Invalid(f"messages are not read from {type(other).__name__}", field="job")

    async def _read_file(self, mailing: MessagesOfJob, lines: ByteRange) -> RecipientRows:
        source, header = mailing.job.plan.source, mailing.header
        if not isinstance(source, File) or header is None:
            raise Invalid("the plan names no file", field="csvPath")
        chosen = choose(header, mailing.options.recipient_column, mailing.texts.used_columns(header.names))
        async with aclosing(self._blobs.read(source, lines.start, lines.end)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        rows = rows_in(lines, content, header, chosen)
        names = [header.names[place] for place in chosen.others]
        columns = dict(zip(names, map(decode_column, rows.others), strict=True))
        return RecipientRows(rows.numbers, decode_column(rows.ids), columns)

    async def _read_table(self, mailing: MessagesOfJob, keys: KeyRange) -> RecipientRows:
        used = mailing.texts.used_columns(mailing.columns)
        names = (mailing.options.recipient_column, *used)
        rows = await self._tables.read(mailing.job.table, mailing.job.filters, keys, names)
        check_unshared(mailing.job.table, rows.keys)
        known, columns = rows.keys.tolist(), [*rows.columns]
        if repeated := frozenset(keys.repeated):
            fresh = [key not in repeated for key in known]
            known = [*compress(known, fresh)]
            columns = [[*compress(column, fresh)] for column in columns]
        recipients, *others = map(decode_column, columns)
        numbers = [key - keys.after - 1 for key in known]
        return RecipientRows(numbers, recipients, dict(zip(used, others, strict=True)))


Columns = Mapping[str, Sequence[str]]


class BatchContents:
    """The contents of a batch's messages. `columns` hold the values of all its recipients, by tag. `urls`, if any, are
    the recipients' own links. `locales` are those of their templates."""

    def __init__(self, mailing: MessagesOfJob, columns: Columns, count: int, urls: Sequence[str] = ()) -> None:
        self._texts = mailing.texts
        self._columns = columns
        self._urls = urls
        self._lengths = self._texts.measure(columns, count)
        self.locales = self._texts.locales_of(columns, count)

    async def find_flaws(self, credential: Credential) -> dict[int, str]:
        """The reasons why some messages cannot be sent, by place. Other coroutines run in between."""
        found: dict[int, str] = {}
        for some in find_flaws(self._texts, self._columns, self._lengths, credential):
            found |= some
            await asyncio.sleep(0)
        return found

    def split(self, places: Sequence[int]) -> list[Callable[[], Content]]:
        """Functions that make the contents of these messages, none of which is too large. They should be called in
        about this order: the first call of a group renders the whole group, and each content is kept until it is
        taken."""
        lengths = [self._lengths[place] for place in places]
        groups = (_Together(self._render, places[first:end]) for first, end in pairwise(ends_of_groups(lengths)))
        return [partial(group.take, place) for group in groups for place in group.places]

    def _render(self, places: Sequence[int]) -> list[Body]:
        columns = {tag: [values[place] for place in places] for tag, values in self._columns.items()}
        bodies = [body for body in self._texts.render(columns, len(places)) if body is not None]
        if not self._urls:
            return bodies
        return [{**body, URL_FIELD: self._urls[place]} for place, body in zip(places, bodies, strict=True)]


class _Together:
    """Messages that are rendered together, when the first of them is taken."""

    def __init__(self, render: Callable[[Sequence[int]], list[Body]], places: Sequence[int]) -> None:
        self.places = places
        self._render = render
        self._bodies: dict[int, Body] | None = None

    def take(self, place: int) -> Content:
        """The content of the message at this place. It is returned once and not kept."""
        if self._bodies is None:
            self._bodies = dict(zip(self.places, self._render(self.places), strict=True))
        return self._bodies.pop(place)


class Screened(Struct):
    """The messages to call, and the notes on those that are never called."""

    prepared: list[Prepared]
    rejected: list[Note]


class _Row(Struct, frozen=True):
    """A row whose message may be called now: its place among the rows, its entry's id, and its entry if any."""

    place: int
    id: str
    entry: Message | None


async def screen(
    store: Store,
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
    entries: Mapping[str, Message],
    *,
    now: datetime,
) -> Screened:
    """Choose the messages of these rows to call now. A message that was sent to an earlier address of its row is not
    called again, because the columns belong to the new address."""
    due = [*_due_rows(mailing, credential, batch, rows, entries, now)]
    read = address_reader(mailing.options.channel, mailing.options.default_region, kind=credential.kind)
    addresses = [read(rows.recipients[row.place]) for row in due]
    known = [address for address in addresses if isinstance(address, str)]
    found = await find_barred(store, mailing.job.app_id, mailing.options, known)
    contents = _contents_of(links, mailing, rows, due, addresses)
    flaws = await contents.find_flaws(credential)
    screened, called, own_locale = Screened([], []), [], normal_locale(mailing.options.locale)
    for place, (row, address) in enumerate(zip(due, addresses, strict=True)):
        spelled = rows.recipients[row.place] if isinstance(address, Malformed) else address
        locale = contents.locales[place]
        message = row.entry or Message(
            id=row.id,
            app_id=mailing.job.app_id,
            credential_id=credential.id,
            to=spelled,
            locale="" if locale == own_locale else locale,
        )
        prepared = Prepared(message, {}, row.entry is not None, spelled)
        # A redacted entry has lost it, and a malformed one is stored as it was spelled.
        if message.to not in ("", spelled) and read(message.to) != address:
            screened.rejected.append(_reject(prepared, Reason.ADDRESS_CHANGED, "", now))
        elif isinstance(address, Malformed):
            screened.rejected.append(_reject(prepared, Reason.MALFORMED, address.why, now))
        elif (reason := found.get(address)) is not None:
            screened.rejected.append(_reject(prepared, reason, "", now))
        elif place in flaws:
            screened.rejected.append(_reject(prepared, Reason.UNRENDERED, flaws[place], now))
        else:
            screened.prepared.append(prepared)
            called.append(place)
    for prepared, content in zip(screened.prepared, contents.split(called), strict=True):
        prepared.content = content
    return screened


def ids_of(batch: Batch, rows: RecipientRows) -> Sequence[str]:
    incarnation = split_key(batch.job_id)[1]
    return [entry_id(incarnation, batch.ordinal, number) for number in rows.numbers]


async def fit(
    store: Store, batch: Batch, rows: RecipientRows, entries: Mapping[str, Message], *, resent: bool
) -> Batch:
    """The batch with its real size: the present rows, and the entries of rows that have gone. So the ledger never
    counts more than is planned. The receipt of a batch that is `resent` may lack reports that came after it was
    settled. Raises `BatchTaken` if the batch has another owner."""
    size, receipt = len({*ids_of(batch, rows), *entries}), receipt_of_entries(entries.values())
    if size == batch.size and (receipt == batch.receipt or not resent):
        return batch
    fitted = await store.message_batches.fit(batch, size=size, receipt=receipt)
    if fitted is None:
        raise BatchTaken
    return fitted


def _due_rows(
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
    entries: Mapping[str, Message],
    now: datetime,
) -> Iterable[_Row]:
    for place, message_id in enumerate(ids_of(batch, rows)):
        entry = entries.get(message_id)
        due = due_at(entry, mailing.resending, credential.retry, now=now)
        if due is not None and due <= now:
            yield _Row(place, message_id, entry)


def _contents_of(
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    rows: RecipientRows,
    due: Sequence[_Row],
    addresses: Sequence[Address],
) -> BatchContents:
    """The contents of the messages of these rows, with the recipient's own link if there is one."""
    options = mailing.options
    columns = {name: [values[row.place] for row in due] for name, values in rows.columns.items()}
    has_button = options.channel is Channel.MAIL and not options.transactional
    if not has_button and UNSUBSCRIBE_URL not in mailing.texts.tags:
        return BatchContents(mailing, columns, len(due))
    known = ["" if isinstance(address, Malformed) else address for address in addresses]
    urls = links.urls_of(mailing.job.app_id, options.channel, known, options.list)
    columns[UNSUBSCRIBE_URL] = urls
    return BatchContents(mailing, columns, len(due), urls if has_button and links.can_link else ())


def _reject(prepared: Prepared, reason: Reason, detail: str, now: datetime) -> Note:
    return Note(prepared, Purpose.REJECT, at=now, reason=reason, detail=detail)
