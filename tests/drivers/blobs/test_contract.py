"""What blobs promise, in a folder and in S3."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import msgspec
import pytest

from shared.audience.rules.audiences import File
from shared.core.errors import Invalid, NotFound
from shared.drivers.blobs import CHUNK_BYTES, Blobs
from tests.drivers.blobs.conftest import Place
from tests.drivers.blobs.owners import Owner, parts
from tests.tiers import and_rarely

PART = 8 * 2**20  # of a write to S3
PATTERN = bytes(range(251)) * 20_000  # 5 MB in which no two chunks are alike


async def read(blobs: Blobs, blob: File, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(blob, start, blob.size if end is None else end)])


async def test_what_the_owner_put_is_seen_and_read(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"userIds\n1\n2\n")
    blob = await blobs.stat(path)
    assert (blob.path, blob.size) == (path, 12)
    assert await read(blobs, blob) == b"userIds\n1\n2\n"


async def test_every_range_is_just_its_bytes(blobs: Blobs, owner: Owner, path: str) -> None:
    content = b"abcde"
    owner.put(path, content)
    blob = await blobs.stat(path)
    for start in range(6):
        for end in range(8):
            assert await read(blobs, blob, start, end) == content[start:end], (start, end)


async def test_a_large_range_comes_in_bounded_chunks(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, PATTERN)
    blob = await blobs.stat(path)
    chunks = [chunk async for chunk in blobs.read(blob, 7, blob.size - 9)]
    assert b"".join(chunks) == PATTERN[7:-9]
    assert max(map(len, chunks)) <= CHUNK_BYTES


async def test_an_empty_object_is_one(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"")
    blob = await blobs.stat(path)
    assert blob.size == 0
    assert await read(blobs, blob) == b""


async def test_names_are_taken_as_they_are(blobs: Blobs, owner: Owner) -> None:
    for key in (
        "a b/c  d.csv",
        "jogadores/ção-🎺-ﬁ.csv",
        "50%/100%25.csv",
        "a+b&c=d?e#f.csv",
        "a..b/...csv/.hidden",
        "back\\slash'\"quotes<>",
        "a:b;c,d@e!f$g(h)i*",
        "%2e%2e/x",
        "~user",
    ):
        path = f"{blobs.bucket}/{key}"
        owner.put(path, b"theirs")
        assert await read(blobs, await blobs.stat(path)) == b"theirs", key
        await blobs.write(path, parts(b"ours"))
        assert owner.get(path) == b"ours", key


async def test_an_allowed_bucket_can_be_read(place: Place) -> None:
    place.owner.put(f"{place.other}/a.csv", b"x")
    assert (await place.blobs.stat(f"{place.other}/a.csv")).size == 1


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("", "<bucket>/<key>"),
        ("a\0b", "control characters"),
        ("a\nb", "control characters"),
        ("..", r"\. or \.\."),
        ("../other-bucket/a.csv", r"\. or \.\."),
        ("a/../../b", r"\. or \.\."),
        ("a/./b", r"\. or \.\."),
        ("x" * 1_025, "1024 bytes"),
        ("é" * 513, "1024 bytes"),
        ("\ud800", "UTF-8"),
    ],
)
async def test_a_key_that_breaks_a_rule_is_told_which(blobs: Blobs, key: str, rule: str) -> None:
    path = f"{blobs.bucket}/{key}"
    with pytest.raises(Invalid, match=rule) as caught:
        await blobs.stat(path)
    assert caught.value.field == "csvPath"
    msgspec.json.encode(caught.value.value)  # an answer can show it
    with pytest.raises(Invalid, match=rule):
        await blobs.write(path, parts(b"x"))
    with pytest.raises(Invalid, match=rule):
        await blobs.upload_url(path, seconds=60)
    with pytest.raises(Invalid, match=rule):
        await anext(blobs.read(File(path, 1, "?"), 0, 1))


@pytest.mark.parametrize(
    "path", ["", "/", "a.csv", "nobodys/a.csv", "/etc/passwd", "s3://b/k", "..", "../x", ".partial/a"]
)
async def test_a_path_outside_the_allowed_buckets_is_refused(blobs: Blobs, path: str) -> None:
    with pytest.raises(Invalid, match="invalid csvPath: ") as caught:
        await blobs.stat(path)
    assert caught.value.field == "csvPath"


async def test_a_missing_object_is_not_found(place: Place, path: str) -> None:
    place.owner.put(path, b"x")
    for missing in (f"{path}x", path[:-1], f"{place.blobs.bucket}/jobs", f"{place.away}/a.csv"):
        with pytest.raises(NotFound, match="there is no such") as caught:
            await place.blobs.stat(missing)
        assert caught.value.field == "csvPath"


async def test_another_content_is_another_version(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"one")
    first = await blobs.stat(path)
    assert await blobs.stat(path) == first
    await asyncio.sleep(0.02)  # a file system keeps time in steps of up to 10 ms
    owner.put(path, b"two")
    assert (await blobs.stat(path)).version != first.version
    with pytest.raises(Invalid, match="has changed") as caught:
        await read(blobs, first)
    assert caught.value.field == "csvPath"


async def test_a_shorter_object_is_another_one(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"0123456789")
    blob = await blobs.stat(path)
    owner.put(path, b"01234")
    with pytest.raises(Invalid, match="has changed"):
        await read(blobs, blob, 7, 9)


async def test_an_object_that_is_gone_is_told_so(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"x")
    blob = await blobs.stat(path)
    owner.delete(path)
    with pytest.raises(Invalid, match="is gone") as caught:
        await read(blobs, blob)
    assert caught.value.field == "csvPath"


async def test_what_comes_is_of_one_version_whenever_it_changes(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, PATTERN)
    blob = await blobs.stat(path)
    got = b""
    with suppress(Invalid):
        async for chunk in blobs.read(blob, 0, blob.size):
            if not got:
                await asyncio.sleep(0.02)
                owner.put(path, PATTERN[::-1])
            got += chunk
    assert got
    assert got == PATTERN[: len(got)]


async def test_a_version_can_be_stored_and_read_by_another_process(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, b"x")
    stored = msgspec.json.encode(await blobs.stat(path))
    assert await read(blobs, msgspec.json.decode(stored, type=File)) == b"x"


async def test_leaving_a_read_early_leaves_nothing_open(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, PATTERN[:500_000])
    blob = await blobs.stat(path)
    for _ in range(60):  # more than there are connections
        async with aclosing(blobs.read(blob, 0, blob.size)) as chunks:
            await anext(chunks)
    assert await read(blobs, blob, 0, 3) == PATTERN[:3]


async def test_many_read_at_once(blobs: Blobs, owner: Owner, path: str) -> None:
    owner.put(path, PATTERN[:10_000])
    blob = await blobs.stat(path)
    pieces = await asyncio.gather(*(read(blobs, blob, at, at + 500) for at in range(0, 10_000, 500)))
    assert b"".join(pieces) == PATTERN[:10_000]


@pytest.mark.parametrize("size", and_rarely(0, 1, PART + 1, rarely=(PART - 1, PART)))
async def test_a_write_of_any_size_is_what_the_owner_gets(blobs: Blobs, owner: Owner, path: str, size: int) -> None:
    content = (PATTERN * 2)[:size]
    await blobs.write(path, parts(content[:5], b"", content[5:1_000], content[1_000:]))
    assert owner.get(path) == content
    assert (await blobs.stat(path)).size == size
    assert owner.unfinished(blobs.bucket) == 0


async def test_a_write_replaces(blobs: Blobs, owner: Owner, path: str) -> None:
    await blobs.write(path, parts(b"first"))
    before = await blobs.stat(path)
    await blobs.write(path, parts(b"second"))
    assert owner.get(path) == b"second"
    with pytest.raises(Invalid, match="has changed"):
        await read(blobs, before)


@pytest.mark.parametrize("size", [10, PART + 10])
async def test_a_write_that_fails_changes_nothing(blobs: Blobs, owner: Owner, path: str, size: int) -> None:
    await blobs.write(path, parts(b"kept"))

    async def breaking() -> AsyncIterator[bytes]:
        yield bytes(size)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await blobs.write(path, breaking())
    assert owner.get(path) == b"kept"
    assert owner.unfinished(blobs.bucket) == 0


@pytest.mark.parametrize("size", [10, PART + 10])
async def test_a_write_that_is_cancelled_changes_nothing(blobs: Blobs, owner: Owner, path: str, size: int) -> None:
    await blobs.write(path, parts(b"kept"))
    begun, never = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(size)
        begun.set()
        await never.wait()

    writing = asyncio.create_task(blobs.write(path, endless()))
    async with asyncio.timeout(30):
        await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert owner.get(path) == b"kept"
    assert owner.unfinished(blobs.bucket) == 0


async def test_two_writes_at_once_leave_one_of_them_whole(blobs: Blobs, owner: Owner, path: str) -> None:
    contents = [bytes([number]) * 300_000 for number in range(4)]
    await asyncio.gather(*(blobs.write(path, parts(each[:99], each[99:])) for each in contents))
    assert owner.get(path) in contents


async def test_whether_we_can_read_and_write_is_found_out_without_an_object(blobs: Blobs, owner: Owner) -> None:
    await blobs.verify()
    assert owner.unfinished(blobs.bucket) == 0
