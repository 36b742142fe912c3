"""Fault points do nothing unless armed, and exactly what they were armed with, once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.runtime import faults
from shared.runtime.faults import POINTS, Action, Fault, FaultInjected, arm, fault, parse

REACH = """
import asyncio, pathlib, sys
from shared.runtime.faults import fault
asyncio.run(fault("send.before_ack"))
pathlib.Path(sys.argv[1]).touch()
"""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    arm("")
    yield
    arm("")


def child(spec: str, fired: Path, passed: Path) -> "subprocess.Popen[str]":
    environ = os.environ | {"CARILLON_FAULT": spec, "CARILLON_FAULT_FILE": str(fired)}
    return subprocess.Popen(
        [sys.executable, "-c", REACH, str(passed)],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_every_point_says_what_dies_there() -> None:
    assert all(sentence.endswith(".") and "." in point for point, sentence in POINTS.items())


def test_spec_is_read() -> None:
    assert parse(" send.after_take@3=kill , stream.commit_reply=hang,api.after_job_insert=delay:2.5,") == [
        Fault("send.after_take", Action.KILL, nth=3),
        Fault("stream.commit_reply", Action.HANG),
        Fault("api.after_job_insert", Action.DELAY, seconds=2.5),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        "send.nowhere=kill",
        "send.before_ack",
        "send.before_ack=explode",
        "send.before_ack=delay",
        "send.before_ack=delay:soon",
        "send.before_ack=delay:nan",
        "send.before_ack=kill:1",
        "send.before_ack@0=kill",
        "send.before_ack@x=kill",
    ],
)
def test_spec_that_cannot_be_meant_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="CARILLON_FAULT"):
        arm(spec)


async def test_unarmed_points_do_nothing_and_unknown_ones_are_refused() -> None:
    for point in POINTS:
        await fault(point)
    with pytest.raises(LookupError, match="nowhere"):
        await fault("send.nowhere")


async def test_fires_at_the_nth_time_and_only_then() -> None:
    arm("send.before_ack@2=raise")
    await fault("send.before_ack")
    with pytest.raises(FaultInjected):
        await fault("send.before_ack")
    await fault("send.before_ack")


async def test_one_point_may_fail_several_times() -> None:
    arm("stream.marker_read@1=raise,stream.marker_read@2=raise")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await fault("stream.marker_read")
    await fault("stream.marker_read")


async def test_hang_ends_only_by_cancellation() -> None:
    arm("stream.commit_reply=hang")
    task = asyncio.create_task(fault("stream.commit_reply"))
    done, _ = await asyncio.wait({task}, timeout=0.05)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_delay_goes_on_afterwards() -> None:
    arm("send.before_feed=delay:0.05")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await fault("send.before_feed")
    assert loop.time() - began >= 0.05


def test_kill_leaves_the_name_of_the_point_behind(tmp_path: Path) -> None:
    process = child("send.before_ack=kill", tmp_path / "fired", tmp_path / "passed")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "fired").read_text() == "send.before_ack\n"
    assert "send.before_ack" in stderr
    assert not (tmp_path / "passed").exists()


def test_stopped_process_goes_on_when_continued(tmp_path: Path) -> None:
    process = child("send.before_ack=stop", tmp_path / "fired", tmp_path / "passed")
    deadline, found, status = time.monotonic() + 30, 0, 0
    while not found and time.monotonic() < deadline:
        time.sleep(0.02)
        found, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
    assert found and os.WIFSTOPPED(status)
    assert (tmp_path / "fired").read_text() == "send.before_ack\n"
    assert not (tmp_path / "passed").exists()
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert (tmp_path / "passed").exists()


def test_process_with_an_unknown_point_does_not_start(tmp_path: Path) -> None:
    process = child("send.nowhere=kill", tmp_path / "fired", tmp_path / "passed")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "send.nowhere" in stderr


def test_nothing_is_armed_in_this_process() -> None:
    assert all(trap is None for trap in faults._traps.values())
