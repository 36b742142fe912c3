"""The client in an environment of somebody else: what comes with it, and that it works there."""

import asyncio
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import pytest_asyncio

from tests.client.made import fresh_key
from tests.deploy.manifests import ROOT
from tests.services.api.client import ADMIN
from tests.stack import MissingPart

pytestmark = [pytest.mark.later("installs it from a package registry"), pytest.mark.asyncio(loop_scope="module")]

LIST_PACKAGES = "import importlib.metadata as m; print(*(each.name for each in m.distributions()))"
PROGRAM = """
import asyncio, sys
from datetime import UTC, datetime
from carillon import AsyncCarillon, RabbitCallback, Schedule

async def main(url, user, key):
    async with AsyncCarillon(url, user=user) as client:
        callback = RabbitCallback(queue="q", payload={"id": "42"})
        await client.schedules.create(Schedule(key=key, instants=[datetime(2100, 1, 1, tzinfo=UTC)], callback=callback))
        print(*[schedule.key async for schedule in client.schedules.list(prefix=key)])

asyncio.run(main(*sys.argv[1:]))
"""

SYNC_PROGRAM = """
import sys
from carillon import Carillon

url, user, key = sys.argv[1:]
with Carillon(url, user=user) as client:
    print(*[schedule.key for schedule in client.schedules.list(prefix=key)])
assert "asyncio" not in sys.modules
"""


async def run(*command: str | Path, seconds: float = 50) -> str:
    """What a program says; the API goes on meanwhile. Raises `RuntimeError` with its complaints where it fails."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said, complained = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise RuntimeError(complained.decode())
    return said.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that was empty before the client was installed there."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    assert await run(python, "-I", "-c", LIST_PACKAGES) == "\n"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    await run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT / "client", seconds=120)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "--python", str(python), "install", "--timeout=10", "--retries=1", str(wheel)]
    try:
        await run(*install, seconds=120)
    except RuntimeError as error:
        if "(from versions: none)" in str(error):
            raise MissingPart("a registry of packages, which pip could not reach") from error
        raise
    return python


async def test_few_packages_come_with_it_and_a_program_uses_it(python: Path, port: int) -> None:
    packages = (await run(python, "-I", "-c", LIST_PACKAGES)).split()
    assert "carillon-client" in packages
    assert "carillon" not in packages
    assert len(packages) < 10, packages
    key = fresh_key()
    for program in (PROGRAM, SYNC_PROGRAM):
        assert await run(python, "-I", "-c", program, f"http://127.0.0.1:{port}", ADMIN, key) == f"{key}\n"
