"""`carillon import routemaster` as people run it: what it says, how it gets the key, and its exit codes."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contrib.import_routemaster.conftest import NewBus
from tests.contrib.import_routemaster.routemaster import ROOT

pytestmark = [pytest.mark.imports, pytest.mark.native]

COMMAND = (sys.executable, "-m", "services", "import", "routemaster")
TOKEN = "app--deadbeef"


async def carillon(*words: str, store: str, url: str, **more: str) -> subprocess.CompletedProcess[str]:
    repository = str(Path(__file__).parents[4])
    environment = {**os.environ, "PYTHONPATH": repository, "CARILLON_STORE_URL": store, "ROUTEMASTER_URL": url, **more}
    return await asyncio.to_thread(
        subprocess.run, [*COMMAND, *words], env=environment, capture_output=True, text=True, check=False, timeout=50
    )


async def test_it_tells_what_it_brought_and_what_it_did_not(bus: NewBus, mongo_database: str, tmp_path: Path) -> None:
    bus.old.tokens |= {TOKEN: "app", "Capital": "big"}
    bus.old.topics["widgets"] = (TOKEN, 1)
    where = {"store": mongo_database, "url": bus.old.url}
    done = await carillon("--dry-run", **where, ROUTEMASTER_ROOT_KEY=ROOT)
    assert (done.returncode, "nothing was written" in done.stdout) == (0, True), done.stderr
    assert await bus.topics() == {}
    key, report = tmp_path / "key", tmp_path / "report.jsonl"
    key.write_text(f"{ROOT}\n")
    done = await carillon("--root-key-file", str(key), "--report", str(report), "--strict", **where)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "Error: 1 were skipped")
    assert await bus.topics() == {"widgets": "app"}
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("t")] == [
        ["tokens", "1", "0", "0", "0", "1"], ["topics", "1", "0", "0", "0", "0"],
    ]  # fmt: skip
    assert "    big  #2" in done.stdout
    assert [json.loads(line)["outcome"] for line in report.read_text().splitlines()] == [
        "brought",
        "skipped",
        "brought",
    ]
    told = done.stdout + done.stderr + report.read_text()
    assert not any(secret in told for secret in (ROOT, TOKEN, "Capital"))


async def test_a_key_that_is_wrong_or_missing_is_told_in_one_line(bus: NewBus, mongo_database: str) -> None:
    where = {"store": mongo_database, "url": bus.old.url}
    done = await carillon("--root-key", "tell-no-one", **where)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: --root-key: the Routemaster does not take this key")
    assert "tell-no-one" not in line
    done = await carillon(**where)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: which key? ROUTEMASTER_ROOT_KEY, --root-key-file or --root-key",
    )
