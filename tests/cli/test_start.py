"""The command starts at once: it imports what the verb needs, and nothing of the servers."""

import asyncio
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Program, started
from tests.services.api.conftest import House

ROOT = Path(__file__).parents[2]
SHOW = """
import atexit, sys
atexit.register(lambda: print("MODULES", *sorted(sys.modules), file=sys.stderr))
from services.cli import main
main(sys.argv[1:], prog_name="carillon")
"""
NOBODYS = {
    "aiokafka", "aio_pika", "litestar", "numpy", "pygments", "pymongo", "rich", "services.api", "services.cli.programs",
    "services.connections", "services.embedded.instance", "services.parts", "shared.runtime.settings", "structlog",
}  # fmt: skip
# On a machine where all is quiet, 0.4 seconds are 4 times what Python takes to import httpx. A busy machine slows both.
TIMES = 4.0
RUNS = 9
HTTPX = "import sys; sys.modules['httpx._main'] = None; import httpx"


@pytest.mark.native
@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_of_jobs_imports_nothing_that_it_does_not_need(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    command = (sys.executable, "-c", SHOW, "jobs", "list", "--app", app_id)
    async with started(*command, environment=cli.variables(), folder=cli.home) as running:
        ended = await running.ended()
    assert ended.code == 0, ended.err
    assert "like" in ended.out
    modules = {*ended.err.rpartition("MODULES")[2].split()}
    assert "carillon.transport" in modules
    assert modules & NOBODYS == set()


@pytest.mark.native
@pytest.mark.alone
@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_of_jobs_is_there_within_its_budget(cli: Program, house: House) -> None:
    """By the processor's seconds of the command, its start included."""
    app_id = await house.app_with_template()
    command = [sys.executable, "-m", "services", "jobs", "list", "--app", app_id]
    pairs = [
        [await asyncio.to_thread(cpu_seconds, words, cli) for words in (command, [sys.executable, "-c", HTTPX])]
        for _ in range(RUNS)
    ]
    assert statistics.median(whole / httpx for whole, httpx in pairs) < TIMES, pairs


def cpu_seconds(command: list[str], cli: Program) -> float:
    """What the command takes of a processor."""
    process = subprocess.Popen(command, env=cli.variables(), cwd=cli.home, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
