"""Whom a batch of a file is sent to in each zone, and who counts those whom nobody knows."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from services.worker.recipients import Reader
from shared.audience import Audience
from shared.blobs.files import FolderBlobs
from shared.domain.batches import Batch, ByteRange
from shared.domain.groups import grouped, zone_jobs
from shared.domain.jobs import Job, Plan
from shared.domain.sources import File
from shared.domain.zones import REST
from tests.store.made import a_job

pytestmark = pytest.mark.native

CONTENT = b"id\nu1\nu2\nu3\nx1\nx2\n"
DEVICES = [("u1", "-0300", 1), ("u1", "+0100", 2), ("u2", "-0300", 3), ("u3", None, 4)]


@pytest.fixture
async def audience(push_database: str) -> AsyncIterator[Audience]:
    owner = await asyncpg.connect(push_database)
    await owner.execute(
        "CREATE TABLE game_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint)"
    )
    await owner.executemany("INSERT INTO game_apns (user_id, tz, seq_id) VALUES ($1, $2, $3)", DEVICES)
    await owner.close()
    opened = await Audience.open(push_database, pool_size=1, statement_timeout_seconds=10)
    yield opened
    await opened.close()


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs.open(tmp_path.as_uri())


async def the_file(blobs: FolderBlobs) -> File:
    async def content() -> AsyncIterator[bytes]:
        yield CONTENT

    path = f"{blobs.bucket}/users.csv"
    await blobs.write(path, content())
    return await blobs.stat(path)


async def read(reader: Reader, job: Job) -> tuple[list[int], int]:
    """The seq_ids of whom the job's only batch is for, and how many it counts as unknown."""
    lines = ByteRange(3, len(CONTENT), 5)
    found = await reader.recipients(job, Batch(job_id=job.id, ordinal=0, range=lines, size=0))
    return [row[0] for row in found.rows], found.receipt.unknown


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        (["-0300", "+0100", REST], [([1, 3], 0), ([2], 0), ([4], 2)]),
        (["+0100", "-0300"], [([2], 0), ([1, 3], 2)]),  # the start of those without a zone has passed
    ],
)
async def test_the_last_zone_of_a_group_counts_the_unknown(
    audience: Audience, blobs: FolderBlobs, zones: list[str], expected: list[tuple[list[int], int]]
) -> None:
    file, group_id = await the_file(blobs), str(uuid.uuid4())
    asked = a_job(app_name="game", group_id=group_id, csv_path=file.path, localized=True, plan=Plan(source=file))

    jobs = zone_jobs(grouped(asked, [(zone, 1) for zone in zones]))

    assert [await read(Reader(audience, blobs), job) for job in jobs] == expected


def test_a_batch_of_a_zone_stakes_the_users_of_its_lines() -> None:
    """Until it is read nobody knows which of them belong to the zone."""
    lines = ByteRange(3, 90, 5, repeated=bytes([0b10000000]))
    assert Batch(job_id="j", ordinal=0, range=lines, size=0).at_stake == 4
    assert Batch(job_id="j", ordinal=0, range=lines, size=3).at_stake == 3
