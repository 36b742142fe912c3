"""`carillon demo` as people start it: it ends by itself, says what it promises to say, and leaves nothing behind."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.commands.demo.acts import (
    EVENTS,
    MAILS,
    RATE,
    REFUSALS,
    Arrival,
    BusReceiver,
    check_events,
    check_mails,
    check_pushes,
)
from services.embedded.instance import find_running
from shared.drivers.postgres import devices
from tests.tiers import and_rarely

pytestmark = pytest.mark.e2e

SECONDS = 150


async def started(*options: str, folder: Path, **environment: str) -> Process:
    """The demo, with its temporary folder below `folder`."""
    own = {"TMPDIR": str(folder), "CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0", "CARILLON_FAULT": ""}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services", "demo", *options, env=os.environ | own | environment, stdout=PIPE, stderr=PIPE
    )


async def outcome(process: Process) -> tuple[int, str, str]:
    out, errors = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def line_with(process: Process, text: str) -> list[str]:
    """Its lines up to the first with this text."""
    assert process.stdout is not None
    lines: list[str] = []
    deadline = time.monotonic() + SECONDS
    while not lines or text not in lines[-1]:
        line = await asyncio.wait_for(process.stdout.readline(), deadline - time.monotonic())
        assert line, lines
        lines.append(line.decode())
    return lines


async def test_it_sends_to_everybody_once_and_says_so(tmp_path: Path) -> None:
    code, said, errors = await outcome(await started("--devices", "20000", folder=tmp_path))
    assert (code, errors) == (0, "")
    killed = re.findall(r"process (\d+) was killed \(SIGKILL\).*\n +started again as process (\d+)\n", said)
    assert len(killed) == 2, said
    assert killed[0][1] == killed[1][0]
    assert "✓ 20,000 devices, and exactly one record for each\n" in said
    assert "✓ the job's totals are exact: en 13,333, pt 6,667\n" in said
    answers = re.search(r"counted once: ack ([\d,]+), unregistered ([\d,]+), bad-device-token ([\d,]+)\n", said)
    assert answers is not None, said
    assert sum(int(count.replace(",", "")) for count in answers.groups()) == 20_000
    assert "✓ all 300 mails arrived\n" in said
    assert re.search(r"✓ never more than 100 calls within a second: \d+ at most\n", said)
    assert re.search(r"✓ the ledger adds up: sent 300, unsent 0, unknown 0; [1-9]\d* were called again", said), said
    assert "✓ each of 1,000 events came to both receivers, in one delivery each\n" in said
    assert said.count("✓") == 9
    assert "Next:\n  make demo ARGS=--keep" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_it_goes_on_running_if_told_to(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    process = await started("--devices", "1000", "--keep", "--data-dir", str(folder), folder=tmp_path)
    said = "".join(await line_with(process, "Ctrl-C ends this."))
    assert re.search(r"curl -s -d .*/jobs\?template=", said)
    house = find_running(folder)
    assert house is not None
    assert house.api in said
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
        apps = await http.get(f"{house.api}/apps", headers={"x-forwarded-email": house.admin})
    assert [app["name"] for app in apps.json()] == ["demo"]
    process.send_signal(signal.SIGINT)
    code, _, errors = await outcome(process)
    assert (code, errors) == (0, "")

    # A second demo on the same data: old records and answers are not taken for its own.
    code, said, errors = await outcome(await started("--devices", "2000", "--data-dir", str(folder), folder=tmp_path))
    assert (code, errors) == (0, "")
    assert "2,000 devices, and exactly one record for each" in said
    assert "all 300 mails arrived" in said, "the sandbox has those of the first one, too"


@pytest.mark.parametrize("moment", and_rarely("1. A push", rarely=("Carillon is up",)))
async def test_ctrl_c_ends_it_cleanly(tmp_path: Path, moment: str) -> None:
    process = await started("--devices", "50000", folder=tmp_path)
    await line_with(process, moment)
    process.send_signal(signal.SIGINT)
    code, _, errors = await outcome(process)
    assert (code, errors) == (130, "")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The faults that were printed."""
    return lambda: [line.partition("✗ ")[2] for line in capsys.readouterr().err.splitlines()]


Told = Callable[[], list[str]]
ONE_EACH = {1: 1, 2: 1, 3: 1}
WHOLE = {"sent": 3, "locales": {"en": 2, "pt": 1}}


@pytest.mark.parametrize(
    ("tokens", "seen", "faults"),
    [
        (ONE_EACH, {}, []),
        ({1: 1, 2: 1}, {}, ["1 devices got no record"]),
        ({1: 1, 2: 2, 3: 1}, {}, ["1 devices got more than one record"]),
        ({**ONE_EACH, 4: 1}, {}, ["1 records went to devices that do not exist"]),
        (ONE_EACH, {"sent": 2}, ["the job says that it sent 2 of 3 records"]),
        (ONE_EACH, {"locales": {"en": 2}}, ["the job's locales do not add up to 3: {'en': 2}"]),
        (
            ONE_EACH,
            {"feedbacks": {"ack": 2}},
            ["the job counted {'ack': 2}, the receiver answered {'ack': 3}"],
        ),
        (ONE_EACH, {"killed": False}, ["no process was killed while the job ran"]),
        (ONE_EACH, {"in_time": False}, ["the job, or the count of its answers, did not end in time"]),
    ],
)
def test_it_tells_every_promise_that_is_not_kept(
    tokens: dict[int, int], seen: dict[str, Any], faults: list[str], told: Told
) -> None:
    counts = Counter({devices.token(number): count for number, count in tokens.items()})
    job = {**WHOLE, "feedbacks": {"ack": counts.total()}, **seen}
    ends = {name: seen.get(name, True) for name in ("in_time", "killed")}
    assert check_pushes(3, job, counts, Counter(ack=counts.total()), **ends) == (not faults)
    assert told() == faults


def received(name: str, *events: int, refused: int = REFUSALS, first_at: float = 4.0) -> BusReceiver:
    """A receiver as it is once it has refused so often and then got these events, each by itself."""
    made = BusReceiver(name, refusals=refused)
    for number in range(refused):
        made.take(f"r{number}", b"[]")
    for place, number in enumerate(events):
        made.take(f"d{place}", b'[{"url": "%d"}]' % number)
    made.first_at = first_at
    return made


def failing(*events: int, refused: int = REFUSALS, first_at: float = 4.0, body: bytes | None = None) -> BusReceiver:
    made = received("failing", *events, refused=refused, first_at=first_at)
    if body is not None:
        made.bodies["d0"].add(body)
    return made


@pytest.mark.parametrize(
    ("receiver", "in_time", "faults"),
    [
        (failing(*range(EVENTS)), True, []),
        (failing(*range(EVENTS)), False, ["not all events came in time"]),
        (failing(*range(EVENTS - 1)), True, ["999 of 1,000 events came to the failing receiver"]),
        (failing(*range(EVENTS), 7), True, ["1 events came in two deliveries to the failing receiver"]),
        (failing(*range(EVENTS), refused=0), True, ["the failing receiver has refused nothing"]),
        (failing(*range(EVENTS), first_at=0.5), True, ["the healthy receiver had to wait for the failing one"]),
        (
            failing(*range(EVENTS), body=b"another"),
            True,
            ["a delivery to the failing receiver had another body the second time"],
        ),
    ],
)
def test_it_tells_every_promise_of_the_bus_that_is_not_kept(
    receiver: BusReceiver, in_time: bool, faults: list[str], told: Told
) -> None:
    well = received("healthy", *range(EVENTS), refused=0, first_at=1.0)
    assert check_events(well, receiver, published=2.0, in_time=in_time) == (not faults)
    assert told() == faults


@pytest.mark.parametrize(
    ("calls", "apart", "seen", "fault"),
    [
        (MAILS, 1.1, {}, ""),
        (MAILS + 2, 1.1, {"repeated": 3}, ""),
        (MAILS + 2, 1.1, {}, "302 calls arrived"),
        (MAILS - 1, 1.1, {}, "299 of 300 mails arrived"),
        (MAILS, 1.1, {"sent": 299, "unsent": 1}, "the ledger does not add up"),
        (MAILS, 0.9, {}, "calls arrived within one second, 100 are allowed"),
        (MAILS, 1.1, {"in_time": False}, "did not end in time"),
        (MAILS, 1.1, {"killed": False}, "no process was killed"),
    ],
)
def test_it_tells_every_promise_about_mails_that_is_not_kept(
    calls: int, apart: float, seen: dict[str, Any], fault: str, told: Told
) -> None:
    """The calls are this many times the account's pause apart, each of another message of the job's."""
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    arrived = [Arrival(begin + timedelta(seconds=apart / RATE * n), f"m{n % MAILS}~1") for n in range(calls)]
    counts = {"sent": MAILS, "unsent": 0, "unknown": 0, "repeated": 0, **seen}
    ends = {name: seen.get(name, True) for name in ("in_time", "killed")}
    assert check_mails(counts, arrived, **ends) == (not fault)
    assert any(fault in sentence for sentence in told()) == bool(fault)
