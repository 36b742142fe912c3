"""A new subject is a module among the parts and its own rooms: no other file is edited, and all processes know it."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

import services.parts
from services import assembly
from services.connections import Capabilities
from services.parts import Parts, find_parts
from services.parts.accounts.common import AccountsPart
from services.parts.clock.common import ClockPart
from services.parts.jobs.common import JobsPart
from services.parts.push.common import PushPart
from shared.domain.jobs.batches import Totals
from shared.runtime.configuration import load
from shared.runtime.health import ProcessHealth
from tests.services.api.client import ADMIN, Client
from tests.store.jobs.test_templates import template
from tests.store.made import a_job
from tests.waiting import until

SUBJECT = Path(__file__).with_name("subject")


@pytest.fixture(autouse=True)
def subject(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its module lay in `services/parts`."""
    monkeypatch.setattr(services.parts, "__path__", [*services.parts.__path__, str(SUBJECT)])


@pytest.fixture
async def capabilities(mongo_database: str, push_database: str, tmp_path: Path) -> AsyncIterator[Capabilities]:
    settings = load({
        "CARILLON_STORE_URL": mongo_database,
        "CARILLON_AUDIENCE_URL": push_database,
        "CARILLON_BROKER_URL": "memory://",
        "CARILLON_STREAM_URL": f"local://{tmp_path}/stream.db",
        "CARILLON_BLOBS_URL": tmp_path.as_uri(),
        "CARILLON_API_FIRST_ADMIN": ADMIN,
        "CARILLON_API_TRUSTED_PROXIES": "127.0.0.0/8",
    })  # fmt: skip
    opened = Capabilities(settings, service="test")
    yield opened
    await opened.close()


def test_parts_are_found_by_their_modules() -> None:
    common = ["AccountsPart", "BusPart", "ClockPart", "ConsolePart", "JobsPart", "MessagesPart", "PushPart", "Bells"]
    assert [part.__name__ for part in find_parts(())] == common
    in_workers = [
        "AccountsPart",
        "BusPart",
        "BusWorker",
        "ClockPart",
        "ClockWorker",
        "ConsolePart",
        "ConsoleWorker",
        "JobsPart",
        "JobsWorker",
        "MessagesPart",
        "MessagesWorker",
        "PushPart",
        "PushWorker",
        "Bells",
    ]
    assert [part.__name__ for part in find_parts(["worker"])] == in_workers


def test_flows_are_built_once(capabilities: Capabilities) -> None:
    parts = Parts(capabilities)
    assert len({id(parts.of(JobsPart).feed) for _ in range(3)}) == 1
    assert parts.of(PushPart).parts.of(ClockPart).schedules is parts.of(ClockPart).schedules
    assert parts.of(AccountsPart) in set(parts)


async def test_a_route_a_stage_an_occurrence_and_a_collection_of_its_own(capabilities: Capabilities) -> None:
    parts = Parts(capabilities)
    await assembly.set_up(parts)
    components = [*assembly.components("scheduler", parts), *assembly.components("worker", parts)]
    for component in components:
        await component.start()
    try:
        client = Client(assembly.build_api(parts), {"x-forwarded-email": ADMIN})
        assert (await client.post("/bells")).status == 201
        assert "/bells" in (await client.get("/openapi.json")).json["paths"]
        [bells] = [cast("Any", part).bells for part in parts if type(part).__name__ == "Bells"]

        async def is_rung() -> bool:
            return bool(await bells.rung("vespers") == 1)

        await until(is_rung)
    finally:
        for component in reversed(components):
            await component.stop()


async def test_a_kind_of_job_of_its_own(capabilities: Capabilities, push_database: str) -> None:
    connection = await asyncpg.connect(push_database)
    await connection.execute("""
        CREATE TABLE tower_bells
            (seq_id bigint PRIMARY KEY, user_id text, token text, locale text, region text, tz text);
        INSERT INTO tower_bells SELECT i, 'u' || i, 't' || i, 'en', 'BR', NULL FROM generate_series(1, 2500) i
    """)
    await connection.close()
    parts = Parts(capabilities)
    await assembly.set_up(parts)
    await capabilities.store.templates.add(template(1, locale="en"))
    components = assembly.components("worker", parts)
    for component in components:
        await component.start()
    try:
        job, _ = await parts.of(JobsPart).flow.start(a_job(app_id="app", app_name="tower", service="bells"))

        async def is_closed() -> bool:
            found = await capabilities.store.jobs.get(job.key)
            return found is not None and not found.open

        await until(is_closed)
    finally:
        for component in reversed(components):
            await component.stop()
    closed = await capabilities.store.jobs.get(job.key)
    assert closed is not None
    assert closed.totals == Totals(batches=3, settled=3, planned=2_500, sent=2_500)


async def test_readiness_asks_it_too(capabilities: Capabilities) -> None:
    health = ProcessHealth()
    assembly.watch(["api"], Parts(capabilities), health)
    assert "the tower" in health._checks


def test_its_process_has_a_command() -> None:
    program = f"import services.parts as p; p.__path__.append({str(SUBJECT)!r}); from services.cli import main; main()"
    command = [sys.executable, "-c", program, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert "sexton" in shown.stdout
    assert "Look after the bells." in shown.stdout
