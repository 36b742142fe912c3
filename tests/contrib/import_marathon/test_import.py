"""An import keeps every id and field, can be repeated, and overwrites nothing that was changed here."""

import time
import uuid
from typing import Any

import pytest

from shared.core.documents import Position
from shared.core.instants import from_ns
from shared.jobs.moves import start_of
from shared.jobs.rules.jobs import PAUSABLE, JobStatus
from tests.contrib.import_marathon.conftest import House, counts
from tests.contrib.import_marathon.source.source import DAY_NS, PAST

pytestmark = [pytest.mark.imports, pytest.mark.native]

GROUP = str(uuid.UUID(int=7))


def in_days(days: int) -> int:
    return time.time_ns() + days * DAY_NS


async def test_apps_users_and_templates_keep_their_ids_and_fields(house: House) -> None:
    app = await house.source.app("my-Game_1", bundle_id="com.example.game", created_at=5, updated_at=6)
    user = await house.source.user("bo@example.com", allowed_apps=[uuid.UUID(app)], created_at=3, updated_at=4)
    admin = await house.source.user("cy@example.com", is_admin=True)
    body = {"alert": {"title": "Hi {{name}}, {{user.name}}", "a.b$": [1, 2.5, None, "ü"]}}
    template = await house.source.template(app, locale="pt_BR", body=body, defaults={"name": "you"})
    assert counts(await house.bring()) == {"brought": 4}
    by, at = {"createdBy": "ana@example.com"}, {"createdAt": PAST, "updatedAt": PAST + 1}
    an_app = {"id": app, "name": "my-Game_1", "bundleId": "com.example.game", "createdAt": 5, "updatedAt": 6} | by
    assert await house.shown(f"/apps/{app}") == an_app
    assert await house.shown(f"/users/{user}") == by | {
        "id": user, "email": "bo@example.com", "isAdmin": False, "allowedApps": [app], "createdAt": 3, "updatedAt": 4,
        "roles": {},
    }  # fmt: skip
    assert await house.shown(f"/users/{admin}") == by | at | {
        "id": admin, "email": "cy@example.com", "isAdmin": True, "allowedApps": None, "roles": {},
    }  # fmt: skip
    assert await house.shown(f"/apps/{app}/templates/{template}") == by | at | {
        "id": template, "appId": app, "app": an_app, "name": "like", "locale": "pt_BR",
        "body": body, "defaults": {"name": "you"},
    }  # fmt: skip
    assert (await house.api.someone("bo@example.com").send("GET", f"/apps/{app}")).status_code == 200
    assert (await house.api.someone("bo@example.com").send("GET", "/users")).status_code == 403


async def test_a_completed_job_is_shown_as_it_was_there(house: House) -> None:
    app = await house.source.app()
    job = await house.source.job(
        app, template_name="like,love", service="gcm", completed_at=PAST + 9, starts_at=PAST + 2, expires_at=PAST + 20,
        context={"name": "Ana"}, filters={"NOTlocale": "en,pt"}, metadata={"dryRun": True, "a.b": {"$c": [1]}},
        feedbacks={"ack": 900, "bad.device$token": 7}, control_group=0.1, job_group_id=uuid.UUID(GROUP),
        control_group_csv_path="bucket/control/job-1.csv", past_time_strategy="skip", localized=True,
        total_batches=3, completed_batches=3, total_tokens=1200, completed_tokens=1000, total_users=1200,
    )  # fmt: skip
    assert counts(await house.bring(), "jobs") == {"brought": 1}
    shown = await house.shown(f"/apps/{app}/jobs/{job}")
    expected = {
        "id": job, "appId": app, "jobGroupId": GROUP, "templateName": "like,love", "service": "gcm", "status": "",
        "completedAt": PAST + 9, "startsAt": PAST + 2, "expiresAt": PAST + 20, "createdAt": PAST, "updatedAt": PAST + 1,
        "context": {"name": "Ana"}, "filters": {"NOTlocale": "en,pt"},
        "metadata": {"dryRun": True, "a.b": {"$c": [1]}}, "feedbacks": {"ack": 900, "bad.device$token": 7},
        "controlGroup": 0.1, "csvPath": "", "controlGroupCsvPath": "bucket/control/job-1.csv",
        "pastTimeStrategy": "skip", "localized": True, "createdBy": "ana@example.com", "dbPageSize": 0,
        "totalBatches": 3, "completedBatches": 3, "totalTokens": 1200, "completedTokens": 1000, "totalUsers": 1200,
        "completedUsers": 1000,
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected
    assert [each["id"] for each in await house.shown(f"/apps/{app}/jobs?template=like,love")] == [job]
    for move in ("pause", "resume"):
        assert (await house.api.send("PUT", f"/apps/{app}/jobs/{job}/{move}")).status_code == 403


async def test_what_has_ended_leaves_nothing_to_do(house: House) -> None:
    app = await house.source.app()
    ended: dict[str, dict[str, Any]] = {
        "completed": {},
        "completed, then paused": {"status": "paused"},
        "stopped": {"status": "stopped", "completed_at": 0, "csv_path": "bucket/ids.csv"},
        "nobody found": {"status": "stopped", "completed_at": PAST},
        "expired": {"completed_at": None, "expires_at": PAST + 5},
        "expired while held": {"completed_at": None, "expires_at": PAST + 5, "status": "circuitbreak"},
    }
    ids = {why: await house.source.job(app, **columns) for why, columns in ended.items()}
    assert counts(await house.bring(), "jobs") == {"brought": 6}
    assert not await house.store.open_jobs.has_open(app)
    assert [job_id async for job_id in house.store.open_jobs.open_keys()] == []
    assert await house.store.closed_jobs.find_ended_before(from_ns(in_days(1)), ["apns", "gcm"], limit=9) == []
    shown = {why: await house.shown(f"/apps/{app}/jobs/{ids[why]}") for why in ended}
    status = {why: job["status"] for why, job in shown.items()}
    assert status == dict.fromkeys(ended, "stopped") | {"completed": "", "completed, then paused": ""}
    assert shown["stopped"]["csvPath"] == "bucket/ids.csv"
    assert shown["nobody found"]["completedAt"] == PAST
    assert shown["expired"]["failure"] == "expired at Marathon before it was completed"
    assert (await house.api.send("DELETE", f"/apps/{app}")).status_code == 204
    assert counts(await house.bring()) == {"left": 1, "skipped": 6}


async def test_what_breaks_our_rules_is_named_and_keeps_nothing_else_out(house: House) -> None:
    good, bad = await house.source.app(), await house.source.app("my game!")
    label = await house.source.app("g2", bundle_id="Com.Example")
    user = await house.source.user("nobody")
    broken = {"alert": {"body": "Hi {{name"}}
    tag = await house.source.template(good, "open", body=broken)
    empty = await house.source.template(good, "empty", body={})
    large = await house.source.template(good, "large", body={"alert": "x" * 2**20})
    orphan = await house.source.template(bad)
    columns: dict[str, dict[str, Any]] = {
        "invalid service: must be one of apns, fcm": {"service": "fax"},
        "invalid controlGroup: it must be at least 0 and less than 1": {"control_group": float("nan")},
        "invalid filters: every value must be a string": {"filters": {"seq_id": 7}},
        "invalid feedbacks: every count must be an integer": {"feedbacks": {"ack": "many"}},
        "invalid context: context.n does not fit in 64 bits": {"context": {"n": 2**70}},
        "invalid status: Marathon has no such": {"status": "asleep"},
        "its app was not brought, or was deleted here": {"app_id": bad},
    }
    jobs = {await house.source.job(**({"app_id": good} | each)): reason for reason, each in columns.items()}
    kept = await house.source.job(good)
    tally = await house.bring()
    assert counts(tally) == {"brought": 2, "skipped": 14}
    assert {each: house.told[each][1] for each in jobs} == jobs
    assert house.told[bad][1] == "invalid name: an app's name is 1 to 50 of the letters A to Z, digits, '-' and '_'"
    assert house.told[label][1].startswith("invalid bundleId: ")
    assert house.told[user][1].startswith("invalid email: ")
    assert house.told[tag][1] == "invalid body: body.alert.body opens a tag with {{ and never closes it"
    assert house.told[empty][1] == "invalid body: an object with at least one key is needed"
    assert house.told[large][1] == "its JSON makes over 1,048,576 bytes"
    assert house.told[orphan][1] == "its app was not brought, or was deleted here"
    assert [job["id"] for job in await house.shown(f"/apps/{good}/jobs")] == [kept]
    assert "my game!" in tally.text(("apps",))


async def test_apps_that_share_a_name_are_named_and_the_first_comes(house: House) -> None:
    first, again = await house.source.app("alpha"), await house.source.app("Alpha")
    dry = counts(await house.bring(dry_run=True), "apps")
    assert counts(await house.bring(), "apps") == dry == {"brought": 1, "skipped": 1}
    kept, skipped = (first, again) if house.told[first][0] == "brought" else (again, first)
    assert house.told[skipped][1] == f"its name is that of app {kept}, but for case: rename one of them there"
    await house.source.change("apps", skipped, name="beta")
    assert counts(await house.bring(), "apps") == {"brought": 1, "as before": 1}


async def test_what_has_not_ended_is_named_with_what_to_do(house: House) -> None:
    app = await house.source.app()
    unended = {"completed_at": None}
    advice = {
        await house.source.job(app, **unended): "has not ended there: let it end",
        await house.source.job(app, **unended, status="paused"): "paused or broken off there: resume it",
        await house.source.job(app, **unended, status="circuitbreak"): "paused or broken off there: resume it",
        await house.source.job(app, **unended, status="paused", starts_at=in_days(1)): "paused or broken off there",
        await house.source.job(app, **unended, starts_at=in_days(1)): "starts in the future there: --scheduled",
        await house.source.job(app, **unended, starts_at=in_days(1), localized=True): "one zone of a localized job",
        await house.source.job(app, **unended, starts_at=PAST): "has not ended there",
        await house.source.job(app, **unended, expires_at=in_days(1)): "has not ended there",
    }
    assert counts(await house.bring(), "jobs") == {"skipped": len(advice)}
    for job, reason in advice.items():
        assert house.told[job][1].startswith(reason)
    for job in advice:
        await house.source.change("jobs", job, completed_at=PAST + 9)
    assert counts(await house.bring(), "jobs") == {"brought": len(advice)}


async def test_what_is_taken_here_is_skipped(house: House) -> None:
    app = await house.source.app(bundle_id="com.example.taken")
    elsewhere = await house.api.send("POST", "/apps", {"name": "other", "bundleId": "com.example.taken"})
    second = await house.source.app()
    user = await house.source.user("admin@example.com")
    await house.bring(dry_run=True)
    expected = {app: "another app here has its bundle id", user: "another user here has this address"}
    assert {each: house.told[each][1] for each in expected} == expected
    await house.bring()
    assert {each: house.told[each][1] for each in expected} == expected
    template = await house.source.template(second)
    body = {"name": "like", "locale": "en", "body": {"alert": "Hello"}}
    taken = await house.api.send("POST", f"/apps/{second}/templates", body)
    assert taken.status_code == 201, taken.text
    job = await house.source.job(second)
    mine = await house.api.send("POST", f"/apps/{second}/jobs?template=like", {"id": job, "service": "apns"})
    assert (elsewhere.status_code, mine.status_code) == (201, 201)
    await house.bring()
    assert house.told[template][1] == "its app has another template with this name and locale here"
    assert house.told[job][1] == "another one of this name or id is here already, and no import brought it"
    assert not (await house.shown(f"/apps/{second}/jobs/{job}"))["completedAt"]


async def test_a_repeat_brings_what_is_new_and_touches_nothing_else(house: House) -> None:
    app = await house.source.app()
    await house.source.template(app)
    await house.source.user("bo@example.com")
    await house.source.job(app, feedbacks={"ack": 1})
    assert counts(await house.bring()) == {"brought": 4}
    before = await house.documents()
    assert counts(await house.bring()) == {"as before": 4}
    assert await house.documents() == before
    added = await house.source.job(app)
    tally = await house.bring()
    assert counts(tally) == {"brought": 1, "as before": 4}
    assert house.told == {added: ("brought", "")}


async def test_a_change_there_comes_unless_somebody_changed_it_here(house: House) -> None:
    apps = [await house.source.app(f"g{number}") for number in range(4)]
    users = [await house.source.user(f"u{number}@example.com") for number in range(4)]
    templates = [await house.source.template(apps[0], f"t{number}") for number in range(4)]
    await house.bring()
    body = {"name": "changed", "locale": "en", "body": {"alert": "here"}}
    for number in (1, 2):
        bundle_id = f"com.example.here{number}"
        assert (
            await house.api.send("PUT", f"/apps/{apps[number]}", {"name": f"here{number}", "bundleId": bundle_id})
        ).status_code == 200
        user = {"email": "x@example.com", "isAdmin": True}
        assert (await house.api.send("PUT", f"/users/{users[number]}", user)).status_code == 200
        named = body | {"name": f"here{number}"}
        assert (await house.api.send("PUT", f"/apps/{apps[0]}/templates/{templates[number]}", named)).status_code == 200
    for number in (0, 2):
        later = {"updated_at": PAST + 100}
        await house.source.change("apps", apps[number], name=f"there{number}", **later)
        await house.source.change("users", users[number], allowed_apps=[], **later)
        await house.source.change("templates", templates[number], body={"alert": "there"}, **later)
    dry = counts(await house.bring(dry_run=True))
    tally = await house.bring()
    for table in ("apps", "users", "templates"):
        # 0 was changed there, 1 here, 2 on both sides, 3 nowhere
        assert counts(tally, table) == {"updated": 1, "as before": 2, "left": 1}
    assert dry == counts(tally)
    assert [(await house.shown(f"/apps/{app}"))["name"] for app in apps] == ["there0", "here1", "here2", "g3"]
    assert (await house.shown(f"/users/{users[0]}"))["allowedApps"] == []
    alerts = [(await house.shown(f"/apps/{apps[0]}/templates/{each}"))["body"]["alert"] for each in templates]
    assert alerts == ["there", "here", "here", "Hi {{name}}"]
    assert house.told[apps[2]][1].startswith("was changed here and there")
    assert counts(await house.bring(), "apps") == {"as before": 3, "left": 1}


async def test_what_was_deleted_here_does_not_come_back(house: House) -> None:
    app = await house.source.app()
    template = await house.source.template(app)
    user = await house.source.user("bo@example.com")
    await house.bring()
    for path in (f"/apps/{app}/templates/{template}", f"/users/{user}"):
        assert (await house.api.send("DELETE", path)).status_code == 204
    tally = await house.bring()
    assert counts(tally) == {"as before": 1, "left": 2}
    assert (await house.api.send("GET", f"/users/{user}")).status_code == 404


async def test_feedback_that_is_counted_here_is_never_lowered(house: House) -> None:
    app = await house.source.app()
    job = await house.source.job(app, feedbacks={"ack": 5, "a.b": 1})
    await house.bring()
    assert await house.store.feedbacks.flush("t/0", Position(0), Position(9), {(job, "ack"): 4, (job, "new"): 1})
    assert counts(await house.bring(), "jobs") == {"as before": 1}
    await house.source.change("jobs", job, feedbacks={"ack": 7, "a.b": 3}, control_group_csv_path="b/late.csv")
    assert counts(await house.bring(dry_run=True), "jobs") == {"updated": 1}
    assert counts(await house.bring(), "jobs") == {"updated": 1}
    shown = await house.shown(f"/apps/{app}/jobs/{job}")
    assert shown["feedbacks"] == {"ack": 9, "a.b": 3, "new": 1}
    assert shown["controlGroupCsvPath"] == "b/late.csv"
    assert counts(await house.bring(), "jobs") == {"as before": 1}


async def test_a_dry_run_writes_nothing_and_tells_the_same(house: House) -> None:
    app, bad = await house.source.app(), await house.source.app("no name!")
    await house.source.template(app)
    await house.source.user("bo@example.com")
    await house.source.job(app, completed_at=None, starts_at=in_days(2))
    await house.source.job(bad)
    before = await house.documents()
    told = counts(await house.bring(dry_run=True, scheduled=True))
    assert await house.documents() == before
    assert told == counts(await house.bring(scheduled=True)) == {"brought": 4, "skipped": 2}


async def test_a_scheduled_job_starts_here_at_its_time_when_asked_for(house: House) -> None:
    app = await house.source.app()
    await house.source.template(app)
    start = in_days(2)
    job = await house.source.job(app, completed_at=None, starts_at=start, filters={"locale": "en"}, total_tokens=99)
    assert counts(await house.bring(), "jobs") == {"skipped": 1}
    tally = await house.bring(scheduled=True)
    assert counts(tally, "jobs") == {"brought": 1}
    assert "stopped there before their time" in tally.text(("jobs",))
    stored = await house.store.jobs.get(job)
    assert stored is not None
    assert (stored.status, stored.open, stored.waits, stored.starts_at) == (JobStatus.SCHEDULED, True, True, start)
    (occurrence,) = await house.store._database["occurrences"].find({"owner": start_of(stored.key)}).to_list()
    assert occurrence["due"] == stored.starts
    # From now on it is Carillon's, whatever becomes of it there.
    assert counts(await house.bring(), "jobs") == {"left": 1}
    assert house.told[job][1].startswith("were brought to start here and are not stopped there")
    paused = await house.store.jobs.move(job, to=JobStatus.PAUSED, only=PAUSABLE, at=5)
    assert paused is not None
    await house.source.change("jobs", job, status="stopped", updated_at=PAST + 50)
    for scheduled in (True, False):
        assert counts(await house.bring(scheduled=scheduled), "jobs") == {"as before": 1}
    assert await house.store.jobs.get(job) == paused


async def test_a_scheduled_job_that_could_not_run_here_is_skipped(house: House) -> None:
    app, tableless = await house.source.app(), await house.source.app("tableless")
    for each in (app, tableless):
        await house.source.template(each)
    common = {"completed_at": None, "starts_at": in_days(2)}
    reasons = {
        await house.source.job(app, **common, template_name="none"): "the app has no template named 'none'",
        await house.source.job(app, **common, filters={"shoe": "9"}): 'table "game_apns" has no column "shoe"',
        await house.source.job(tableless, **common): "tableless_apns",
        await house.source.job(app, **common, expires_at=in_days(1)): "invalid expiresAt: it must lie after startsAt",
        await house.source.job(app, **common, csv_path="s3://b/k"): "invalid csvPath",
    }
    assert counts(await house.bring(scheduled=True), "jobs") == {"skipped": len(reasons)}
    for job, reason in reasons.items():
        assert reason in house.told[job][1]
    assert [job_id async for job_id in house.store.open_jobs.overdue_keys(from_ns(in_days(9)))] == []


async def test_an_import_that_was_killed_before_its_notes_goes_on(house: House) -> None:
    app = await house.source.app()
    await house.source.job(app)
    await house.bring()
    await house.store._database["imports"].delete_many({})
    assert counts(await house.bring()) == {"as before": 2}
    await house.source.change("apps", app, name="renamed")
    assert counts(await house.bring(), "apps") == {"updated": 1}


async def test_many_pages_come_whole(house: House) -> None:
    app = await house.source.app()
    await house.source.connection.execute(
        "INSERT INTO jobs (app_id, template_name, service, completed_at, created_at)"
        f" SELECT '{app}', 'like', 'apns', 5, n FROM generate_series(1, 777) n"
    )
    assert counts(await house.bring(), "jobs") == {"brought": 777}
    assert counts(await house.bring(), "jobs") == {"as before": 777}
    shown = await house.shown(f"/apps/{app}/jobs")
    assert [job["createdAt"] for job in shown] == list(range(1, 778))
