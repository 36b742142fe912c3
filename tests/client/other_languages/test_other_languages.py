"""Clients that openapi-generator makes of the OpenAPI document, in TypeScript and in Go: they compile, and their
programs run against a real API."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.client.other_languages.languages import Build, Start, build_go, build_typescript
from tests.e2e.conftest import house
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, customer
from tests.stack import MissingPart
from tests.stack.server import Missing
from tests.tiers import and_rarely

__all__ = ["customer", "house"]

pytestmark = [pytest.mark.later("generates and compiles clients in Go and TypeScript"), pytest.mark.native]

DEVICES = 60
PROGRAM_SECONDS = 150
SEEN = {
    "oneTemplate": "en",
    "severalTemplates": ["pt", "es"],
    "page": 1,
    "isFollowed": True,
    "callback": "https://example.com/hook",
    "misfire": 60,
    "state": "active",
    "isDueThen": True,
    "matched": 1,
    "startsAt": 6_000_000_000,
    "wouldStop": 1,
    "stopped": "stopped",
    "problem": [404, "jobId"],
}


@pytest.mark.slow
@pytest.mark.parametrize("build", and_rarely(build_typescript, rarely=(build_go,)))
async def test_a_program_in_another_language_starts_a_job(
    build: Build, house: House, customer: Customer, tmp_path: Path
) -> None:
    start = await compile_client(build, customer, tmp_path)
    await house.devices(DEVICES)
    await house.start("worker")
    await house.start("scheduler")
    app_id = await an_app(house, customer)
    _, token = await customer.call("POST", "/tokens", {"name": "program", "allowedApps": [app_id]})
    environment = {"CARILLON_URL": customer.base, "CARILLON_TOKEN": token["token"], "APP_ID": app_id}

    job_id, told = (await run(start("first_job"), environment)).split(maxsplit=1)
    assert told == f"is completed: {DEVICES // 3} sent, 0 failed\n"
    assert (await house.closed(await house.key_of(job_id))).status.value == "completed"
    assert json.loads(await run(start("tour"), environment)) == SEEN


async def compile_client(build: Build, customer: Customer, folder: Path) -> Start:
    """Where a tool cannot be had: a skip, and a failure with CI=true."""
    _, described = await customer.call("GET", "/openapi.json")
    document = folder / "openapi.json"
    document.write_text(json.dumps(described))
    try:
        return await asyncio.to_thread(build, document, folder)
    except Missing as reason:
        raise MissingPart(f"clients in other languages: {reason}") from None


async def run(command: list[str], environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), PROGRAM_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, (out + err).decode()
    return out.decode()
