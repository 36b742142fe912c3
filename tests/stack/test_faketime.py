"""The wall clock that a test moves, in a process that tells what time it has."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from tests.stack import MissingPart
from tests.stack.faketime import WallClock

pytestmark = pytest.mark.later("checks a tool of chaos/test_clock_skewed.py, which waits, too")

_TELL = """
import sys, time
for _ in sys.stdin:
    print(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), flush=True)
"""


def test_the_wall_clock_moves_and_the_monotonic_clock_does_not(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(60)
    command = [sys.executable, "-c", _TELL]
    environment = os.environ | clock.environment
    child = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watchdog = Timer(50, child.kill)
    watchdog.start()
    with child:
        ahead = told(child)
        clock.set(-3_600)
        behind = told(child)
        assert child.stdin is not None
        child.stdin.close()
    watchdog.cancel()
    assert ahead[0] - behind[0] == pytest.approx(3_660, abs=30)
    assert 0 <= behind[1] - ahead[1] < 600


def told(child: "subprocess.Popen[str]") -> tuple[float, float]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    wall, monotonic = child.stdout.readline().split()
    return float(wall), float(monotonic)


def test_a_machine_without_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingPart, match="faketime is not installed"):
        _ = WallClock(tmp_path / "clock").environment
