"""The exit codes that scripts may rely on, and the one sentence that comes with each."""

import signal
import sys
import uuid
from importlib.metadata import version

import pytest

from services.cli.session import AGENT
from services.embedded.processes import free_port
from tests.cli.conftest import Program, started
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

NOTHING = str(uuid.UUID(int=7))


async def test_what_is_not_there_is_4(cli: Program, house: House) -> None:
    app_id = await house.app()
    ended = await cli.run("jobs", "show", NOTHING, "--app", app_id)
    assert (ended.code, ended.out, ended.err) == (4, "", "Error: jobId: the app has no job with this id\n")
    missing = await cli.run("apps", "show", "no-such-app")
    assert missing.code == 4
    assert "`carillon apps list` shows them" in missing.err
    assert (await cli.run("schedules", "pause", "no-such-key")).code == 4


async def test_what_is_refused_is_5_with_field_and_rule(cli: Program, house: House) -> None:
    ended = await cli.run("apps", "create", "a name", "com.example.x")
    assert (ended.code, ended.out) == (5, "")
    assert ended.err.startswith("Error: invalid name: ")  # the field is named once
    app_id = await house.app_with_template()
    made = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json["id"]
    await cli.done("jobs", "stop", made, "--app", app_id, "--yes")
    assert (await cli.run("jobs", "pause", made, "--app", app_id)).code == 5


async def test_who_may_not_is_6(cli: Program, bare: Program, house: House, url: str) -> None:
    app_id = await house.app()
    made = (await house.admin.post("/tokens", {"name": "nobody", "roles": {f"app/{app_id}": "viewer"}})).json
    token = {"CARILLON_TARGET": url, "CARILLON_TOKEN": made["token"]}
    assert (await bare.run("apps", "delete", app_id, "--yes", **token)).code == 6
    assert (await bare.run("apps", "list", **token)).code == 0
    unknown = await bare.run("apps", "list", CARILLON_TARGET=url, CARILLON_TOKEN="carillon_wrong")
    assert unknown.code == 6
    assert "carillon_wrong" not in unknown.err


async def test_who_does_not_answer_is_7(bare: Program) -> None:
    ended = await bare.run("apps", "list", CARILLON_TARGET=f"http://127.0.0.1:{free_port()}")
    assert (ended.code, ended.out) == (7, "")
    assert ended.err.startswith("Error: ")
    assert "carillon context list" in ended.err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (("job", "list"), "jobs"),
        (("jobs", "lst"), "list"),
        (("jobs", "list", "--statsu", "paused"), "--status"),
        (("schedules", "create", "key", "--evry", "5"), "--every"),
    ],
)
async def test_a_wrong_word_is_2_and_the_nearest_one_is_named(
    cli: Program, words: tuple[str, ...], nearest: str
) -> None:
    ended = await cli.run(*words)
    assert ended.code == 2
    assert nearest in ended.err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "create", "--template", "like", "--at", "soon"),
        ("jobs", "create", "--template", "like", "--filter", "locale"),
        ("jobs", "create", "--template", "like", "--filter", "locale=pt", "--filter", "locale=en"),
        (
            "bulk",
            "start",
            "schedule.delete",
            "--filter",
            "label=a:1",
            "--filter",
            "label=b:2",
            "--reason",
            "-",
            "--yes",
        ),
        ("jobs", "create", "--template", "like", "--control-group", "1"),
        ("schedules", "create", "k", "--every", "60"),
        ("schedules", "create", "k", "--every", "60", "--http", "http://x", "--queue", "q"),
        ("schedules", "create", "k", "--every", "60", "--http", "http://x", "--payload", "{"),
        ("schedules", "apply", "no-such-file.json"),
        ("tokens", "rotate", "x", "--overlap", "long"),
        ("jobs", "show", "with a/slash", "--app", NOTHING),
    ],
)
async def test_what_cannot_be_asked_is_2_before_anything_is_asked(bare: Program, words: tuple[str, ...]) -> None:
    port = free_port()  # nobody listens: to ask would be 7
    ended = await bare.run(*words, CARILLON_TARGET=f"http://127.0.0.1:{port}")
    assert ended.code == 2 or words[0:2] == ("jobs", "show")
    assert "Error: " in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("schedules", "create", "k", "--every", "1,000"), "'1,000' is not a whole number of at least 1: write digits"),
        (("schedules", "create", "k", "--every", "1_000"), "'1_000' is not a whole number of at least 1: write digits"),
        (("schedules", "create", "k", "--every", "1.000"), "'1.000' is not a whole number of at least 1: write digits"),
        (("schedules", "create", "k", "--every", "\uff11"), "is not a whole number of at least 1"),
        (("credentials", "create", "k", "--rate", "nan"), "'nan' is not a number above 0: write it like 0.05"),
        (("credentials", "create", "k", "--rate", "1.000"), "'1.000' is not a number above 0: write it like 0.05"),
        (("schedules", "create", "k", "--every", "0"), "'0' is not a whole number of at least 1"),
        (("jobs", "create", "--control-group", "5%"), "'5%' is not a number of at least 0 and less than 1: write it"),
        (("credentials", "create", "k", "--rate", "1,5"), "'1,5' is not a number above 0: write it like 0.05"),
        (("minutes", "list", "--minutes", "99999"), "'99999' is not a whole number of at least 1 and at most 11,520"),
    ],
)
async def test_a_wrong_number_is_told_with_its_bounds(bare: Program, words: tuple[str, ...], told: str) -> None:
    ended = await bare.run(*words)
    assert (ended.code, told in ended.err) == (2, True), ended.err


async def test_where_nobody_can_be_asked_nothing_is_destroyed(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json["id"]
    ended = await cli.run("jobs", "stop", job_id, "--app", app_id, given="y\n")
    assert ended.code == 2
    assert f"This stops job {job_id}" in ended.err
    assert "--yes" in ended.err
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["status"] == ""


async def test_several_that_may_be_meant_are_2_and_are_named(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    made = [await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"}) for _ in range(2)]
    ids = [answer.json["id"] for answer in made]
    for typed in ("0", ids[0][:8], "like"):
        ended = await cli.run("jobs", "show", typed, "--app", app_id)
        assert ended.code == 2
        assert f"{typed!r} may mean 2 jobs:\n" in ended.err
        for id in ids:
            assert f"  {id}  like running\n" in ended.err
    # Ids of one minute begin alike and end differently.
    for id in ids:
        assert (await cli.done("jobs", "show", id[-6:], "--app", app_id, "-q")).out == f"{id}\n"


async def test_of_several_apps_one_must_be_named(cli: Program, house: House) -> None:
    await house.app()
    await house.app()
    ended = await cli.run("templates", "list")
    assert ended.code == 2
    assert "no app is named, and there are game, " in ended.err
    assert "--app" in ended.err


async def test_a_name_that_is_unique_is_taken_for_an_id(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    app = ("--app", app_id)
    single = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json["id"]
    assert (await cli.done("jobs", "show", "LIKE", *app, "-q")).out == f"{single}\n"
    assert (await cli.run("groups", "show", "like", *app)).code == 4
    localized = {"service": "apns", "localized": True, "startsAt": "2126-12-24T09:00:00"}
    group = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", localized)).json["jobGroupId"]
    assert (await cli.done("groups", "show", "like", *app, "-q")).out == f"{group}\n"
    assert "may mean" in (await cli.run("jobs", "show", "like", *app)).err


async def test_interrupted_is_130(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json["id"]
    async with cli.running("jobs", "watch", job_id, "--app", app_id) as running:
        await running.told("planning")
        running.process.send_signal(signal.SIGINT)
        assert (await running.ended()).code == 130


async def test_who_reads_no_further_is_no_failure(cli: Program, house: House) -> None:
    await house.admin.post("/tokens", {"name": "reader", "roles": {}})  # an act, so that the audit is not empty
    command = f"{sys.executable} -m services audit list --json --limit 0 | head -1"
    shell = ("bash", "-o", "pipefail", "-c", command)
    async with started(*shell, environment=cli.variables(), folder=cli.home) as running:
        ended = await running.ended()
    assert (ended.code, ended.err) == (0, "")
    assert ended.json


async def test_the_help_tells_the_codes(bare: Program) -> None:
    said = (await bare.done("--help")).out
    for code in (0, 1, 2, 4, 5, 6, 7, 8, 9, 130):
        assert f"\n  {code} " in said
    assert "`status` or `doctor` found something" in said


async def test_the_audit_is_told_this_version() -> None:
    assert f"carillon-cli/{version('carillon')}" == AGENT
