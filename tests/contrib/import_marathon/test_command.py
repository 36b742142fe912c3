"""`carillon import marathon` as people run it: what it says, and its exit codes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contrib.import_marathon.conftest import House

pytestmark = [pytest.mark.imports, pytest.mark.native]

ROOT = str(Path(__file__).parents[4])


COMMAND = (sys.executable, "-m", "services", "import", "marathon")


def surroundings(*, store: str, source: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOT, "CARILLON_STORE_URL": store, "MARATHON_URL": source}


async def carillon(*words: str, store: str, source: str) -> subprocess.CompletedProcess[str]:
    environment = surroundings(store=store, source=source)
    return await asyncio.to_thread(
        subprocess.run, [*COMMAND, *words], env=environment, capture_output=True, text=True, check=False, timeout=50
    )


async def test_it_tells_what_it_brought_and_what_it_did_not(house: House, mongo_database: str, tmp_path: Path) -> None:
    app = await house.source.app()
    bad = await house.source.app("my game!")
    await house.source.job(app, completed_at=None)
    done = await carillon("--dry-run", store=mongo_database, source=house.url)
    assert (done.returncode, "nothing was written" in done.stdout) == (0, True), done.stderr
    assert await house.store.apps.get(app) is None
    report = tmp_path / "report.jsonl"
    done = await carillon("--report", str(report), "--strict", store=mongo_database, source=house.url)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "Error: 2 were skipped")
    assert await house.store.apps.get(app) is not None
    assert "    my game!  " + bad in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("apps ")] == [
        ["apps", "1", "0", "0", "0", "1"]
    ]
    assert len(report.read_text().splitlines()) == 3
    assert (await carillon(store=mongo_database, source=house.url)).returncode == 0


async def test_one_that_is_killed_half_way_goes_on_from_there(house: House, mongo_database: str) -> None:
    app = await house.source.app()
    await house.source.connection.execute(
        "INSERT INTO jobs (app_id, template_name, service, completed_at, created_at, updated_at)"
        f" SELECT '{app}', 'like', 'apns', 5, n, n FROM generate_series(1, 3000) n"
    )
    environment = surroundings(store=mongo_database, source=house.url)
    running = await asyncio.create_subprocess_exec(*COMMAND, env=environment, stderr=asyncio.subprocess.PIPE)
    assert running.stderr is not None
    try:
        while not (said := await asyncio.wait_for(running.stderr.readline(), 50)).startswith(b"jobs: "):
            assert said, "it has ended"
    finally:
        running.kill()
    assert await asyncio.wait_for(running.wait(), 50) < 0
    there = len(await house.store.closed_jobs.find_of_app(app, limit=5_000))
    assert there >= 750
    done = await carillon("--strict", store=mongo_database, source=house.url)
    assert done.returncode == 0, done.stderr
    (line,) = (line.split() for line in done.stdout.splitlines() if line.startswith("jobs "))
    assert [int(count.replace(",", "")) for count in line[1:]] == [3_000 - there, 0, there, 0, 0]
    assert len(await house.store.closed_jobs.find_of_app(app, limit=5_000)) == 3_000


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("postgresql://me:tell-no-one@127.0.0.1:1/marathon", "Error: the Marathon database does not answer: "),
        ("mysql://me:tell-no-one@127.0.0.1/marathon", "Error: --from: not a postgresql:// URL"),
    ],
)
async def test_a_source_that_cannot_be_read_is_told_in_one_line(mongo_database: str, source: str, said: str) -> None:
    done = await carillon(store=mongo_database, source=source)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(said)
    assert "tell-no-one" not in line


@pytest.mark.slow
async def test_a_store_that_is_away_is_told_in_one_line(house: House) -> None:
    await house.source.app()
    done = await carillon(store="mongodb://127.0.0.1:1/carillon", source=house.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("Error: MongoDB cannot be reached: 127.0.0.1:1: ")
