"""Whoever ends something at a terminal is asked why, unless they have said it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.runtime.serving import HttpServer
from shared.runtime.settings import AuditSettings
from tests.cli.conftest import Program
from tests.cli.terminals import Terminal, nothing
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demanding(house: House) -> AsyncIterator[str]:
    """An API that demands reasons."""
    app = house.build(AuditSettings(reasons="required"))
    server = HttpServer("api", app, host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def a_job(house: House) -> tuple[str, str]:
    app_id = await house.app_with_template()
    made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    assert made.status == 201, made.body
    return app_id, made.json["id"]


async def reasons(house: House, job_id: str) -> list[str]:
    """Those of the stops that were done."""
    records = (await house.admin.get(f"/audit?on={job_id}&act=job.stop")).json
    return [record["reason"] for record in records if record["outcome"] == "done"]


@pytest.mark.parametrize(("typed", "kept"), [("the wrong audience", "the wrong audience"), ("", "")])
async def test_a_reason_is_asked_for_and_may_be_left_out(cli: Program, house: House, typed: str, kept: str) -> None:
    app_id, job_id = await a_job(house)
    terminal = Terminal(cli, "jobs", "stop", job_id, "--app", app_id)
    assert await terminal.run("[y/N]", nothing, f"y\r{typed}\r") == 0
    assert "Enter: no reason" in terminal.seen
    assert await reasons(house, job_id) == [kept]


async def test_where_the_api_demands_one_it_is_asked_for_until_there_is_one(
    cli: Program, house: House, demanding: str
) -> None:
    app_id, job_id = await a_job(house)
    cli.keep(demanding)
    terminal = Terminal(cli, "jobs", "stop", job_id, "--app", app_id)
    assert await terminal.run("[y/N]", nothing, "y\r\r\rwrong\r") == 0
    assert "Enter: no reason" not in terminal.seen
    assert await reasons(house, job_id) == ["wrong"]


async def test_who_has_said_why_is_not_asked_again(cli: Program, house: House, demanding: str) -> None:
    app_id, job_id = await a_job(house)
    cli.keep(demanding)
    terminal = Terminal(cli, "jobs", "stop", job_id, "--app", app_id, "--reason", "wrong")
    assert await terminal.run("[y/N]", nothing, "y\r") == 0
    assert "Why?" not in terminal.seen
    assert await reasons(house, job_id) == ["wrong"]


async def test_yes_asks_nothing_and_the_api_has_the_last_word(cli: Program, house: House, demanding: str) -> None:
    app_id, job_id = await a_job(house)
    words = ("jobs", "stop", job_id, "--app", app_id, "--yes")
    assert await Terminal(cli, *words).run("Stopped", nothing) == 0
    assert await reasons(house, job_id) == [""]
    app_id, job_id = await a_job(house)
    cli.keep(demanding)
    refused = await cli.run("jobs", "stop", job_id, "--app", app_id, "--yes")
    assert (refused.code, "--reason" in refused.err) == (5, True)
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["status"] == ""
    assert await reasons(house, job_id) == []


async def test_a_bulk_action_asks_why_before_all_else(cli: Program, house: House) -> None:
    terminal = Terminal(cli, "bulk", "start", "schedule.pause", "--filter", "prefix=none")
    assert await terminal.run("Why?", nothing, "\ra test\ry\r") == 0
    assert terminal.seen.index("Why?") < terminal.seen.index("This does schedule.pause")
    [made] = [each for each in (await house.admin.get("/bulk-actions")).json if each["reason"] == "a test"]
    assert made["act"] == "schedule.pause"
