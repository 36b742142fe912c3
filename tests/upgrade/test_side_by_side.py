"""The last release and this version side by side. There is no release yet: the test waits for the first tag `v*`."""

import io
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from services.embedded.processes import free_port
from tests.e2e.conftest import house
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, is_completed
from tests.stack.places import CHECKOUT
from tests.waiting import until

__all__ = ["house"]

pytestmark = [pytest.mark.upgrade, pytest.mark.native]

DEVICES = 6_000


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The files of the last release."""
    tags = git("tag", "--list", "v*", "--sort=-version:refname").decode().split()
    if not tags:
        pytest.skip("this checkout has no tag of a release")
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", tags[0], "services", "shared"))) as files:
        files.extractall(tmp_path / "release", filter="data")
    return tmp_path / "release"


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, check=True, timeout=60).stdout


async def customer_of(house: House, tree: Path | None) -> Customer:
    settings = {"CARILLON_API_PORT": str(free_port()), "CARILLON_API_FIRST_ADMIN": "admin@example.com"}
    await house.start("api", tree, **settings)
    return Customer(int(settings["CARILLON_API_PORT"]))


@pytest.mark.parametrize("is_upgrade", [True, False])
async def test_what_one_version_began_the_other_brings_to_its_end(
    house: House, release: Path, *, is_upgrade: bool
) -> None:
    first, second = (release, None) if is_upgrade else (None, release)
    before, after = await customer_of(house, first), await customer_of(house, second)
    await house.devices(DEVICES)
    app_id = await an_app(house, before)
    worker = await house.start("worker", first, fault="send.after_commit@3=kill")
    status, job = await before.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"})
    assert status == 201, job
    assert await worker.gone() == -signal.SIGKILL
    for service in ("worker", "scheduler", "feedback-answers"):
        await house.start(service, second)
    path = f"/apps/{app_id}/jobs/{job['id']}"
    await until(lambda: is_completed(after, path), "the job to complete")
    await house.exactly_once(job["id"], DEVICES)
    shown = [(await customer.call("GET", path))[1] for customer in (before, after)]
    assert [(each["sent"], each["completedTokens"]) for each in shown] == [(DEVICES, DEVICES)] * 2
