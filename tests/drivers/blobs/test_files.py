"""What is particular to a folder."""

import os
import signal
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from shared.core.errors import Forbidden, Invalid, NotFound, Unavailable
from shared.drivers.blobs.files import ABANDONED_SECONDS, BUCKET, FolderBlobs
from tests.drivers.blobs.conftest import folder_blobs
from tests.drivers.blobs.owners import parts
from tests.stack.places import CHECKOUT

PATH = f"{BUCKET}/jobs/job 1-ç.csv"


KILLED = """
import asyncio, os, signal, sys
from shared.drivers.blobs.files import FolderBlobs

async def parts():
    yield b"half"
    os.kill(os.getpid(), signal.SIGKILL)
    yield b"the rest"

asyncio.run(FolderBlobs.open(sys.argv[1]).write(sys.argv[2], parts()))
"""


class SetClock:
    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def now_ns(self) -> int:
        return int(self.seconds * 1e9)


async def refused(blobs: FolderBlobs, path: str) -> None:
    with pytest.raises(NotFound):
        await blobs.stat(path)


@pytest.mark.parametrize(
    "url", ["file://host/a", "file://", "file:relative", "file:///a?b", "file:///a#b", "file:///a%00"]
)
def test_a_url_without_an_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="absolute"):
        FolderBlobs.open(url)


async def test_a_folder_with_blanks_is_found_and_made_at_the_first_write(tmp_path: Path) -> None:
    blobs = folder_blobs(tmp_path / "my data" / "blobs")
    await refused(blobs, PATH)
    await blobs.write(PATH, parts(b"x"))
    assert (tmp_path / "my data" / "blobs" / PATH).read_bytes() == b"x"


async def test_no_link_is_followed_wherever_it_leads(folder: FolderBlobs, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text("secret")
    bucket = tmp_path / BUCKET
    bucket.mkdir()
    (bucket / "file").symlink_to(outside / "secret.csv")
    (bucket / "folder").symlink_to(outside)
    (bucket / "loop").symlink_to("loop")
    (tmp_path / "other-bucket").symlink_to(outside)
    for path in ("carillon/file", "carillon/folder/secret.csv", "carillon/loop", "other-bucket/secret.csv"):
        await refused(folder, path)
    for path in ("carillon/folder/new.csv", "other-bucket/new.csv"):
        with pytest.raises(Invalid, match="link"):
            await folder.write(path, parts(b"x"))
    assert [file.name for file in outside.iterdir()] == ["secret.csv"]


async def test_a_link_in_the_place_of_a_file_is_replaced_not_written_through(
    folder: FolderBlobs, tmp_path: Path
) -> None:
    (tmp_path / "outside.csv").write_text("untouched")
    (tmp_path / BUCKET).mkdir()
    (tmp_path / BUCKET / "a.csv").symlink_to(tmp_path / "outside.csv")
    await folder.write(f"{BUCKET}/a.csv", parts(b"ours"))
    assert (tmp_path / "outside.csv").read_text() == "untouched"
    assert (await folder.stat(f"{BUCKET}/a.csv")).size == 4


async def test_only_regular_files_are_objects(folder: FolderBlobs, tmp_path: Path) -> None:
    (tmp_path / BUCKET / "folder").mkdir(parents=True)
    os.mkfifo(tmp_path / BUCKET / "pipe")
    await refused(folder, f"{BUCKET}/folder")
    await refused(folder, f"{BUCKET}/pipe")
    await folder.write(f"{BUCKET}/file", parts(b"x"))
    await refused(folder, f"{BUCKET}/file/a.csv")
    for path in (f"{BUCKET}/folder", f"{BUCKET}/file/a.csv"):
        with pytest.raises(Invalid, match="a folder has its name"):
            await folder.write(path, parts(b"x"))
    assert list((tmp_path / ".partial").iterdir()) == []


@pytest.mark.parametrize("key", ["/a", "a//b", "a/", "x" * 256])
async def test_what_is_no_name_of_a_file_is_refused(folder: FolderBlobs, key: str) -> None:
    with pytest.raises(Invalid, match="where files lie in a folder"):
        await folder.stat(f"{BUCKET}/{key}")


async def test_a_file_whose_time_was_set_back_has_changed_all_the_same(folder: FolderBlobs, tmp_path: Path) -> None:
    await folder.write(PATH, parts(b"one"))
    before = (tmp_path / PATH).stat()
    blob = await folder.stat(PATH)
    time.sleep(0.02)  # the file system keeps time in steps
    (tmp_path / PATH).write_bytes(b"two")
    os.utime(tmp_path / PATH, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Invalid, match="has changed"):
        await anext(folder.read(blob, 0, 3))


async def test_a_file_where_the_folder_should_be_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blobs = folder_blobs(tmp_path / "file")
    with pytest.raises(Unavailable, match="cannot be used") as caught:
        await blobs.write(PATH, parts(b"x"))
    assert str(tmp_path) not in str(caught.value)


async def test_a_write_that_is_killed_changes_nothing(folder: FolderBlobs, tmp_path: Path) -> None:
    await folder.write(PATH, parts(b"kept"))
    program = [sys.executable, "-c", KILLED, tmp_path.as_uri(), PATH]
    writer = subprocess.run(program, cwd=CHECKOUT, timeout=50, check=False)
    assert writer.returncode == -signal.SIGKILL
    assert (tmp_path / PATH).read_bytes() == b"kept"
    assert [file.read_bytes() for file in (tmp_path / ".partial").iterdir()] == [b"half"]


async def test_what_a_kill_left_is_removed_after_a_day(folder: FolderBlobs, tmp_path: Path) -> None:
    drafts = tmp_path / ".partial"
    drafts.mkdir()
    for name, age in (("old", ABANDONED_SECONDS + 60), ("young", ABANDONED_SECONDS - 60)):
        (drafts / name).write_text("half")
        os.utime(drafts / name, (time.time() - age,) * 2)
    await folder.write(PATH, parts(b"x"))
    assert [file.name for file in drafts.iterdir()] == ["young"]


class Uploads:
    """A folder whose clock stands still, and the way from a URL to what the API makes of it."""

    def __init__(self, folder: Path) -> None:
        self.clock = SetClock()
        self.blobs = FolderBlobs.open(folder.as_uri(), clock=self.clock)

    async def put(self, url: str, *contents: bytes, max_bytes: int = 100) -> None:
        parts_of_url = urlsplit(url)
        assert parts_of_url.path.startswith("/uploads/")
        query = {name: values[0] for name, values in parse_qs(parts_of_url.query).items()}
        await self.blobs.accept_upload(
            unquote(parts_of_url.path.removeprefix("/uploads/")), **query, parts=parts(*contents), max_bytes=max_bytes
        )


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path)


async def test_anybody_may_put_what_a_url_names(uploads: Uploads, tmp_path: Path) -> None:
    url = await uploads.blobs.upload_url(PATH, seconds=300)
    await uploads.put(url, b"userIds\n", b"1\n")
    assert (tmp_path / PATH).read_bytes() == b"userIds\n1\n"


async def test_a_url_serves_until_it_expires(uploads: Uploads) -> None:
    url = await uploads.blobs.upload_url(PATH, seconds=300)
    uploads.clock.seconds += 299
    await uploads.put(url, b"x")
    uploads.clock.seconds += 1
    with pytest.raises(Forbidden, match="expired"):
        await uploads.put(url, b"y")


async def test_a_url_that_was_changed_serves_nobody(uploads: Uploads, tmp_path: Path) -> None:
    url = await uploads.blobs.upload_url(f"{BUCKET}/a.csv", seconds=300)
    expires = str(int(uploads.clock.seconds) + 300)
    changed = [
        url.replace("a.csv", "b.csv"),
        url.replace("a.csv", "../b.csv"),
        url.replace("a.csv", "%ED%A0%80"),
        url.replace(expires, str(int(expires) + 1)),
        url.replace(expires, "later"),
        url.replace(expires, f"0{expires}"),
        url[:-1] + ("0" if url[-1] != "0" else "1"),
        url + "0",
        url.replace("signature=", "signature=é"),
    ]
    for each in changed:
        with pytest.raises(Forbidden, match="not a URL that was given out"):
            await uploads.put(each, b"x")
    assert not (tmp_path / BUCKET).exists()


async def test_nothing_is_taken_from_whoever_has_no_permit(uploads: Uploads) -> None:
    body = parts(b"x")
    with pytest.raises(Forbidden):
        await uploads.blobs.accept_upload(PATH, expires="1", signature="", parts=body, max_bytes=1)
    assert await anext(body) == b"x"


async def test_an_upload_that_is_too_large_is_refused_and_not_kept(uploads: Uploads, tmp_path: Path) -> None:
    url = await uploads.blobs.upload_url(PATH, seconds=300)
    await uploads.put(url, b"12345", b"67890", max_bytes=10)
    with pytest.raises(Invalid, match="at most 10 bytes") as caught:
        await uploads.put(url, b"12345", b"67890", b"1", max_bytes=10)
    assert caught.value.field == "body"
    assert (tmp_path / PATH).read_bytes() == b"1234567890"
    assert list((tmp_path / ".partial").iterdir()) == []


async def test_processes_on_one_folder_take_each_others_urls_and_no_others(tmp_path: Path) -> None:
    one, two, stranger = Uploads(tmp_path / "a"), Uploads(tmp_path / "a"), Uploads(tmp_path / "b")
    url = await one.blobs.upload_url(PATH, seconds=300)
    await two.put(url, b"x")
    with pytest.raises(Forbidden):
        await stranger.put(url, b"x")


async def test_the_secret_is_for_its_owner_only_and_no_object(uploads: Uploads, tmp_path: Path) -> None:
    await uploads.blobs.upload_url(PATH, seconds=300)
    assert [file.name for file in tmp_path.iterdir()] == [".upload-secret"]
    secret = tmp_path / ".upload-secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(secret.read_bytes()) == 32
    for path in (".upload-secret", f"{BUCKET}/../.upload-secret"):
        with pytest.raises(Invalid):
            await uploads.blobs.stat(path)
