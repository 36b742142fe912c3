"""What is particular to uploads in parts where files lie in a folder."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import NotFound
from shared.drivers.blobs.files import ABANDONED_SECONDS, BUCKET, FolderBlobs, FolderParts
from shared.jobs.rules.uploads import MIN_PART_BYTES
from tests.drivers.blobs.owners import FolderOwner, parts
from tests.stack.places import CHECKOUT

PATH = f"{BUCKET}/jobs/players.csv"
LARGE = b"x" * MIN_PART_BYTES
WHOLE = LARGE + b"the end"

KILLED = """
import ast, asyncio, os, shutil, signal, sys
from shared.drivers.blobs.files import FolderBlobs

def remove_one(folder):
    os.unlink(f"{folder}/00001")
    os.kill(os.getpid(), signal.SIGKILL)

shutil.rmtree = remove_one
url, path, token, parts = sys.argv[1:]
asyncio.run(FolderBlobs.open(url).join_parts(path, token, ast.literal_eval(parts)))
"""


class DroppedInBetween(list[tuple[int, str]]):
    """The parts of an upload that is dropped once the first one is read."""

    def __init__(self, parts: list[tuple[int, str]], drop: Callable[[], None]) -> None:
        super().__init__(parts)
        self._drop = drop

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for part in super().__iter__():
            yield part
            self._drop()


class Begun:
    """An upload of two parts."""

    def __init__(self, blobs: FolderBlobs, folder: Path) -> None:
        self.blobs = blobs
        self.token = ""
        self.parts: list[tuple[int, str]] = []
        self._folder = folder / ".parts"

    async def begin(self) -> None:
        self.token = await self.blobs.begin_parts(PATH)
        for number, content in ((1, LARGE), (2, b"the end")):
            self.parts.append((number, await self.blobs.write_part(PATH, self.token, number, content)))

    async def join(self) -> None:
        await self.blobs.join_parts(PATH, self.token, self.parts)

    def left(self) -> list[Path]:
        return [*self._folder.iterdir()]


@pytest.fixture
async def begun(folder: FolderBlobs, tmp_path: Path) -> Begun:
    upload = Begun(folder, tmp_path)
    await upload.begin()
    return upload


async def test_a_kill_while_the_parts_are_removed_leaves_an_upload_that_is_over(begun: Begun, tmp_path: Path) -> None:
    program = [sys.executable, "-c", KILLED, tmp_path.as_uri(), PATH, begun.token, repr(begun.parts)]
    joiner = subprocess.run(program, cwd=CHECKOUT, timeout=50, check=False)
    assert joiner.returncode == -signal.SIGKILL
    assert FolderOwner(tmp_path).get(PATH) == WHOLE
    with pytest.raises(NotFound):
        await begun.join()
    (left,) = begun.left()
    assert [part.name for part in left.iterdir()] == ["00002"]
    os.utime(left, (time.time() - ABANDONED_SECONDS - 60,) * 2)
    token = await begun.blobs.begin_parts(PATH)
    assert [folder.name for folder in begun.left()] == [token]


async def test_parts_that_cannot_be_removed_make_no_difference(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    await begun.join()
    with pytest.raises(NotFound):
        await begun.join()
    (left,) = begun.left()
    os.utime(left, (time.time() - ABANDONED_SECONDS - 60,) * 2)
    await begun.blobs.begin_parts(PATH)


async def test_an_upload_that_is_over_while_its_parts_are_read_is_over(begun: Begun, tmp_path: Path) -> None:
    folder, target = FolderParts(tmp_path / ".parts", abandoned_seconds=ABANDONED_SECONDS), tmp_path / "draft"
    target.touch()
    with pytest.raises(NotFound):
        folder.join(PATH, begun.token, DroppedInBetween(begun.parts, partial(folder.drop, begun.token)), target)


async def test_who_joins_second_does_not_replace_the_file(begun: Begun, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / ".parts" / begun.token, tmp_path / "before")
    await begun.join()
    first = await begun.blobs.stat(PATH)
    (tmp_path / "before").rename(tmp_path / ".parts" / begun.token)
    with pytest.raises(NotFound):
        await begun.join()
    assert await begun.blobs.stat(PATH) == first
    assert begun.left() == [*(tmp_path / ".partial").iterdir()] == []


async def test_many_who_join_at_once_make_one_file(begun: Begun, tmp_path: Path) -> None:
    outcomes = await asyncio.gather(*(begun.join() for _ in range(4)), return_exceptions=True)
    assert outcomes.count(None) == 1
    assert all(outcome is None or isinstance(outcome, NotFound) for outcome in outcomes)
    assert FolderOwner(tmp_path).get(PATH) == WHOLE
    assert begun.left() == [*(tmp_path / ".partial").iterdir()] == []


async def test_a_file_system_without_links_takes_uploads(
    begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    await begun.join()
    assert FolderOwner(tmp_path).get(PATH) == WHOLE


async def test_a_second_name_that_a_kill_left_stays_and_so_does_the_version(begun: Begun, tmp_path: Path) -> None:
    await begun.join()
    draft = tmp_path / ".partial" / "draft"
    os.link(tmp_path / PATH, draft)
    os.utime(draft, (time.time() - ABANDONED_SECONDS - 60,) * 2)
    before = await begun.blobs.stat(PATH)
    await begun.blobs.write(f"{BUCKET}/other.csv", parts(b"x"))
    assert await begun.blobs.stat(PATH) == before
    (tmp_path / PATH).unlink()
    await begun.blobs.write(f"{BUCKET}/other.csv", parts(b"x"))
    assert not draft.exists()


async def test_who_joins_does_not_bring_back_what_a_cancelled_task_removed(begun: Begun, tmp_path: Path) -> None:
    folder = FolderParts(tmp_path / ".parts", abandoned_seconds=ABANDONED_SECONDS)
    with pytest.raises(FileNotFoundError):
        folder.join(PATH, begun.token, begun.parts, tmp_path / "draft")
    assert not (tmp_path / "draft").exists()
