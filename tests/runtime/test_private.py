"""Folders and files that are closed to other users."""

import os
import stat
from pathlib import Path

import pytest

from shared.core.errors import Conflict
from shared.runtime.private import make_private_folder, private_files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_closed_to_others_and_those_above_stay_as_they_are(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "one" / "two", ours=())
    assert [mode(path) for path in (tmp_path / "one" / "two", tmp_path)] == [0o700, 0o755]


@pytest.mark.parametrize("content", [None, "up.lock"])
def test_an_open_folder_of_ours_is_closed(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / content).touch()
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path, ours=("up.lock",))
    assert mode(tmp_path) == 0o700


def test_a_folder_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(Conflict, match="open to other users"):
        make_private_folder(tmp_path, ours=("up.lock",))
    assert mode(tmp_path) == 0o755


def test_files_are_closed_to_others_for_as_long_as_asked(tmp_path: Path) -> None:
    before = os.umask(0o022)
    with private_files():
        (tmp_path / "private").touch()
        (tmp_path / "folder").mkdir()
    (tmp_path / "public").touch()
    os.umask(before)
    assert [mode(tmp_path / name) for name in ("private", "folder", "public")] == [0o600, 0o700, 0o644]
