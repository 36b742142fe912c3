"""The recipients of a batch, read from the push table without the control group; and the outcomes of those that get
nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import ByteRange, DeviceList, File, KeyRange
from shared.audience.rules.csv_cuts import users_in
from shared.audience.rules.devices import NOBODY, Devices
from shared.core.errors import Invalid
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import DEVICES_AT_ONCE, Audience
from shared.jobs.rules.batches import OTHER, Batch, BatchPart, Receipt, part_limit
from shared.jobs.rules.jobs import Job, job_key
from shared.push.rules.choices import held_out
from shared.push.rules.rendering import NO_TOKEN
from shared.runtime.metrics import BATCHES_SETTLED, JOB_START_DELAY, RECIPIENTS, RECORDS_SENT
from shared.store import Store

GONE = "gone"
TOO_MANY_DEVICES = "too-many-devices"


class Recipients(Struct, frozen=True):
    """The devices of one part, the users held out, the receipt so far for the rest, and the begin of the next part
    (`shared.jobs.rules.batches.BatchPart`)."""

    devices: Devices
    held_out: Sequence[str]
    receipt: Receipt
    next: int | None = None


class RecipientReader:
    """Reads recipients. The result depends only on the job, the batch and the stored data. A part of a push table has
    up to `batch_size` devices."""

    def __init__(self, store: Store, audience: Audience, blobs: Blobs, *, batch_size: int) -> None:
        self._store = store
        self._audience = audience
        self._blobs = blobs
        self._batch_size = batch_size

    async def recipients(self, job: Job, batch: Batch, *, fitting: int) -> Recipients:
        """The recipients of the batch's next part, at most `fitting` records. Raises `Invalid` if the table or the file
        cannot be read any more."""
        match batch.range:
            case KeyRange() as keys:
                found = await self._read_table(job, batch, keys, min(fitting, self._batch_size))
            case ByteRange() as lines:
                found = await self._read_file(job, batch, lines, min(fitting, DEVICES_AT_ONCE))
            case DeviceList() as devices:
                found = await self._read_list(job, batch, devices, min(fitting, self._batch_size))
            case range_:
                assert_never(range_)
        is_all = batch.whole and not job.zone and not batch.parts and found.next is None
        return _without_control_group(found, job, by_rank=is_all)

    async def _read_table(self, job: Job, batch: Batch, keys: KeyRange, most: int) -> Recipients:
        limit = part_limit(batch, most)
        rest = keys if batch.next is None else replace(keys, after=batch.next)
        devices = await self._audience.read(job.table, job.filters, rest, limit=limit)
        return _as_part(batch, devices, limit, upto=keys.upto)

    async def _read_list(self, job: Job, batch: Batch, devices: DeviceList, most: int) -> Recipients:
        """The devices of a division's list. Their zone is fixed, so it is not read again."""
        keys = await self._store.divisions.keys(devices)
        if keys is None:
            raise Invalid(f"the list {devices.id} is gone", field="job")
        limit = part_limit(batch, most)
        rest = keys if batch.next is None else keys[keys > batch.next]
        found = await self._audience.read_keys(job.table, job.filters, rest.tolist(), limit=limit)
        return _as_part(batch, found, limit, upto=int(keys[-1]))

    async def _read_file(self, job: Job, batch: Batch, lines: ByteRange, most: int) -> Recipients:
        users = await self._users(job, lines)
        rest = users[batch.next or 0 :]
        taken, devices = await self._read_first(job, rest[: part_limit(batch, len(users))], part_limit(batch, most))
        dealt_with = len(users) - len(rest) + len(taken)
        following = dealt_with if dealt_with < len(users) else None
        if devices is None:
            return Recipients(NOBODY, (), Receipt(failed=1, reasons={TOO_MANY_DEVICES: 1}), following)
        return Recipients(devices, (), Receipt(unknown=len(taken) - len(set(devices.users))), following)

    async def _read_first(self, job: Job, users: Sequence[str], most: int) -> tuple[Sequence[str], Devices | None]:
        """As many of these users as have `most` devices together, but at least the first one, and their devices; `None`
        for a user with more devices than any person has."""
        while True:
            limit = most if len(users) > 1 else DEVICES_AT_ONCE
            devices = await self._audience.read_users(job.table, [user for user in users if user], limit=limit)
            if devices is not None or len(users) == 1:
                return users, devices
            users = users[: len(users) // 2]

    async def _users(self, job: Job, lines: ByteRange) -> list[str]:
        if not isinstance(job.plan.source, File):
            raise Invalid("the plan names no file", field="csvPath")
        async with aclosing(self._blobs.read(job.plan.source, lines.start, lines.end)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        return users_in(lines, content)


def _as_part(batch: Batch, devices: Devices, limit: int, *, upto: int) -> Recipients:
    """The recipients that were read, at most `limit` devices: the rest of the batch, or a part that others follow."""
    if len(devices) >= limit and devices.keys[-1] < upto:
        return Recipients(devices, (), Receipt(), next=int(devices.keys[-1]))
    # Planned rows that have gone count as skipped.
    missing = batch.size - batch.receipt.recipients - len(devices)
    return Recipients(devices, (), Receipt(skipped=missing, reasons={GONE: missing}) if missing > 0 else Receipt())


def _without_control_group(found: Recipients, job: Job, *, by_rank: bool) -> Recipients:
    if not job.control_group:
        return found
    key = job_key(job.group_id if job.zone else job.id, job.incarnation)
    users = [user.decode() for user in found.devices.users]
    without = held_out({user for user in users if user}, key, job.control_group, by_rank=by_rank)
    devices = found.devices.pick([user not in without for user in users])
    receipt = replace(found.receipt, held_out=len(found.devices) - len(devices))
    return Recipients(devices, sorted(without), receipt, found.next)


# Why a batch failed, or the rest of it. `HOPELESS`: no take of it ever sent anything.
OUTCOME_UNKNOWN, UNREADABLE, REFUSED, FAULT, HOPELESS = "outcome-unknown", "unreadable", "refused", "fault", "not-taken"
_SKIPS = frozenset({NO_TOKEN, GONE})


def rest_failed(batch: Batch, key: str, at_least: int = 0) -> Receipt:
    failed = max(batch.recipients_left, at_least)
    return batch.receipt + Receipt(failed=failed, reasons={key: failed})


def count_part(job: Job, batch: Batch, part: BatchPart, records: int, now: int) -> None:
    """Count the records of a part whose commit was seen at `now` (ns). The plan's first batch shows how late the job
    began."""
    RECORDS_SENT.labels(job.app_name, job.service).inc(records)
    if batch.ordinal == 0 and part.number == 1:
        JOB_START_DELAY.observe(max(now - max(job.created_at, job.starts_at), 0) / 1e9)


def count_settled(job: Job | None, batch: Batch) -> None:
    """Count a settled batch and its recipients; for a job that is gone, under no app."""
    BATCHES_SETTLED.labels(batch.status).inc()
    app, service = (job.app_name, job.service) if job is not None else ("", "")
    for outcome, reason, count in _outcomes(batch.receipt):
        if count > 0:
            RECIPIENTS.labels(app, service, outcome, reason).inc(count)


def _outcomes(receipt: Receipt) -> Iterator[tuple[str, str, int]]:
    """Outcome, reason and count. A receipt without room for all reasons has fewer of them than recipients."""
    yield "sent", "", receipt.sent
    yield "held_out", "", receipt.held_out
    yield "unknown", "", receipt.unknown
    skips = {key: count for key, count in receipt.reasons.items() if key in _SKIPS}
    faults = {key: count for key, count in receipt.reasons.items() if key not in _SKIPS}
    for outcome, total, reasons in (("skipped", receipt.skipped, skips), ("failed", receipt.failed, faults)):
        named = {OTHER: 0} | reasons
        named[OTHER] += total - sum(reasons.values())
        for reason, count in named.items():
            yield outcome, reason, count
