"""The last release and this version side by side, in any mixture: while a deployment is upgraded, while that is taken
back, and for as long as anybody likes."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.embedded.processes import free_port
from tests.chaos.test_storm import weather_storm
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, is_completed
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.upgrade, pytest.mark.native]

DEVICES = 6_000
STORM_SECONDS = 12.0


@pytest.fixture(params=["upgraded", "taken back"])
def versions(request: pytest.FixtureRequest, release: Path) -> tuple[Path | None, Path | None]:
    """The version that was there first, and the one that comes."""
    return (release, None) if request.param == "upgraded" else (None, release)


async def customer_of(house: House, tree: Path | None) -> Customer:
    """A customer of an API of this version."""
    port = free_port()
    settings = {"CARILLON_API_PORT": str(port), "CARILLON_API_FIRST_ADMIN": "admin@example.com"}
    await house.start("api", tree, **settings)
    return Customer(port)


async def test_the_release_runs_files_of_its_own(house: House, release: Path) -> None:
    """Else nothing here would tell anything."""
    worker = await house.start("worker", release)
    assert Path(f"/proc/{worker.pid}/cwd").resolve() == release
    show = [sys.executable, "-c", "import services, shared; print(services.__file__, shared.__file__)"]
    shown = await asyncio.to_thread(
        subprocess.run, show, cwd=release, capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert [Path(file).parents[1] for file in shown.stdout.split()] == [release, release]


async def test_what_one_version_began_the_other_brings_to_its_end(
    house: House, versions: tuple[Path | None, Path | None]
) -> None:
    first, second = versions
    before, after = await customer_of(house, first), await customer_of(house, second)
    await house.devices(DEVICES)
    app_id = await an_app(house, before)
    worker = await house.start("worker", first, fault="send.after_commit@3=kill")
    status, job = await before.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"})
    assert status == 201, job
    assert await worker.gone() == -signal.SIGKILL

    for service in ("worker", "scheduler", "feedback"):
        await house.start(service, second)
    path = f"/apps/{app_id}/jobs/{job['id']}"
    await until(lambda: is_completed(after, path), "the job to complete")
    await house.exactly_once(job["id"], DEVICES)
    shown = [(await customer.call("GET", path))[1] for customer in (before, after)]
    assert [(each["sent"], each["completedTokens"]) for each in shown] == [(DEVICES, DEVICES)] * 2


@pytest.mark.kills_servers
@pytest.mark.usefixtures("hasty")
async def test_processes_of_both_versions_share_all_work_in_a_storm(house: House, release: Path, seed: int) -> None:
    await weather_storm(house, seed, STORM_SECONDS, trees=(None, release))


@pytest.mark.storm
@pytest.mark.usefixtures("hasty")
async def test_processes_of_both_versions_share_all_work_in_long_storms(
    house: House, release: Path, seed: int, storm_seconds: float
) -> None:
    deadline = asyncio.get_running_loop().time() + storm_seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        await weather_storm(house, seed, min(left, 60.0), trees=(None, release, release, None, release))
        house.new_app()
        seed += 1


async def test_each_version_sets_up_what_the_other_has_set_up(house: House, release: Path) -> None:
    for tree in (release, None, release, None):
        process = await house.spawn("init", tree)
        assert await process.gone() == 0, process.log
