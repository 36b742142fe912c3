"""Each verb once, as a program: what it leaves behind in the API, and `--json` as the OpenAPI document has it."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from shared.clock.rules.occurrences import OccurrenceKind, once
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import owner_of, schedule_id
from shared.core.instants import EPOCH, format_instant
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import Event, EventState
from shared.jobs.rules.groups import Step
from shared.jobs.rules.jobs import STARTABLE, JobStatus
from tests.cli.conftest import Document, Program
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

APP = "/apps/{appId}"
JOBS = APP + "/jobs"
LATER = "2040-01-01T09:00:00Z"
EVERYWHERE = "2040-01-01 09:00"


async def job_of(house: House, app_id: str, **more: Any) -> str:
    made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"} | more)
    assert made.status == 201, made.body
    return str(made.json["id"])


async def shown(house: House, path: str) -> Any:
    answer = await house.admin.get(path)
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_job_is_made_shown_and_moved(cli: Program, house: House, document: Document) -> None:
    app_id = await house.app_with_template()
    app = ("--app", app_id)
    words = ("--template", "like", "--filter", "locale=en,pt", "--set", "user=Bo", "--at", LATER, "--json")
    made = (await cli.done("jobs", "create", *app, *words, "--control-group", "0.5")).json
    document.check("post", JOBS, made, "201")
    assert (made["filters"], made["context"], made["controlGroup"]) == ({"locale": "en,pt"}, {"user": "Bo"}, 0.5)
    assert made["startsAt"] == 2_209_021_200 * 10**9
    listed = (await cli.done("jobs", "list", *app, "--json")).lines
    document.check("get", "/jobs", listed)
    assert [job["id"] for job in listed] == [made["id"]]
    assert "scheduled" in (await cli.done("jobs", "list", *app)).out
    assert f"{made['id']}\n" == (await cli.done("jobs", "list", *app, "-q", "--status", "scheduled")).out
    assert (await cli.done("jobs", "list", *app, "-q", "--status", "stopped")).out == ""
    document.check("get", JOBS + "/{jobId}", (await cli.done("jobs", "show", *app, made["id"], "--json")).json)
    job = (*app, made["id"][:30])
    for verb, status in (("pause", "paused"), ("resume", ""), ("stop", "stopped")):
        yes = ("--yes",) if verb == "stop" else ()
        moved = (await cli.done("jobs", verb, *job, *yes, "--json")).json
        document.check("get", JOBS + "/{jobId}", moved)
        assert moved["status"] == status
        assert (await shown(house, f"/apps/{app_id}/jobs/{made['id']}"))["status"] == status
    assert "stop it" in (await cli.run("jobs", "delete", *job, "--yes")).err
    await house.store.jobs.end_plan(made["id"], end=0)
    assert await house.store.jobs.close(made["id"], totals=Totals(), summed=Receipt(), completed_at=1) is not None
    assert f"Deleted job {made['id']}." in (await cli.done("jobs", "delete", *job, "--yes")).out
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{made['id']}")).status == 404


async def test_what_happened_to_a_job_is_listed_and_followed_to_its_end(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job_id = await job_of(house, app_id)
    event = Event(stage="Split CSV", state=EventState.FAIL, message="line 7", at=house.clock.now_ns())
    assert await house.store.jobs.end_plan(job_id, end=0, events=[event])
    await house.admin.put(f"/apps/{app_id}/jobs/{job_id}/stop")
    job = ("--app", app_id, job_id)
    listed = (await cli.done("events", "list", *job)).out
    assert "Split CSV  line 7\n" in listed
    assert f"Stopped  by {ADMIN}\n" in listed
    assert f"by {ADMIN}" in (await cli.done("jobs", "show", *job)).out
    assert (await cli.done("events", "follow", *job, "--json")).lines[0]["message"] == "line 7"


async def test_a_name_means_a_job_that_the_verb_can_act_on(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    app, states = ("--app", app_id), {}
    for _ in range(3):
        house.clock.advance(1)
        states[await job_of(house, app_id)] = "running"
    first, second, third = states
    await cli.done("jobs", "stop", first, *app, "--yes")
    await cli.done("jobs", "pause", second, *app)
    await cli.done("jobs", "pause", "like", *app)
    assert (await shown(house, f"/apps/{app_id}/jobs/{third}"))["state"] == "paused"
    await cli.done("jobs", "resume", third, *app)
    await cli.done("jobs", "resume", "like", *app)
    assert (await shown(house, f"/apps/{app_id}/jobs/{second}"))["state"] == "running"
    assert (await cli.run("jobs", "stop", "like", *app, "--yes")).code == 2
    named = (await cli.done("jobs", "create", *app, "--template", "like", "--name", "Autumn sale", "-q")).out.strip()
    assert "Autumn sale" in (await cli.done("jobs", "list", *app)).out
    await cli.done("jobs", "pause", "autumn sale", *app)
    assert (await shown(house, f"/apps/{app_id}/jobs/{named}"))["state"] == "paused"


async def test_jobs_of_a_maker_and_of_a_time_are_listed(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    service = await house.service(app_id, name="billing")
    made = await service.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    job_id = made.json["id"]
    at = datetime.fromtimestamp(made.json["createdAt"] / 10**9, UTC)
    before, after = at - timedelta(seconds=1), at + timedelta(seconds=1)
    words = ("jobs", "list", "--app", app_id, "-q")
    for wanted in (("--by", "billing"), ("--since", before.isoformat()), ("--until", f"{after:%Y-%m-%d %H:%M:%S}")):
        assert (await cli.done(*words, *wanted)).out == f"{job_id}\n"
    for other in (("--by", ADMIN), ("--since", after.isoformat()), ("--until", f"{before:%Y-%m-%d %H:%M:%S}")):
        assert (await cli.done(*words, *other)).out == ""
    assert (await cli.run(*words, "--since", "last week")).code == 2


async def test_a_file_is_uploaded_for_a_job(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    (cli.home / "users.csv").write_text("id\nu1\nu2\n")
    words = ("--app", app_id, "--template", "like", "--at", LATER)
    for again in (False, True):  # what is there is not sent again
        ended = await cli.done("jobs", "create", *words, "--csv", "users.csv", "-q")
        job = await shown(house, f"/apps/{app_id}/jobs/{ended.out.strip()}")
        assert job["csvPath"].startswith(f"{house.blobs.bucket}/jobs/{app_id}/")
        blob = await house.blobs.stat(job["csvPath"])
        assert blob.size == 9
        assert ("users.csv  uploading  100.0%  9 of 9" in ended.err) != again


async def test_a_file_without_a_header_is_a_warning_when_a_job_is_made_of_it(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    (cli.home / "headless.csv").write_text("u1\nu2\n")
    for noun, at in (("jobs", LATER), ("groups", EVERYWHERE)):
        words = (noun, "create", "--app", app_id, "--template", "like", "--at", at, "--csv", "headless.csv")
        ended = await cli.done(*words, "-q")
        assert "Warning: The first line of the file looks like a user, not like a header" in ended.err


async def test_making_a_job_repeats_warnings_that_need_no_count(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    words = ("--app", app_id, "--template", "like", "--localized", "--at")
    soon = f"{EPOCH + timedelta(seconds=house.clock.now_ns() // 10**9 + 3_600):%Y-%m-%dT%H:%M}"
    made = await cli.done("jobs", "create", *words, soon)
    assert "more: their start has passed, and they start 24 hours later.\n" in made.err
    assert (await cli.done("jobs", "create", *words[:4])).err == ""


async def test_an_unknown_name_is_told_with_the_nearest_one(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    near = await cli.run("templates", "show", "liek", "--app", app_id)
    assert (near.code, "There is no template 'liek'; did you mean like?" in near.err) == (4, True)
    far = await cli.run("jobs", "list", "--app", "no-such-app-anywhere")
    assert (far.code, "There is no app 'no-such-app-anywhere'." in far.err) == (4, True)
    posted = await cli.run("jobs", "create", "--app", app_id, "--template", "liek")
    assert (posted.code, "named 'liek'; did you mean like?" in posted.err) == (5, True)


async def test_groups(cli: Program, house: House, document: Document) -> None:
    app_id = await house.app_with_template()
    app = ("--app", app_id)
    words = ("create", *app, "--template", "like", "--at", EVERYWHERE)
    group_id = (await cli.done("groups", *words, "-q")).out.strip()
    path = APP + "/groups/{groupId}"
    assert (await cli.done("groups", "list", *app, "-q")).out == f"{group_id}\n"
    document.check("get", path, (await cli.done("groups", "show", *app, group_id, "--json")).json)
    before = (await cli.done("groups", "show", *app, group_id)).out
    assert "; which of them have devices is fixed when the first one starts, at " in before
    assert "+0530" not in before
    assert f"{(await shown(house, f'/apps/{app_id}'))['name']} ({app_id})\n" in before
    zones = (await shown(house, f"/apps/{app_id}/groups/{group_id}"))["zones"]
    ended = zones.pop(0)["jobId"]
    assert await house.store.jobs.move(ended, to=JobStatus.RUNNING, only=STARTABLE, at=1) is not None
    assert await house.store.jobs.close(ended, totals=Totals(), summed=Receipt(), completed_at=1) is not None
    for verb, status, now, state in (
        ("pause", "paused", "paused", "paused"),
        ("resume", "", "scheduled", "running"),
        ("stop", "stopped", "stopped", "stopped"),
    ):
        yes = ("--yes",) if verb == "stop" else ()
        document.check("get", path, (await cli.done("groups", verb, *app, group_id, *yes, "--json")).json)
        said = (await cli.done("groups", verb, *app, group_id, *yes)).out
        assert f". Its jobs: {len(zones)} {now}, 1 completed." in said
        page = (await cli.done("groups", "show", *app, group_id)).out.split("\n\n")[0]
        assert [line.split()[1] for line in page.splitlines() if line.startswith("state ")] == [state]
        assert ("is fixed when" in page) is (state != "stopped")
        group = await shown(house, f"/apps/{app_id}/groups/{group_id}")
        assert {zone["status"] for zone in group["zones"] if zone["jobId"] != ended} == {status}
    assert (await cli.run("groups", "watch", *app, group_id, "-q")).code == 8


async def test_a_localized_start_is_the_time_on_everybodys_clock(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    words = ("create", "--app", app_id, "--template", "like", "--localized", "--at")
    made = await cli.done("jobs", *words, EVERYWHERE, TZ="America/Sao_Paulo")
    [row] = (await cli.done("groups", "list", "--app", app_id, "--json")).lines
    group = await shown(house, f"/apps/{app_id}/groups/{row['jobGroupId']}")
    assert {zone["zone"]: zone["startsAt"] for zone in group["zones"]}["-0300"] == 2_209_032_000 * 10**9
    said = (
        f"Created localized push {group['id']}: {len(group['zones'])} time zones have a job each, and the first "
        "starts at 2039-12-31 16:00:00. Carillon fixes then which zones have devices."
    )
    assert made.out == f"{said}\n"
    page = (await cli.done("groups", "show", "--app", app_id, group["id"], TZ="America/Sao_Paulo")).out
    assert "local start  2040-01-01 09:00:00\n" in page
    for zoned in (LATER, "2040-01-01T09:00-03:00", "+10m"):
        refused = await cli.run("jobs", *words, zoned)
        assert (refused.code, "on each recipient's clock: leave out the zone" in refused.err) == (2, True)


async def test_zones_without_devices_are_a_number_once_devices_are_divided(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job = await house.store.jobs.view(await job_of(house, app_id, localized=True, startsAt="2126-12-24T09:00:00"))
    assert job is not None
    sizes, values = {"-0330": [2, 1], "+0900": [1], "rest": [1]}, ("Mars/Phobos", None)
    for number, last in ((0, False), (1, True)):
        step = Step(division=job.file_plan_id, number=number, attempt="a", edge=number, sizes=sizes, last=last)
        await house.store.divisions.add_step(replace(step, rest_values=values))
    path = f"/apps/{app_id}/groups/{job.group_id}"
    devices = {zone["zone"]: zone["devices"] for zone in (await shown(house, path))["zones"]}
    assert (devices["-0330"], devices["+0900"], devices["rest"]) == (6, 2, 2)
    page = (await cli.done("groups", "show", "--app", app_id, job.group_id)).out
    assert f"3 with devices, {len(devices) - 3} without\n" in page
    assert "  START (UTC) " in page and "2126-12-24 12:30:00  " in page
    assert "2 devices are in the zone rest, which starts with UTC, because tz names no time zone: 'Mars/" in page
    assert [line.split()[0] for line in page.splitlines()[-4:]] == ["ZONE", "-0330", "+0900", "rest"]
    async with cli.running("groups", "watch", job.group_id, "--app", app_id) as running:
        await running.told("0 of 3 zones with devices have ended")


async def test_a_localized_push_is_a_row_in_the_table_of_jobs(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    first = await job_of(house, app_id)
    house.clock.advance(1)
    await job_of(house, app_id, localized=True, startsAt="2126-12-24T09:00:00")
    house.clock.advance(1)
    last = await job_of(house, app_id)
    app = ("jobs", "list", "--app", app_id)
    group = (await shown(house, f"/apps/{app_id}/jobs"))[1]["jobGroupId"]
    ids = (await cli.done(*app, "-q")).out.split()
    assert (len(ids) > 20, ids[0], ids[-1]) == (True, last, first)
    _, *rows = (await cli.done(*app)).out.splitlines()
    assert [row.split()[0] for row in rows] == [last, group, first]
    assert (await cli.done("groups", "list", "--app", app_id, "-q")).out.split() == [group]
    assert f"{len(ids) - 2} zones" in rows[1] and "scheduled" in rows[1] and "push" in rows[1]
    assert len((await cli.done(*app, "--limit", "2")).out.splitlines()) == 3
    _, row = (await cli.done(*app, "--status", "scheduled")).out.splitlines()
    assert group in row


async def test_schedules(cli: Program, house: House, document: Document) -> None:
    key = f"cli-{uuid.uuid4().hex[:8]}"
    to = ("--http", "http://example.com/hook", "--payload", '{"id": 1}')
    made = (await cli.done("schedules", "create", key, "--cron", "0 9 * * *", "--timezone", "UTC", *to, "--json")).json
    document.check("post", "/schedules", made, "201")
    assert made["callback"]["data"]["payload"] == {"id": 1}
    listed = (await cli.done("schedules", "list", "--prefix", key, "--json")).lines
    document.check("get", "/schedules", listed)
    assert [each["key"] for each in listed] == [key]
    for typed in (key, key[:-1]):
        document.check("get", "/schedules/{key}", (await cli.done("schedules", "show", typed, "--json")).json)
    assert "0 9 * * * (UTC)" in (await cli.done("schedules", "show", key)).out
    preview = (await cli.done("schedules", "preview", "--every", "3600", *to, "--json")).json
    document.check("post", "/schedules/preview", preview)
    daily = (await cli.done("schedules", "preview", "--cron", "@daily")).out
    assert "@daily (UTC)" in daily and "next" in daily
    labels = ("--label", f"team={key}", "--label", "env=prod")
    stored = await cli.done("schedules", "create", f"daily-{key}", "--cron", "@daily", *to, *labels)
    assert (await cli.done("schedules", "list", *labels, "-q")).out.split() == [f"daily-{key}"]
    assert (await cli.done("schedules", "list", *labels, "--label", "env=test", "-q")).out == ""
    assert f"Stored daily-{key}: 0 0 * * * (UTC). Next: " in stored.out
    again = await cli.done("schedules", "create", f"daily-{key}", "--cron", "@daily", *to, *labels)
    assert f"Unchanged daily-{key}: 0 0 * * * (UTC). Next: " in again.out
    twice = ("--at", "2098-01-01T09:00Z", "--at", "2099-01-01T09:00Z")
    await cli.done("schedules", "create", f"two-{key}", *twice, *to)
    await cli.done("schedules", "cancel", f"two-{key}", "2098-01-01T09:00Z", "--yes")
    assert "1 of 2 instants left" in (await cli.done("schedules", "show", f"two-{key}")).out
    for verb, state in (("pause", "paused"), ("resume", "active")):
        document.check("get", "/schedules/{key}", (await cli.done("schedules", verb, key, "--json")).json)
        assert (await shown(house, f"/schedules/{key}"))["state"] == state
    document.check("post", "/schedules/{key}/fire", (await cli.done("schedules", "fire", key, "--json")).json, "202")
    await cli.done("schedules", "delete", key, "--yes")
    assert (await house.admin.get(f"/schedules/{key}")).status == 404


async def test_a_schedule_starts_jobs(cli: Program, house: House, document: Document) -> None:
    app_id, key = await house.app_with_template(), f"cli-{uuid.uuid4().hex[:8]}"
    job = ("--job", '{"service": "apns", "context": {"user": "Ana"}}', "--cron", "0 9 * * MON")
    of_app = ("--app", app_id, "--template", "like", "--overlap", "queue", "--expires-after", "6h")
    made = (await cli.done("schedules", "create", key, *job, *of_app, "--json")).json
    document.check("post", "/schedules", made, "201")
    payload = {"service": "apns", "context": {"user": "Ana"}}
    assert made["callback"]["data"] == {
        "app_id": app_id, "template": "like", "payload": payload, "overlap": "queue", "expires_after_seconds": 21_600,
    }  # fmt: skip
    assert "job like" in (await cli.done("schedules", "show", key)).out
    shown = await cli.done("schedules", "show", key)
    assert all(word in shown.out for word in (app_id, "queue", "6 h"))
    assert (await cli.run("schedules", "create", key, "--overlap", "skip", "--every", "60")).code == 2
    refused = await cli.run("schedules", "create", f"{key}-2", *job, "--app", app_id, "--template", "none")
    assert "callback.data.template" in refused.err


async def test_an_option_with_one_value_is_given_once(cli: Program) -> None:
    twice = ("--anchor", "2031-03-01T18:00Z", "--anchor", "2031-03-02T18:00Z", "--offset", "0s")
    for verb in (("create", "k"), ("preview",)):
        refused = await cli.run("schedules", *verb, *twice, "--http", "http://example.com/")
        assert (refused.code, "give --anchor only once" in refused.err) == (2, True)


async def test_schedules_move_with_their_anchor(cli: Program, house: House, document: Document) -> None:
    key = f"cli-{uuid.uuid4().hex[:8]}"
    around = ("--anchor", "2031-03-01T18:00Z", "--offset", "-90m", "--offset", "+3h", "--label", f"day={key}")
    made = (await cli.done("schedules", "create", key, *around, "--http", "http://example.com/", "--json")).json
    assert (made["anchor"], made["offsets"]) == ("2031-03-01T18:00:00Z", ["-90m", "+3h"])
    moved = (await cli.done("schedules", "move", key, "--anchor", "2031-03-02T18:00Z", "--json")).json
    document.check("patch", "/schedules/{key}", moved)
    assert moved["next"] == ["2031-03-02T16:30:00Z", "2031-03-02T21:00:00Z"]
    by_label = await cli.done("schedules", "move", "--label", f"day={key}", "--by", "+1d")
    assert by_label.out == "Moved 1 schedule.\n"
    assert "2 offsets from 2031-03-03T18:00:00Z" in (await cli.done("schedules", "show", key)).out
    assert (await cli.run("schedules", "move", key, "--by", "+1d")).code == 2
    assert (await cli.run("schedules", "move", key, "--label", f"day={key}", "--by", "+1d")).code == 2
    assert (await cli.run("schedules", "create", key, *around, "--every", "60")).code == 2


async def test_a_schedule_has_headers_a_secret_and_attempts_of_its_own(cli: Program, house: House) -> None:
    key, secret = f"cli-{uuid.uuid4().hex[:8]}", "whsec_" + "QUJD" * 10
    given = ("--every", "3600", "--http", "http://example.com/hook", "--retry-attempts", "3", "--secret", "@-")
    headers = ("--header", "X-Team: a: b", "--header", "Authorization:Bearer x")
    await cli.done("schedules", "create", key, *given, *headers, given=f"{secret}\n")
    made = await shown(house, f"/schedules/{key}")
    assert made["retry"] == {"attempts": 3, "first_delay_seconds": 5.0, "factor": 3.0, "cap_seconds": 3600.0}
    assert made["callback"]["data"]["headers"] == {"X-Team": "a: b", "Authorization": "Bearer x"}
    assert made["callback"]["data"]["secret"] == "whsec_***"
    again = await cli.run("schedules", "create", key, *given[:4], "--retry-attempts", "4")
    assert again.code != 0
    assert "differs in: " in again.err
    assert {"retry.attempts", "callback.data.secret"} <= {*again.err.strip().rpartition("differs in: ")[2].split(", ")}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "give --at, --cron, --every or --anchor"),
        (("--every", "60", "--cron", "@daily"), "give only one of --at, --cron, --every and --anchor"),
        (("--every", "60", "--body", '{"cron": "@daily"}'), "give only one of --at, --cron, --every and --anchor"),
        (("--every", "60", "--header", "no colon"), "write 'Name: value'"),
        (("--every", "60", "--secret", "whsec_x"), "from a file or from stdin"),
        (("--cron", "0 25 * * 1-5"), "25 is no hour: 0 to 23"),
    ],
)
async def test_a_schedule_with_a_mistake_is_refused_with_the_rule(
    cli: Program, given: tuple[str, ...], told: str
) -> None:
    ended = await cli.run("schedules", "create", "wrong", "--http", "http://example.com/", *given)
    assert ended.code != 0
    assert told in ended.err


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        (("--every", "3600"), OccurrenceKind.ONCE),
        (("--cron", "@daily"), OccurrenceKind.ONCE),
        (("--cron", "@daily"), OccurrenceKind.ASKED),
        (("--at", "2030-12-24T14:00Z"), OccurrenceKind.ONCE),
        (("--at", "2030-12-24T14:00Z"), OccurrenceKind.ASKED),
    ],
)
async def test_a_schedule_that_fails_shows_its_next_try(
    cli: Program, house: House, when: tuple[str, str], kind: OccurrenceKind
) -> None:
    key = f"cli-{uuid.uuid4().hex[:8]}"
    await cli.done("schedules", "create", key, *when, "--http", "http://example.com/hook")
    before = await shown(house, f"/schedules/{key}")
    assert "next_try_at" not in before
    (pending,) = await house.store.occurrences.find_upcoming(owner_of(schedule_id(f"user:{ADMIN}", key)), 2)
    now = datetime.now(UTC).replace(second=30, microsecond=0)  # at a whole minute no seconds are shown
    at, due = now + timedelta(minutes=5), now - timedelta(minutes=1)
    failed = once(pending.owner, pending.generation, due, accepted_at=due, kind=kind)
    await house.store.occurrences.add([replace(failed, fires_at=at, visible_at=at, attempts=1)])
    after = await shown(house, f"/schedules/{key}")
    assert (after["next_try_at"], after["next"]) == (format_instant(at), before["next"])
    told = (await cli.done("schedules", "show", key, "--utc")).out
    assert f"{at:%H:%M:%S} UTC" in next(line for line in told.splitlines() if line.startswith("next try"))


async def test_payloads_are_sent_and_shown_as_the_text_that_they_are(cli: Program, house: House) -> None:
    key, payload = f"cli-{uuid.uuid4().hex[:8]}", r'{"b":1.10,"a":[1E400,-0],"a":"\u00e9\/\u0000"}'
    await cli.done("schedules", "create", key, "--every", "60", "--http", "http://example.com/", "--payload", payload)
    assert payload.encode() in (await house.admin.get(f"/schedules/{key}")).body
    assert payload in (await cli.done("schedules", "show", key)).out
    assert payload in (await cli.done("schedules", "list", "--prefix", key, "--json")).out
    told = (await cli.done("schedules", "show", key, "--json")).out
    assert payload in told
    wanted = '{"key":"%s","every":90,"callback":{"type":"http","data":{"url":"http://example.com/","payload":%s}}}'
    (cli.home / "exact.json").write_text(wanted % (key, "[1.0,\n2.50]"))
    await cli.done("schedules", "apply", "exact.json")
    assert b"[1.0,\n2.50]" in (await house.admin.get(f"/schedules/{key}")).body
    assert '"payload":[1.0,2.50]' in (await cli.done("schedules", "show", key, "--json")).out


async def test_schedules_are_applied_from_files_and_a_wrong_one_spoils_no_other(cli: Program, house: House) -> None:
    key = f"cli-{uuid.uuid4().hex[:8]}"
    callback = {"type": "http", "data": {"url": "http://example.com/hook"}}
    wanted = [{"key": f"{key}-{number}", "every": 3600 + number, "callback": callback} for number in range(3)]
    (cli.home / "some.json").write_text(json.dumps(wanted[:2]))
    (cli.home / "line.ndjson").write_text("\n".join(map(json.dumps, [wanted[2], {**wanted[0], "every": 0}])))
    ended = await cli.run("schedules", "apply", "some.json", "line.ndjson")
    assert (ended.code, ended.out.count("Stored ")) == (5, 3)
    assert "every" in ended.err
    for document in wanted:
        assert (await shown(house, f"/schedules/{document['key']}"))["every"] == document["every"]
    assert (await cli.done("schedules", "apply", "-", "-q", given=json.dumps(wanted))).out.count("\n") == 3


async def test_a_template_is_rendered_and_a_fault_in_one_is_told(
    cli: Program, house: House, document: Document
) -> None:
    app = ("--app", await house.app_with_template())
    rendered = (await cli.done("templates", "render", "like", *app, "--set", "user=Bo", "--json")).json
    document.check("post", APP + "/templates/render", rendered)
    assert rendered["body"] == {"alert": "Bo likes it"}
    faulty = await cli.run("templates", "render", *app, "--body", '{"alert": "{{user"}')
    assert faulty.code == 1
    assert "alert" in faulty.err


async def test_a_bulk_action(cli: Program, house: House, document: Document) -> None:
    key = f"cli-{uuid.uuid4().hex[:8]}"
    to = ("--http", "http://example.com/hook")
    await cli.done("schedules", "create", key, "--every", "3600", *to, "--label", f"team={key}")
    await cli.done("schedules", "create", f"{key}-other", "--every", "3600", *to)
    words = ("schedule.pause", "--filter", f"label=team:{key}", "--reason", "a test")
    asked = await cli.run("bulk", "start", *words)
    assert (asked.code, "This does schedule.pause to 1 thing." in asked.err) == (2, True)
    made = (await cli.done("bulk", "start", *words, "--yes", "--json")).json
    document.check("post", "/bulk-actions", made, "202")
    document.check("get", "/bulk-actions", (await cli.done("bulk", "list", "--json")).lines)
    document.check("get", "/bulk-actions/{actionId}", (await cli.done("bulk", "show", made["id"], "--json")).json)
    await cli.done("bulk", "cancel", made["id"], "--yes")
    assert (await shown(house, f"/bulk-actions/{made['id']}"))["state"] == "cancelled"


async def test_a_localized_push_is_a_row_of_the_status(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job_id = await job_of(house, app_id, localized=True, startsAt="2027-02-01T09:00:00")
    group = (await shown(house, f"/apps/{app_id}/jobs/{job_id}"))["jobGroupId"]
    made = await house.admin.post("/tokens", {"name": "viewer", "roles": {f"app/{app_id}": "viewer"}})
    page = (await cli.run("status", CARILLON_TOKEN=made.json["token"])).out
    [row] = [line for line in page.splitlines() if "scheduled" in line]
    assert row.startswith(group)


async def test_a_signing_secret_is_refused_where_nothing_signs(cli: Program) -> None:
    ended = await cli.run("signing-secrets", "create", "--reason", "a leak")
    assert (ended.code, ended.out) == (5, "")


async def test_dead_letters(cli: Program, house: House, document: Document) -> None:
    key, namespace = f"cli-{uuid.uuid4().hex[:8]}", f"user:{ADMIN}"
    await cli.done("schedules", "create", key, "--every", "3600", "--http", "http://example.com/hook")
    letters = [
        DeadLetter(
            id=f"{key}-{n}", death=f"{key}-{n}",
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g",
            due=EPOCH, died_at=EPOCH, attempts=3, error="404 Not Found",
        )
        for n in range(4)
    ]  # fmt: skip
    await house.store.dead_letters.add(letters)
    listed = (await cli.done("dead-letters", "list", "--key", key, "--json")).lines
    document.check("get", "/dead-letters", listed)
    died_of = (await cli.done("dead-letters", "errors", "--key", key, "--json")).lines
    document.check("get", "/dead-letters/errors", died_of)
    assert [(each["error"], each["count"]) for each in died_of] == [("404 Not Found", 4)]
    assert len(listed) == 4
    document.check(
        "get", "/dead-letters/{letterId}", (await cli.done("dead-letters", "show", f"{key}-0", "--json")).json
    )
    assert (await cli.run("dead-letters", "discard", f"{key}-0")).code == 2
    await cli.done("dead-letters", "discard", f"{key}-0", "--yes")
    await cli.done("dead-letters", "retry", f"{key}-1")
    assert len(await shown(house, f"/dead-letters?key={key}")) == 2
    assert (await cli.done("dead-letters", "retry", "--key", key, "--json")).json == {"retried": 2}
    assert await shown(house, f"/dead-letters?key={key}") == []
    assert (await cli.run("dead-letters", "retry")).code == 2
    await house.store.dead_letters.add([replace(letters[0], id=f"{key}-many-{n}") for n in range(501)])
    begun = (await cli.done("dead-letters", "retry", "--key", key, "--json")).json
    assert (begun["retried"], (await cli.done("dead-letters", "retry", "--key", key, "--quiet")).out.strip()) == (
        501, begun["bulkAction"],
    )  # fmt: skip
    assert f"carillon bulk watch {begun['bulkAction']}" in (await cli.done("dead-letters", "retry", "--key", key)).out
    await cli.done("bulk", "cancel", begun["bulkAction"], "--yes")


async def test_a_number_that_would_change_reaches_the_api_and_is_refused(cli: Program, house: House) -> None:
    app_id = await house.app()
    for number in ("1E400", "0.1234567890123456789", "9" * 30):
        body = '{"alert":"Hi","n":' + number + "}"
        refused = await cli.run("templates", "create", "exact", "--app", app_id, "--body", body)
        assert (refused.code != 0, "64 bits" in refused.err) == (True, True), refused


async def test_a_dead_letter_has_its_payload_as_it_was_given(cli: Program, house: House) -> None:
    key, namespace = f"cli-{uuid.uuid4().hex[:8]}", f"user:{ADMIN}"
    payload = '[1E400,1.10,"\\u0000",' + "[" * 60 + "]" * 61
    given = ("--http", "http://example.com/hook", "--payload", payload)
    await cli.done("schedules", "create", key, "--every", "3600", *given)
    letter = DeadLetter(
        id=key, death=key, namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g",
        due=EPOCH, died_at=EPOCH, attempts=3, error="404 Not Found",
    )  # fmt: skip
    await house.store.dead_letters.add([letter])
    for more in ([], ["--json"]):
        for noun in ("dead-letters", "schedules"):
            assert payload in (await cli.done(noun, "show", key, *more)).out


async def test_users(cli: Program, house: House, document: Document) -> None:
    app_id = await house.app()
    email = f"{uuid.uuid4().hex[:8]}@example.com"
    made = (await cli.done("users", "create", email, "--allow", app_id, "--role", "*=viewer", "--json")).json
    document.check("post", "/users", made, "201")
    assert (made["allowedApps"], made["roles"]) == ([app_id], {"*": "viewer"})
    named = await house.app(f"app-{email[:8]}")
    roles = ("--role", f"app/app-{email[:8]}=viewer", "--role", f"app/{app_id}=operator")
    changed = (await cli.done("users", "edit", email, *roles, "--json")).json
    assert changed["roles"] == {f"app/{named}": "viewer", f"app/{app_id}": "operator"}
    document.check("get", "/users", (await cli.done("users", "list", "--json")).lines)
    await cli.done("users", "delete", email, "--yes")
    assert (await house.admin.get(f"/users/{made['id']}")).status == 404


async def test_tokens(cli: Program, house: House, document: Document) -> None:
    name = uuid.uuid4().hex[:8]
    made = await cli.done("tokens", "create", name, "--admin")
    secret = made.out.strip()
    assert secret.startswith("carillon_")
    assert (await house.admin.service(secret).get("/whoami")).json["name"] == name
    listed = (await cli.done("tokens", "list", "--json")).lines
    document.check("get", "/tokens", listed)
    rotated = await cli.done("tokens", "rotate", name, "--overlap", "5m", "--json")
    document.check("post", "/tokens/{tokenId}/rotate", rotated.json)
    for each in (secret, rotated.json["token"]):
        assert (await house.admin.service(each).get("/whoami")).status == 200
    await cli.done("tokens", "revoke", name, "--yes")
    assert (await house.admin.service(secret).get("/whoami")).status == 401


async def test_who_did_what_is_listed(cli: Program, house: House, document: Document) -> None:
    app_id = await house.app_with_template()
    records = (await cli.done("audit", "list", "--limit", "5", "--json")).lines
    document.check("get", "/audit", records)
    assert len(records) == 5
    of_app = (await cli.done("audit", "list", "--app", app_id)).out
    assert "template.create" in of_app
    assert (await cli.done("audit", "list", "--app", app_id, "--act", "job.stop")).err == "None.\n"


async def test_a_tables_times_are_the_readers_own(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    await job_of(house, app_id, startsAt=2_209_021_200 * 10**9)
    words = ("jobs", "list", "--app", app_id)
    assert "2040-01-01 10:00:00" in (await cli.done(*words, TZ="Europe/Paris")).out
    assert "2040-01-01 09:00:00Z" in (await cli.done(*words, "--utc", TZ="Europe/Paris")).out


async def test_more_than_a_table_has_is_told(cli: Program, house: House) -> None:
    key = f"many-{uuid.uuid4().hex[:8]}"
    callback = {"type": "http", "data": {"url": "http://example.com/hook"}}
    wanted = [{"key": f"{key}-{number:03}", "every": 3600, "callback": callback} for number in range(101)]
    assert (await house.admin.post("/schedules/bulk", wanted)).status == 200
    words = ("schedules", "list", "--prefix", key)
    table = await cli.done(*words)
    assert (table.out.count("\n"), table.err) == (101, "There are more than these 100: --limit 0 lists all.\n")
    assert (await cli.done(*words, "--limit", "0")).out.count("\n") == 102
    assert len((await cli.done(*words, "--json")).lines) == 101
