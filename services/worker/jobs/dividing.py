"""The sources of a plan's batches: a push table, a file of users, or the devices of a zone; a localized push divides
its devices among the zones once for the whole group.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import assert_never

import structlog

from services.worker.jobs.cutting import DistinctCuts, FileCuts, PlannedBatch, TableCuts
from shared.audience.rules.audiences import BEGINNING, ByteRange, File, KeyRange, PushTable
from shared.audience.rules.columns import NamedColumns
from shared.audience.rules.csv_cuts import users_in
from shared.audience.rules.zones import REST, describe_rest
from shared.core.errors import Invalid, Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import DEVICES_AT_ONCE, Audience, DividedUsers
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.dividing import FoundDevices, find_devices, next_step
from shared.jobs.rules.groups import Division, Step, zone_rules
from shared.jobs.rules.jobs import Job
from shared.runtime.faults import fault
from shared.runtime.settings import WorkerSettings
from shared.store import Store

log = structlog.get_logger(__name__)
_CUTS_AT_ONCE = 4
_LEASE = timedelta(seconds=15)


class ZoneCuts:
    """Makes the batches of zones from the division of their group."""

    def __init__(self, store: Store, divider: "Divider", *, page_batches: int) -> None:
        self._store = store
        self._divider = divider
        self._page_batches = page_batches

    async def pages(self, job: Job, first: int, size: int) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches from number `first` on; empty pages while the division is made. Its lists have `size` devices
        unless another job of the group has begun it. Raises `Invalid`."""
        async with aclosing(self._divider.complete(job, size)) as steps:
            async for _ in steps:
                yield []
        division = await self._store.divisions.steps(job.file_plan_id)
        planned = [PlannedBatch(list_, size) for step in division for list_, size in step.lists(job.zone)]
        for start in range(first, len(planned), self._page_batches):
            yield planned[start : start + self._page_batches]

    async def sum_up(self, job: Job, devices: int) -> tuple[int, list[str]]:
        """The number of users of the group's file without a device, if this job counts them, and the sentence about
        these devices, if its zone is `REST`."""
        last = await self._store.divisions.last_step(job.file_plan_id) if job.divided else None
        if last is None:
            return 0, []
        about = [describe_rest(devices, last.rest_values)] if job.zone == REST and devices else []
        return last.unknown if job.csv_path and job.counts_unknown else 0, about


class Divider:
    def __init__(self, store: Store, audience: Audience, blobs: Blobs, file_cuts: FileCuts, *, step_rows: int) -> None:
        self._store = store
        self._audience = audience
        self._blobs = blobs
        self._file_cuts = file_cuts
        self._step_rows = step_rows

    async def complete(self, job: Job, size: int) -> AsyncGenerator[None]:
        """Divide to the end, from the last step; yields after each step, and more often while a file is read. Raises
        `Unavailable` while another planner divides, `Invalid` if the table or the file cannot be divided."""
        step = await self._store.divisions.last_step(job.file_plan_id)
        if step is not None and step.last:
            return
        division = await self._begin(job, size)
        async with self._hold(division) as holder, aclosing(self._add_steps(job, division)) as steps:
            async for _ in steps:
                await self._renew(division, holder)
                yield

    async def _begin(self, job: Job, size: int) -> Division:
        """The division, whose source is that of the first job of the group."""
        assert job.plan.source is not None
        wanted = Division(id=job.file_plan_id, source=job.plan.source, size=size)
        return await self._store.divisions.get(wanted.id) or await self._store.divisions.begin(wanted)

    async def _add_steps(self, job: Job, division: Division) -> AsyncGenerator[None]:
        """Add step after step. If another planner was faster, continue from its last step."""
        before = await self._store.divisions.last_step(division.id)
        while before is None or not before.last:
            async with aclosing(self._read_on(job, division, before)) as findings:
                async for found in findings:
                    mine = True
                    if found is not None:
                        mine, before = await self._add_step(division, before, found)
                    # Yield after another planner's step too: the caller learns there that it was overtaken.
                    yield
                    if not mine:
                        before = await self._store.divisions.last_step(division.id)
                        break

    async def _add_step(self, division: Division, before: Step | None, found: FoundDevices) -> tuple[bool, Step]:
        """Store a step; returns whether it was stored first, and the step that counts."""
        step, lists = next_step(division, before, found, attempt=secrets.token_hex(8))
        await self._store.divisions.add_lists(lists)
        await fault("divide.after_lists")
        counting = await self._store.divisions.add_step(step)
        mine = counting.attempt == step.attempt
        if not mine:
            await self._store.divisions.remove_lists(step)
        await fault("divide.after_step")
        return mine, counting

    def _read_on(self, job: Job, division: Division, before: Step | None) -> AsyncGenerator[FoundDevices | None]:
        """The devices that follow, part by part. `None` means that reading goes on."""
        match division.source:
            case PushTable(highest):
                return self._walk_table(job, BEGINNING if before is None else before.edge, highest)
            case File() as file:
                return self._walk_file(job, division.id, 0 if before is None else before.edge, file)

    async def _walk_table(self, job: Job, after: int, highest: int) -> AsyncGenerator[FoundDevices | None]:
        last = False
        while not last:
            divided = await self._audience.divide(
                job.table, job.filters, after=after, upto=highest, rows=self._step_rows
            )
            after, last = divided.edge, divided.last
            yield find_devices(after, divided.keys, zone_rules(job), last=last)

    async def _walk_file(self, job: Job, plan_id: str, cut: int, file: File) -> AsyncGenerator[FoundDevices | None]:
        async with aclosing(self._file_cuts.pages(plan_id, cut)) as pages:
            async for page in pages:
                ranges = [batch.range for batch in page if isinstance(batch.range, ByteRange)]
                cut += len(ranges)
                yield await self._look_up_cuts(job, ranges, file, upto=cut) if ranges else None
        yield FoundDevices(cut, {}, last=True)

    async def _look_up_cuts(self, job: Job, cuts: Sequence[ByteRange], file: File, *, upto: int) -> FoundDevices:
        found: list[DividedUsers] = []
        for first in range(0, len(cuts), _CUTS_AT_ONCE):
            portion = cuts[first : first + _CUTS_AT_ONCE]
            found += await asyncio.gather(*(self._look_up_cut(job, lines, file) for lines in portion))
        keys = chain.from_iterable(divided.keys for divided in found)
        unknown = sum(lines.users for lines in cuts) - sum(divided.users for divided in found)
        return find_devices(upto, keys, zone_rules(job), unknown=unknown)

    async def _look_up_cut(self, job: Job, lines: ByteRange, file: File) -> DividedUsers:
        async with aclosing(self._blobs.read(file, lines.start, lines.end)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        return await self._look_up_users(job, [user for user in users_in(lines, content) if user])

    async def _look_up_users(self, job: Job, users: Sequence[str]) -> DividedUsers:
        """A user with more devices than any person has counts as one without devices."""
        found = await self._audience.divide_users(job.table, users, limit=DEVICES_AT_ONCE)
        if found is not None:
            return found
        if len(users) == 1:
            log.warning("user left out: too many devices", job_id=job.id, limit=DEVICES_AT_ONCE)
            return DividedUsers([], 0)
        half = len(users) // 2
        early, late = await self._look_up_users(job, users[:half]), await self._look_up_users(job, users[half:])
        return DividedUsers(early.keys + late.keys, early.users + late.users)

    @asynccontextmanager
    async def _hold(self, division: Division) -> AsyncIterator[str]:
        holder = secrets.token_hex(8)
        if not await self._store.divisions.take(division.id, holder, before=await self._store.now() - _LEASE):
            raise Unavailable("another planner divides the devices of this group")
        try:
            yield holder
        finally:
            with suppress(Unavailable):
                await self._store.divisions.release(division.id, holder)

    async def _renew(self, division: Division, holder: str) -> None:
        if await self._store.divisions.renew(division.id, holder):
            return
        if await self._store.divisions.get(division.id) is None:
            # It was removed with its jobs, so the step just stored must go too.
            await self._store.divisions.remove_of([division.id])
            raise Invalid("the division is gone", field="job")
        raise Unavailable("another planner divides the devices of this group by now")


class Cuts:
    def __init__(self, store: Store, audience: Audience, blobs: Blobs, worker: WorkerSettings) -> None:
        self._tables = TableCuts(audience, page_batches=worker.page_batches)
        recipients = RecipientTables.beside(audience)
        self._named_tables = TableCuts(recipients, page_batches=worker.page_batches)
        self._distinct = DistinctCuts(recipients, self._named_tables)
        self._files = FileCuts(store, blobs)
        divider = Divider(store, audience, blobs, self._files, step_rows=worker.divide_rows)
        self._zones = ZoneCuts(store, divider, page_batches=worker.page_batches)

    def pages(
        self, job: Job, last: Batch | None, size: int, named: NamedColumns | None = None
    ) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches behind the last one, a page at a time; an empty page means that reading goes on. Raises
        `Invalid`."""
        first = 0 if last is None else last.ordinal + 1
        if job.divided:
            return self._zones.pages(job, first, size)
        match job.plan.source:
            case PushTable(highest):
                keys = None if last is None else last.range
                assert keys is None or isinstance(keys, KeyRange)
                if named is not None and named.once:
                    return self._distinct.pages(job, highest, keys, size, named)
                tables = self._tables if named is None else self._named_tables
                return tables.pages(job, highest, keys, size)
            case File():
                return self._files.pages(job.file_plan_id, first, named=named)
            case None:
                raise AssertionError("a plan is begun before it is cut")
            case source:
                assert_never(source)

    async def sum_up(self, job: Job, devices: int) -> tuple[int, list[str]]:
        """As `ZoneCuts.sum_up`."""
        return await self._zones.sum_up(job, devices)
