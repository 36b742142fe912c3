"""Watching a job: a bar on a terminal, a line a second on a pipe, and an exit code that tells how it ended."""

import json
import signal

import pytest
from msgspec.structs import replace

from shared.jobs.rules.batches import Receipt, Totals
from tests.cli.conftest import Program
from tests.cli.terminals import Terminal, nothing
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

TOTALS = Totals(batches=2, settled=2, planned=1_234, sent=1_230, failed=4)


async def begin_job(house: House) -> tuple[str, str]:
    app_id = await house.app_with_template()
    made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    return app_id, made.json["id"]


async def complete(house: House, job_id: str) -> None:
    await house.store.jobs.close(job_id, totals=TOTALS, summed=Receipt(), completed_at=house.clock.now_ns())


async def test_a_pipe_gets_a_line_a_look_and_stdout_the_job(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    async with cli.running("jobs", "watch", job_id, "--app", app_id, "--json") as running:
        first = await running.told("  like  planning")
        await complete(house, job_id)
        ended = await running.ended()
    assert "0 of 0" not in first + ended.err
    assert ended.err.splitlines()[-1].split("  ")[1:] == ["like", "completed", "100.0%", "1,234 of 1,234", "4 failed"]
    assert "\x1b" not in first + ended.err
    [answer] = ended.out.splitlines()
    assert job_id in answer
    assert ended.code == 0


@pytest.mark.slow
async def test_a_list_that_is_watched_is_drawn_again_in_its_place(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    terminal = Terminal(cli, "jobs", "list", "--watch", "--app", app_id)
    ended = await terminal.run("running", lambda: complete(house, job_id), interrupt_at="completed")
    assert ended == 130
    first, *_, last = terminal.seen.split("\r\x1b[J")[1:]
    assert "\x1b[36mrunning\x1b[0m" in first and "\x1b[32mcompleted\x1b[0m" in last
    assert "\x1b[2A" in terminal.seen, "above are a head and a row"


@pytest.mark.slow
async def test_elsewhere_a_watched_list_has_a_line_for_what_changed(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    async with cli.running("jobs", "list", "--watch", "--app", app_id, "--json") as running:
        first = json.loads(await running.line())
        await complete(house, job_id)
        second = json.loads(await running.line())
        running.process.send_signal(signal.SIGINT)
        ended = await running.ended()
    assert [(each["id"], each["state"]) for each in (first, second)] == [(job_id, "running"), (job_id, "completed")]
    assert (ended.code, ended.out) == (130, "")


@pytest.mark.slow
async def test_a_status_that_is_watched_goes_on(cli: Program) -> None:
    async with cli.running("status", "--watch") as running:
        said = [await running.line() for _ in range(2)]
        while "As of" not in said[-1]:
            said.append(await running.line())
        running.process.send_signal(signal.SIGINT)
        assert (await running.ended()).code == 130
    assert "As of" in said[0]
    assert "\x1b" not in "".join(said)


async def test_nothing_but_the_whole_is_all_of_it(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    nearly = replace(TOTALS, planned=100_000, sent=99_999, failed=0)
    await house.store.jobs.close(job_id, totals=nearly, summed=Receipt(), completed_at=1)
    ended = await cli.done("jobs", "watch", job_id, "--app", app_id)
    assert "  99.9%  99,999 of 100,000" in ended.err
    assert "99.9% of 100,000 devices" in ended.out


@pytest.mark.slow
async def test_a_job_is_watched_from_its_making(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    async with cli.running("jobs", "create", "--app", app_id, "--template", "like", "--watch") as running:
        await running.told("  like  planning")
        [job] = (await house.admin.get(f"/apps/{app_id}/jobs")).json
        await complete(house, job["id"])
        ended = await running.ended()
    assert (ended.code, job["id"] in ended.out) == (0, True)


@pytest.mark.slow
async def test_a_terminal_gets_a_bar_that_stays_where_it_is(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    terminal = Terminal(cli, "jobs", "watch", job_id, "--app", app_id)
    assert await terminal.run("like planning", lambda: complete(house, job_id)) == 0
    assert "━" in terminal.seen
    assert "\x1b[" in terminal.seen
    assert "1,234 of 1,234" in terminal.seen
    assert terminal.seen.count("state") == 1


async def test_a_watched_job_that_is_stopped_is_8(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    stopped = await house.admin.put(f"/apps/{app_id}/jobs/{job_id}/stop")
    assert stopped.status == 200
    ended = await cli.run("jobs", "watch", job_id, "--app", app_id, "-q")
    assert (ended.code, ended.out) == (8, f"{job_id}\n")


async def test_whoever_sits_at_a_terminal_is_asked(cli: Program, house: House) -> None:
    app_id, job_id = await begin_job(house)
    words = ("jobs", "stop", job_id, "--app", app_id)
    refused = Terminal(cli, *words)
    assert await refused.run("[y/N]", nothing, "n\r") == 1
    assert "Nothing was done." in refused.seen
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["status"] == ""
    assert await Terminal(cli, *words).run("[y/N]", nothing, "y\r\r") == 0
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["status"] == "stopped"


async def test_where_much_is_at_stake_a_name_is_typed(cli: Program, house: House) -> None:
    app_id = await house.app()
    name = (await house.admin.get(f"/apps/{app_id}")).json["name"]
    wrong = Terminal(cli, "apps", "delete", app_id)
    assert await wrong.run(f"type {name}", nothing, "y\r") == 1
    assert await Terminal(cli, "apps", "delete", app_id).run(f"type {name}", nothing, f"{name}\r\r") == 0
    assert (await house.admin.get(f"/apps/{app_id}")).status == 404


async def test_colours_are_for_terminals_without_a_word_against_them(cli: Program, house: House) -> None:
    app_id, _ = await begin_job(house)
    words = ("jobs", "list", "--app", app_id)
    with_colours, without = Terminal(cli, *words), Terminal(cli, *words, NO_COLOR="1")
    assert await with_colours.run("running", nothing) == 0
    assert await without.run("running", nothing) == 0
    assert "\x1b[" in with_colours.seen
    assert "\x1b[" not in without.seen
    assert max(map(len, without.seen.splitlines())) <= 100
