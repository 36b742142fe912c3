"""The recipients of a batch: read from the push table, those of the control group set aside."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from shared.audience import Audience, Row
from shared.blobs import Blobs
from shared.domain.audiences import table_name
from shared.domain.batches import Batch, ByteRange, KeyRange, Receipt
from shared.domain.control_groups import held_out
from shared.domain.csv_cuts import users_in
from shared.domain.errors import Invalid
from shared.domain.jobs import Job
from shared.domain.sources import File
from shared.domain.zones import zone_of

GONE = "gone"


class Recipients(Struct, frozen=True):
    """Who is sent to, the users held out, and what is known already of the rest."""

    rows: Sequence[Row]
    held_out: Sequence[str]
    receipt: Receipt


class Reader:
    """Reads recipients. What it finds depends on nothing but the job, the batch and what is stored now."""

    def __init__(self, audience: Audience, blobs: Blobs) -> None:
        self._audience = audience
        self._blobs = blobs

    async def recipients(self, job: Job, batch: Batch) -> Recipients:
        """The batch's recipients. Raises `Unavailable`, and `Invalid` where table or file cannot be read any more."""
        match batch.range:
            case KeyRange() as keys:
                rows = await self._audience.read(_table(job), job.filters, keys, zone=job.zone)
                found = Recipients(rows, (), _gone(batch.size - len(rows)))
            case ByteRange() as lines:
                found = await self._of_file(job, lines)
            case range_:
                assert_never(range_)
        return _without_control_group(found, job, by_rank=batch.whole and not job.zone)

    async def _of_file(self, job: Job, lines: ByteRange) -> Recipients:
        if not isinstance(job.plan.source, File):
            raise Invalid("the plan names no file", field="csvPath")
        async with aclosing(self._blobs.read(job.plan.source, lines.start, lines.end)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        users = users_in(lines, content)
        # Whoever is unknown, and whoever has no zone, is only found by looking for all; so the last zone does.
        zone = "" if job.counts_unknown else job.zone
        rows = await self._audience.of_users(_table(job), [user for user in users if user], zone=zone)
        unknown = len(users) - len({row[1] for row in rows}) if job.counts_unknown else 0
        if job.zone and job.counts_unknown:
            rows = [row for row in rows if zone_of(row[4]) == job.zone]
        return Recipients(rows, (), Receipt(unknown=unknown))


def _without_control_group(found: Recipients, job: Job, *, by_rank: bool) -> Recipients:
    if not job.control_group:
        return found
    key = job.group_id if job.zone else job.id
    users = held_out({row[1] for row in found.rows if row[1]}, key, job.control_group, by_rank=by_rank)
    rows = [row for row in found.rows if row[1] not in users]
    receipt = replace(found.receipt, held_out=len(found.rows) - len(rows))
    return Recipients(rows, sorted(users), receipt)


def _gone(missing: int) -> Receipt:
    """Rows that were planned and are not there any more are skipped ones."""
    return Receipt(skipped=missing, reasons={GONE: missing}) if missing > 0 else Receipt()


def _table(job: Job) -> str:
    return table_name(job.app_name, job.service)
