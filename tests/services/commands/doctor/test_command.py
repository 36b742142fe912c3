"""`carillon doctor` as a program: what it prints, its exit codes, and that nobody keeps it."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import stack as servers
from tests.cli.terminals import read_terminal
from tests.services.commands.doctor.patient import Patient
from tests.stack.faketime import WallClock

pytestmark = pytest.mark.faulty_server

SECONDS = 50.0
NOBODY = {
    f"CARILLON_{name}": url
    for name, url in {
        "STORE_URL": "mongodb://ana:s3cret-word@127.0.0.1:9/carillon",
        "BROKER_URL": "amqp://ana:s3cret-word@127.0.0.1:9/carillon",
        "BROKER_MANAGEMENT_URL": "http://ana:s3cret-word@127.0.0.1:9",
        "STREAM_URL": "kafka://127.0.0.1:9",
        "AUDIENCE_URL": "postgresql://ana:s3cret-word@127.0.0.1:9/push",
        "BLOBS_ENDPOINT_URL": "http://127.0.0.1:9",
        "BLOBS_ACCESS_KEY": "key",
        "BLOBS_SECRET_KEY": "s3cret-word",
        "BLOBS_REGION": "us-east-1",
    }.items()
}


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services", "doctor", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


def ills_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    return [finding for finding in findings if finding["level"] != "ok"]


def test_nobody_is_there() -> None:
    done = run(**NOBODY)
    assert done.returncode == 9
    assert done.stderr == ""
    assert "s3cret-word" not in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.count("connection refused") == 6
    assert re.search(r"^\d+ ok, 0 warnings, 6 faults, in \d+\.\d s\.$", done.stdout, re.MULTILINE), done.stdout


def test_one_finding_a_line_as_json() -> None:
    done = run("--json", **NOBODY)
    assert done.returncode == 9
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert {
        "level": "fault",
        "of": "Kafka",
        "check": "login",
        "sentence": "127.0.0.1:9: connection refused",
        "remedy": "",
    } in findings
    assert all(list(finding) == ["level", "of", "check", "sentence", "remedy"] for finding in findings)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("--loud",), {}),
        ((), {"CARILLON_API_PORT": "http"}),
        ((), {"CARILLON_STORE_URL": "mongodb://db:99999/carillon"}),
        ((), {"CARILLON_BROKER_URL": "https://mq"}),
    ],
)
def test_a_wrong_command_line_and_wrong_settings_have_their_own_code(
    words: tuple[str, ...], environment: dict[str, str]
) -> None:
    done = run(*words, **NOBODY | environment)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_has_colours_unless_it_wants_none(no_color: str, *, coloured: bool) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "services", "doctor"],
        env={**os.environ, **NOBODY, "NO_COLOR": no_color}, stdout=theirs,
    )  # fmt: skip
    os.close(theirs)
    said, deadline = "", time.monotonic() + SECONDS
    try:
        while chunk := read_terminal(ours, deadline):
            said += chunk
        assert child.wait(SECONDS) == 9
    finally:
        os.close(ours)
        child.kill()
    assert ("\x1b[31m" in said) is coloured


@pytest.mark.native
@pytest.mark.alone
@pytest.mark.kills_servers
async def test_frozen_servers_are_told_and_not_waited_for(patient: Patient) -> None:
    for name in servers.NAMES:
        servers.pause(name)
    try:
        done = await asyncio.to_thread(run, "--json", **patient.environment)
    finally:
        for name in servers.NAMES:
            servers.unpause(name)
    faults = ills_of(done)
    assert [(fault["of"], fault["check"]) for fault in faults] == [
        ("MongoDB", "login"),
        ("RabbitMQ", "login"),
        ("RabbitMQ's management", "login"),
        ("Kafka", "login"),
        ("PostgreSQL", "login"),
        ("Files", "access"),
    ]
    silent = r"no answer within 5 s|MongoDB cannot be reached: No servers found yet"
    assert all(re.fullmatch(silent, fault["sentence"]) for fault in faults), faults
    assert done.returncode == 9


@pytest.mark.slow
@pytest.mark.native
async def test_a_clock_that_is_off_is_found_and_set(patient: Patient, tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(30)
    # A program that starts looks at thousands of files, and would ask for the time of each; and threads hang with the
    # library's own idea of waiting.
    quick = {"NO_FAKE_STAT": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}
    patient.environment |= clock.environment | quick
    off = await asyncio.to_thread(run, "--json", **patient.environment)
    ills = ills_of(off)
    assert len(ills) == 1, ills
    [ill] = ills
    assert (ill["check"], "ahead of" in ill["sentence"], off.returncode) == ("clock", True, 9)
    await patient.take(ill["remedy"])
    healed = await asyncio.to_thread(run, **patient.environment)
    assert healed.returncode == 0, healed.stdout
    assert "0 warnings, 0 faults" in healed.stdout


@pytest.mark.native
async def test_a_remedy_that_is_a_program_of_ours_is_typed(patient: Patient) -> None:
    """Elsewhere `carillon init` is called."""
    await patient.database.drop_collection("imports")
    found = await asyncio.to_thread(run, "--json", **patient.environment)
    [ill] = ills_of(found)
    patient.shell.type(ill["remedy"], patient.environment)
    await patient.these_ills()
