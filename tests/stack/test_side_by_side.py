"""Workers side by side: what they have of their own, what they share, and who is alone."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import stack as control
from tests.rows import rows_of
from tests.stack.places import CHECKOUT, HOME_VARIABLE

pytestmark = pytest.mark.later("runs pytest on workers of its own")

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
@pytest.mark.parametrize("number", range(2))
def test_lonely(number):
    time.sleep(0.2)


@pytest.mark.parametrize("number", range(2))
def test_sociable(number):
    (HERE / f"here-{ME}").touch()
    deadline = time.monotonic() + 60
    while len(list(HERE.glob("here-*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
# Not even a time-out ends it.
HANGING = """
import signal
import time

import pytest


@pytest.mark.parametrize("number", range(4))
def test_another(number):
    pass


@pytest.fixture
def left_behind():
    yield
    time.sleep(600)


def test_failing(left_behind):
    raise ValueError


def test_hanging():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)
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
    for module in ("test_some.py", "test_others.py"):
        (tmp_path / module).write_text(TESTS)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    usual = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-o", "markers=alone\nchaos"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *usual, "--rootdir", str(folder), *words, str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), HOME_VARIABLE: str(folder / "stack")},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


def notes_of(folder: Path, *words: str) -> list[Note]:
    """What the tests noted, in the order in which they began."""
    done = run(folder, *words)
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    noted = [line.split() for line in (folder / "notes").read_text().splitlines()]
    return sorted(Note(float(began), float(ended), name, home) for name, home, began, ended in noted)


@pytest.mark.slow
def test_workers_run_side_by_side_each_with_its_own_servers_and_some_tests_alone(folder: Path) -> None:
    notes = notes_of(folder, "-n2")
    assert {note.home for note in notes} == {str(folder / "stack"), str(folder / "stack-gw1")}
    # In the order in which they began: nobody begins beside a lonely one, and a lonely one beside nobody.
    for before, after in pairwise(notes):
        assert before.ended <= after.began or not (before.lonely or after.lonely), notes


@pytest.mark.slow
def test_a_test_that_nothing_ends_costs_its_worker_and_no_other_test(folder: Path) -> None:
    (folder / "test_some.py").write_text(HANGING)
    (folder / "test_others.py").unlink()
    done = run(folder, "-n2", "--timeout=2")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert "crashed while running 'test_some.py::test_failing'" in done.stdout
    assert "crashed while running 'test_some.py::test_hanging'" in done.stdout
    assert "in test_hanging" in done.stderr
    assert "in left_behind" in done.stderr


@pytest.mark.parametrize(
    ("tests", "rows"),
    [
        (["a.py::x", "a.py::y", "b.py::x", "a.py::z"], ["a.py 0", "a.py 0", "b.py 2", "a.py 3"]),
        ([f"a.py::x[{number}]" for number in range(26)], ["a.py 0"] * 25 + ["a.py 25"]),
    ],
)
def test_a_row_is_tests_of_one_module_that_follow_each_other(tests: list[str], rows: list[str]) -> None:
    assert list(rows_of(tests).values()) == rows


def test_down_ends_what_workers_left_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack-gw1"))
    control.ensure("s3")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack"))
    control.down()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "stack-gw1"))
    assert control.pid("s3") is None
