"""The command starts at once: it imports what the verb needs, and nothing of the servers."""

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
    "services.embedded.instance", "services.wiring.rooms", "services.wiring.servers", "shared.runtime.settings",
    "structlog",
}  # fmt: skip
# All that a verb needs beside Python itself: what is not here would make each start longer.
PACKAGES = {
    "anyio", "carillon", "certifi", "click", "h11", "h2", "hpack", "httpcore", "httpx", "hyperframe", "idna", "msgspec",
    "services", "shared", "sniffio", "typing_extensions",
}  # fmt: skip


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
    packages = {name.partition(".")[0] for name in modules if not name.startswith("_")}
    # Debian's Python has a `sitecustomize` of its own.
    assert packages - sys.stdlib_module_names - {"sitecustomize"} <= PACKAGES
