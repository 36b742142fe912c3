"""A process imports what it uses, seen in interpreters that have imported nothing before."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.tiers import and_rarely

pytestmark = pytest.mark.later("an interpreter for each process; cli/test_start.py has one of a command")

ROOT = Path(__file__).parents[2]
# What each process is made of, with servers of production of which none runs.
BUILD = """
import asyncio, json, sys
import services.cli
from services.wiring.servers import Servers
from services.wiring.process import build
from services.wiring.rooms import Rooms
from shared.runtime.configuration import load
from shared.runtime.health import ProcessHealth

async def show(process):
    build(Rooms(Servers(load({}), service=process)), [process], ProcessHealth())
    print(json.dumps(list(sys.modules)))

asyncio.run(show(sys.argv[1]))
"""
SHOW = "import json, sys, services.cli; print(json.dumps(list(sys.modules)))"

S3 = {"aioboto3", "aiobotocore", "boto3", "botocore"}
API = {"litestar", "pydantic", "services.api"}
# What is opened with its first use, of which there may be none.
LATE = S3 | {"aiohttp", "aiosmtplib", "h2", "shared.drivers.http.client", "shared.drivers.blobs.s3"}
COLUMNS = {"asyncpg", "numpy"}
NOBODYS = {
    "httpx", "services.commands.demo", "carillon_imports.marathon", "carillon_imports.routemaster",
    "services.embedded.instance",
}  # fmt: skip

UNUSED = {
    "api": LATE | NOBODYS | {"services.feedback", "services.scheduler", "services.worker"},
    "scheduler": LATE | NOBODYS | API | COLUMNS | {"services.feedback", "services.worker"},
    "worker": LATE | NOBODYS | API | {"services.feedback", "services.scheduler"},
    "feedback-answers": LATE
    | NOBODYS
    | API
    | COLUMNS
    | {"aio_pika", "aiormq", "services.feedback.fan_out", "services.scheduler", "services.worker"},
    "feedback-bus": LATE
    | NOBODYS
    | API
    | COLUMNS
    | {"services.feedback.listener", "services.scheduler", "services.worker"},
}


@cache
def imported(program: str, *words: str) -> frozenset[str]:
    """The modules and packages that it has imported."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
    shown = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT, env=own, capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip
    return frozenset(json.loads(shown.stdout))


@pytest.mark.parametrize("process", and_rarely("api", rarely=sorted(UNUSED.keys() - {"api"})))
def test_a_process_imports_what_it_uses(process: str) -> None:
    modules = imported(BUILD, process)
    assert modules & UNUSED[process] == set()
    assert {"aiokafka", "pymongo", "uvicorn"} <= modules


def test_what_a_process_does_not_import_is_there() -> None:
    assert {"litestar", "services.api"} <= imported(BUILD, "api")
    assert COLUMNS | {"services.worker", "aio_pika"} <= imported(BUILD, "worker")


def test_a_command_imports_nothing_before_it_is_chosen() -> None:
    modules = imported(SHOW)
    drivers = {"aio_pika", "aiokafka", "asyncio", "pymongo", "rich", "structlog", "uvicorn", "uvloop"}
    assert (
        modules & (LATE | NOBODYS | API | COLUMNS | drivers | {"services.wiring.process", "services.wiring.rooms"})
        == set()
    )
