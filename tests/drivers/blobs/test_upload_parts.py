"""What uploads in parts promise, in a folder and in S3."""

import asyncio
from contextlib import suppress

import pytest

from shared.core.errors import Conflict, NotFound
from shared.drivers.blobs import Blobs
from shared.drivers.blobs.files import FolderBlobs
from shared.jobs.rules.uploads import MIN_PART_BYTES
from tests.drivers.blobs.owners import Owner

LARGE = bytes(range(256)) * (MIN_PART_BYTES // 256)


async def test_parts_in_any_order_become_the_object_that_nobody_saw_before(
    blobs: Blobs, owner: Owner, path: str
) -> None:
    token = await blobs.begin_parts(path)
    last = await blobs.write_part(path, token, 2, b"the end")
    first = await blobs.write_part(path, token, 1, LARGE)
    with pytest.raises(NotFound):
        await blobs.stat(path)
    await blobs.join_parts(path, token, [(1, first), (2, last)])
    assert owner.get(path) == LARGE + b"the end"
    assert owner.unfinished(blobs.bucket) == 0


async def test_a_part_that_comes_again_takes_the_place_of_the_one_before(blobs: Blobs, owner: Owner, path: str) -> None:
    token = await blobs.begin_parts(path)
    before = await blobs.write_part(path, token, 1, b"once")
    after = await blobs.write_part(path, token, 1, b"twice")
    with pytest.raises(Conflict, match="another content"):
        await blobs.join_parts(path, token, [(1, before)])
    with pytest.raises(Conflict, match="is not there"):
        await blobs.join_parts(path, token, [(2, after)])
    assert await blobs.write_part(path, token, 1, b"twice") == after
    await blobs.join_parts(path, token, [(1, after)])
    assert owner.get(path) == b"twice"


async def test_a_small_part_may_only_be_the_last(blobs: Blobs, owner: Owner, path: str) -> None:
    token = await blobs.begin_parts(path)
    parts = [(number, await blobs.write_part(path, token, number, b"small")) for number in (1, 2)]
    with pytest.raises(Conflict, match="too small"):
        await blobs.join_parts(path, token, parts)
    await blobs.drop_parts(path, token)
    assert owner.unfinished(blobs.bucket) == 0


async def test_an_upload_that_is_over_stays_as_it_is(blobs: Blobs, owner: Owner, path: str) -> None:
    token = await blobs.begin_parts(path)
    version = await blobs.write_part(path, token, 1, b"kept")
    await blobs.join_parts(path, token, [(1, version)])
    with suppress(NotFound):  # S3 may answer as it did before
        await blobs.join_parts(path, token, [(1, version)])
    await blobs.drop_parts(path, token)
    assert owner.get(path) == b"kept"
    assert owner.unfinished(blobs.bucket) == 0


async def test_an_upload_that_was_dropped_leaves_nothing(blobs: Blobs, owner: Owner, path: str) -> None:
    token = await blobs.begin_parts(path)
    await blobs.write_part(path, token, 1, b"gone")
    await blobs.drop_parts(path, token)
    await blobs.drop_parts(path, token)
    with pytest.raises(NotFound):
        await blobs.stat(path)
    assert owner.unfinished(blobs.bucket) == 0


async def test_an_upload_that_was_dropped_takes_no_part_and_is_not_joined(folder: FolderBlobs) -> None:
    """S3, too: see `test_s3_answers`. Its stand-in answers 500."""
    path = f"{folder.bucket}/jobs/players.csv"
    token = await folder.begin_parts(path)
    version = await folder.write_part(path, token, 1, b"gone")
    await folder.drop_parts(path, token)
    with pytest.raises(NotFound):
        await folder.write_part(path, token, 1, b"late")
    with pytest.raises(NotFound):
        await folder.join_parts(path, token, [(1, version)])


async def test_two_uploads_know_nothing_of_each_other(blobs: Blobs, owner: Owner, path: str) -> None:
    paths = [path, f"{path}.other"]
    tokens = [await blobs.begin_parts(each) for each in paths]
    writes = [blobs.write_part(each, token, 1, token.encode()) for each, token in zip(paths, tokens, strict=True)]
    for each, token, version in zip(paths, tokens, await asyncio.gather(*writes), strict=True):
        await blobs.join_parts(each, token, [(1, version)])
        assert owner.get(each) == token.encode()
