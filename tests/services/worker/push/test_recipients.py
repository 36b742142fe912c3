"""Whom a batch of a file is sent to in each zone, and who counts those whom nobody knows."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from services.worker.push.recipients import GONE, TOO_MANY_DEVICES, RecipientReader
from shared.audience.rules.audiences import ByteRange, File, KeyRange
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.postgres import DEVICES_AT_ONCE, Audience
from shared.jobs.rules.batches import Batch, Receipt
from shared.jobs.rules.jobs import Job, Plan
from shared.store import Store
from tests.jobs.made import a_job

pytestmark = pytest.mark.native

CONTENT = b"id\nu1\nu2\nu3\nx1\nx2\n"
LINES = ByteRange(3, len(CONTENT), 5)
DEVICES = [("u1", "-0300", 1), ("u1", "+0100", 2), ("u2", "-0300", 3), ("u3", None, 4)]


@pytest.fixture
async def audience(push_database: str) -> AsyncIterator[Audience]:
    owner = await asyncpg.connect(push_database)
    await owner.execute(
        "CREATE TABLE game_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint)"
    )
    await owner.close()
    await add_devices(push_database, DEVICES)
    opened = Audience.open(push_database, pool_size=1, statement_timeout_seconds=10)
    yield opened
    await opened.close()


async def add_devices(url: str, devices: Sequence[tuple[str, str | None, int]]) -> None:
    owner = await asyncpg.connect(url)
    await owner.copy_records_to_table("game_apns", records=devices, columns=("user_id", "tz", "seq_id"))
    await owner.close()


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs.open(tmp_path.as_uri())


async def the_file(blobs: FolderBlobs) -> File:
    async def content() -> AsyncIterator[bytes]:
        yield CONTENT

    path = f"{blobs.bucket}/users.csv"
    await blobs.write(path, content())
    return await blobs.stat(path)


async def read(reader: RecipientReader, job: Job) -> tuple[list[int], int]:
    """The seq_ids of whom the job's only batch is for, and how many it counts as unknown."""
    found = await reader.recipients(job, Batch(job_id=job.key, ordinal=0, range=LINES, size=0), fitting=100)
    assert found.next is None
    return found.devices.keys.tolist(), found.receipt.unknown


async def in_parts(reader: RecipientReader, job: Job, batch: Batch, *, fitting: int) -> tuple[list[list[int]], Receipt]:
    """The seq_ids of each part of a batch, and what is known of all others."""
    parts = []
    while True:
        found = await reader.recipients(job, batch, fitting=fitting)
        parts.append(found.devices.keys.tolist())
        receipt = batch.receipt + found.receipt + Receipt(sent=len(found.devices))
        batch = replace(batch, parts=batch.parts + 1, next=found.next, receipt=receipt)
        if found.next is None:
            return parts, receipt


@pytest.mark.parametrize(
    ("fitting", "halvings", "expected"),
    [
        (100, 0, [[1, 2, 2, 2, 3, 4, 5, 6]]),
        (2, 0, [[1, 2, 2, 2], [3, 4], [5, 6]]),  # rows of one key are never parted
        (3, 0, [[1, 2, 2, 2], [3, 4, 5], [6]]),
        (100, 4, [[1, 2, 2, 2, 3, 4], [5, 6]]),  # a sixteenth of 100
        (100, 30, [[1], [2, 2, 2], [3], [4], [5], [6]]),
    ],
)
async def test_a_range_of_a_table_is_read_in_parts(
    push_database: str,
    store: Store,
    audience: Audience,
    blobs: FolderBlobs,
    fitting: int,
    halvings: int,
    expected: list[list[int]],
) -> None:
    await add_devices(push_database, [("v", "-0300", n) for n in (2, 2, 5, 6)])
    batch = Batch(job_id="j", ordinal=0, range=KeyRange(0, 6), size=9, halvings=halvings)

    parts, receipt = await in_parts(
        RecipientReader(store, audience, blobs, batch_size=100), a_job(app_name="game"), batch, fitting=fitting
    )

    assert parts == expected
    assert receipt == Receipt(sent=8, skipped=1, reasons={GONE: 1})


async def test_a_part_of_a_table_has_no_more_devices_than_a_batch(
    store: Store, audience: Audience, blobs: FolderBlobs
) -> None:
    batch = Batch(job_id="j", ordinal=0, range=KeyRange(0, 6), size=4)

    parts, _ = await in_parts(
        RecipientReader(store, audience, blobs, batch_size=3), a_job(app_name="game"), batch, fitting=100
    )

    assert parts == [[1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("fitting", "halvings", "expected"),
    [
        (100, 0, [[1, 2, 3, 4]]),
        (3, 0, [[1, 2, 3], [4]]),
        (2, 0, [[1, 2], [3, 4]]),
        (1, 0, [[1, 2], [3], [4]]),  # one user's devices stay together
        (100, 1, [[1, 2, 3], [4], []]),
    ],
)
async def test_the_users_of_a_file_are_read_in_parts(
    store: Store, audience: Audience, blobs: FolderBlobs, fitting: int, halvings: int, expected: list[list[int]]
) -> None:
    file = await the_file(blobs)
    job = a_job(app_name="game", csv_path=file.path, plan=Plan(source=file))
    batch = Batch(job_id="j", ordinal=0, range=LINES, size=5, halvings=halvings)

    parts, receipt = await in_parts(
        RecipientReader(store, audience, blobs, batch_size=100), job, batch, fitting=fitting
    )

    assert parts == expected
    assert receipt == Receipt(sent=4, unknown=2)


async def test_a_user_with_more_devices_than_anybody_has_fails_alone(
    push_database: str, store: Store, audience: Audience, blobs: FolderBlobs
) -> None:
    file = await the_file(blobs)
    job = a_job(app_name="game", csv_path=file.path, plan=Plan(source=file))
    await add_devices(push_database, [("u2", "-0300", n) for n in range(10, DEVICES_AT_ONCE + 10)])
    batch = Batch(job_id="j", ordinal=0, range=LINES, size=5)

    parts, receipt = await in_parts(RecipientReader(store, audience, blobs, batch_size=100), job, batch, fitting=100)

    assert sorted(seq_id for part in parts for seq_id in part) == [1, 2, 4]
    assert receipt == Receipt(sent=3, failed=1, unknown=2, reasons={TOO_MANY_DEVICES: 1})
