"""Workers side by side: what they have of their own, what they share, and who is alone."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import stack as control
from tests.stack.places import CHECKOUT, HOME_VARIABLE

CONFTEST = """
import time
from pathlib import Path

import pytest

from tests.conftest import *
from tests.stack import places

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def noted(request):
    began = time.monotonic()
    yield
    with (HERE / "notes").open("a") as notes:
        notes.write(f"{request.node.name} {places.home()} {began} {time.monotonic()}\\n")
"""
# Whoever is sociable waits for somebody on another worker: they end if they run at the same time.
TESTS = """
import os
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ME = os.environ["PYTEST_XDIST_WORKER"]


@pytest.mark.alone
@pytest.mark.parametrize("number", range(4))
def test_lonely(number):
    time.sleep(0.2)


@pytest.mark.parametrize("number", range(4))
def test_sociable(number):
    (HERE / f"here-{ME}").touch()
    deadline = time.monotonic() + 60
    while len(list(HERE.glob("here-*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


class Note(NamedTuple):
    """A test of theirs: when it ran, and where its servers would be."""

    began: float
    ended: float
    name: str
    home: str

    @property
    def lonely(self) -> bool:
        return self.name.startswith("test_lonely")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def notes_of(folder: Path, *words: str) -> list[Note]:
    """What the tests noted, in the order in which they began."""
    options = ["-p", "no:cacheprovider", "-o", "markers=alone\nchaos", "--rootdir", str(folder), *words]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), HOME_VARIABLE: str(folder / "stack")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    noted = [line.split() for line in (folder / "notes").read_text().splitlines()]
    return sorted(Note(float(began), float(ended), name, home) for name, home, began, ended in noted)


def test_workers_run_side_by_side_each_with_its_own_servers_and_some_tests_alone(folder: Path) -> None:
    notes = notes_of(folder, "-n2", "--maxschedchunk=1")
    assert {note.home for note in notes} == {str(folder / "stack"), str(folder / "stack-gw1")}
    # In the order in which they began: nobody begins beside a lonely one, and a lonely one beside nobody.
    for before, after in pairwise(notes):
        assert before.ended <= after.began or not (before.lonely or after.lonely), notes


def test_down_ends_what_workers_left_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack-gw1"))
    control.ensure("s3")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack"))
    control.down()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack-gw1"))
    assert control.pid("s3") is None
