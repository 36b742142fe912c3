"""Reading the recipients of a batch: the rows of its range, each with a number that is the same at every reading."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import compress

from msgspec import Struct

from services.worker.messages.mailings import MessagesOfJob
from shared.audience.recipient_tables import RecipientTables
from shared.blobs import Blobs
from shared.domain.audience.csv_cuts import rows_in
from shared.domain.audience.csv_header import choose
from shared.domain.audience.ranges import ByteRange, KeyRange
from shared.domain.audience.row_keys import check_unshared
from shared.domain.audience.sources import File
from shared.domain.errors import Invalid
from shared.domain.jobs.batches import Batch
from shared.domain.messages.rendering import decode_column


class RecipientRows(Struct, frozen=True, eq=False):
    """Rows of an audience: the number of each, its recipient, and the columns that its message needs, by name."""

    numbers: Sequence[int]
    recipients: Sequence[str]
    columns: Mapping[str, Sequence[str]]


class RowsReader:
    """Reads the rows of batches."""

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
