"""A job made in a browser: what is typed is kept, previewed, confirmed in figures, and made once."""

from datetime import UTC, timedelta
from typing import Any

import pytest

from services.api.http.pages.visits import FORM_BYTES
from services.api.jobs.pages import making
from shared.core.instants import ns
from tests.services.api.client import Reply
from tests.services.api.conftest import House
from tests.services.api.jobs.pages.filled import Shown, look, send_file, send_form, viewer_of

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module")]


def typed(app_id: str, **changes: Any) -> dict[str, Any]:
    return {"app": app_id, "template": "like", "service": "apns", "when": "now", "context": '{"user": "Bo"}'} | changes


def show(reply: Reply) -> Shown:
    return Shown(reply.body.decode())


async def jobs_of(house: House, app_id: str) -> list[Any]:
    found: list[Any] = (await house.admin.get(f"/apps/{app_id}/jobs")).json
    return found


async def test_a_form_shows_what_can_be_chosen(house: House) -> None:
    app_id = await house.app_with_template()
    page = await look(house.admin, f"/jobs/new?app={app_id}&template=like")
    assert page.fields["template"] == ["like"]
    assert "carillon jobs create --csv FILE" in page.text
    empty = await look(house.admin, f"/jobs/new?app={await house.app()}")
    assert "has no template with an English text" in empty.text


async def test_a_job_is_previewed_and_made_once(house: House) -> None:
    app_id = await house.app_with_template()
    fields = typed(app_id, **{"filter-column": ["locale", ""], "filter-value": ["en", ""], "controlGroup": "20"})
    previewed = await send_form(house.admin, "/jobs/new/preview", fields)
    page = show(previewed)
    assert previewed.status == 200
    assert "This sends to 10 devices now." in page.text
    assert "Bo likes it" in page.text and "About 2 users are held out" in page.text
    assert page.fields["filter-column"][:2] == ["locale", ""]
    assert await jobs_of(house, app_id) == []

    confirm = fields | {"key": page.fields["key"]}
    replies = [await send_form(house.admin, "/jobs/new", confirm) for _ in range(2)]
    [job] = await jobs_of(house, app_id)
    assert {reply.headers["location"] for reply in replies} == {f"/ui/jobs/{app_id}/{job['id']}?said=made"}
    job = (await house.admin.get(f"/apps/{app_id}/jobs/{job['id']}")).json
    assert (job["filters"], job["controlGroup"], job["context"]) == ({"locale": "en"}, 0.2, {"user": "Bo"})


async def test_a_file_comes_along_with_the_form(house: House) -> None:
    app_id = await house.app_with_template()
    reply = await send_file(house.admin, "/jobs/new/preview", typed(app_id), b"user_id\nu1\nu2\nnobody\n")
    page = show(reply)
    assert reply.status == 200, reply.body
    assert "This sends to 2 devices now." in page.text and "1 of the users in the file" in page.text
    [path] = set(page.fields["csvPath"])
    confirm = typed(app_id, csvPath=path, key=page.fields["key"])
    assert (await send_form(house.admin, "/jobs/new", confirm)).status == 303
    [job] = await jobs_of(house, app_id)
    assert job["csvPath"] == path


@pytest.mark.parametrize(("content", "said"), [(b"", "the file is empty"), (b"user_id\n", "no rows behind it")])
async def test_a_file_without_users_is_named_beside_it(house: House, content: bytes, said: str) -> None:
    page = show(await send_file(house.admin, "/jobs/new/preview", typed(await house.app_with_template()), content))
    assert any(said in wrong for wrong in page.wrong), page.text
    assert "key" not in page.fields and "This sends to" not in page.text


async def test_a_file_that_is_too_large_goes_by_the_command(house: House) -> None:
    app_id = await house.app_with_template()
    reply = await send_file(house.admin, "/jobs/new/preview", typed(app_id), b"u" * FORM_BYTES)
    assert reply.status == 413
    assert "carillon jobs create --csv FILE" in show(reply).text


async def test_a_start_is_read_in_utc_and_by_each_zones_clocks(house: House) -> None:
    app_id = await house.app_with_template()
    start = (house.clock.now() + timedelta(days=3)).replace(microsecond=0, second=0, tzinfo=None)
    text = start.isoformat()[:16]
    fields = typed(app_id, when="at", startsAt=text)
    page = show(await send_form(house.admin, "/jobs/new/preview", fields))
    assert f"This will send to 10 devices at {text.replace('T', ' ')} UTC" in page.text
    localized = show(await send_form(house.admin, "/jobs/new/preview", fields | {"when": "localized"}))
    assert f"to 10 devices, in each time zone at {text.replace('T', ' ')} local time" in localized.text
    assert "Starts in 1 zone, from" in localized.text
    made = await send_form(house.admin, "/jobs/new", fields | {"key": "k"})
    assert made.status == 303
    [job] = await jobs_of(house, app_id)
    assert job["startsAt"] == ns(start.replace(tzinfo=UTC))


async def test_a_job_is_repeated_by_a_schedule(house: House) -> None:
    app_id = await house.app_with_template()
    fields = typed(app_id, when="repeat", scheduleKey="news.weekly", cron="0 9 * * MON", timezone="Europe/Paris")
    page = show(await send_form(house.admin, "/jobs/new/preview", fields))
    assert "The schedule news.weekly starts such a job" in page.text and "Mon " in page.text
    assert "A job now would send to 10 devices" in page.text and "Create the schedule" in page.text
    made = await send_form(house.admin, "/jobs/new", fields | {"key": page.fields["key"]})
    assert made.headers["location"].startswith("/ui/schedules/news.weekly?"), made.body
    stored = (await house.admin.get("/schedules/news.weekly")).json
    data = stored["callback"]["data"]
    assert (data["app_id"], data["template"], data["payload"]["context"]) == (app_id, "like", {"user": "Bo"})
    assert await jobs_of(house, app_id) == []
    shown = show(await house.admin.get("/ui/schedules/news.weekly"))
    assert "A job that sends the template like" in shown.text and "The occurrence is skipped." in shown.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scheduleKey": "no key"}, "scheduleKey"),
        ({"cron": "9"}, "cron"),
        ({"timezone": "Mars"}, "timezone"),
        ({"expiresAt": "2030-01-01T00:00"}, "expiresAt"),
        ({"filter-column": "none", "filter-value": "x"}, "filters"),
    ],
)
async def test_a_mistake_in_a_repeated_job_is_told_beside_its_field(
    house: House, changes: dict[str, str], field: str
) -> None:
    fields = typed(await house.app_with_template(), when="repeat", scheduleKey="k", cron="@weekly", timezone="UTC")
    page = show(await send_form(house.admin, "/jobs/new/preview", fields | changes))
    assert field in page.wrong, (page.wrong, page.text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"template": ""}, "choose at least one template"),
        ({"context": '{"user": }'}, "not JSON"),
        ({"context": '{"n": ' + "9" * 5_000 + "}"}, "too long a number"),
        ({"context": '{"n": NaN}'}, "NaN is not a value of JSON"),
        ({"metadata": "3", "dryRun": "1"}, "an object is needed"),
        ({"metadata": '{"a": "\\ud800"}', "dryRun": "1"}, "half of a surrogate pair"),
        ({"metadata": '{"a": 1, "a": 2}', "dryRun": "1"}, "twice"),
        ({"controlGroup": "100"}, "less than 100"),
        ({"when": "at"}, "type the time of the start"),
        ({"when": "at", "startsAt": "soon"}, "an instant is needed"),
        ({"when": "at", "startsAt": "2001-01-01T00:00"}, "lie in the future"),
        ({"filter-column": ["", ""], "filter-value": ["en", ""]}, "name the column"),
        ({"filter-column": "no_such", "filter-value": "x"}, "no_such"),
        ({"csvPath": "bucket/none.csv"}, "the bucket must be"),
    ],
)
async def test_a_refusal_keeps_what_was_typed(house: House, changes: dict[str, Any], said: str) -> None:
    app_id = await house.app_with_template()
    reply = await send_form(house.admin, "/jobs/new/preview", typed(app_id) | {"metadata": '{"m": 1}'} | changes)
    page = show(reply)
    assert reply.status == 422, page.text
    assert any(said in wrong for wrong in page.wrong), page.wrong
    for name in ("startsAt", "controlGroup", "context", "csvPath"):
        if name in changes:
            assert page.fields[name] == [changes[name]]


@pytest.mark.parametrize("metadata", ["", " { } ", '{"dryRun": true}'])
async def test_a_tick_makes_a_dry_run(house: House, metadata: str) -> None:
    app_id = await house.app_with_template()
    assert (await send_form(house.admin, "/jobs/new", typed(app_id, metadata=metadata, dryRun="1"))).status == 303
    [job] = await jobs_of(house, app_id)
    assert job["metadata"] == {"dryRun": True}


async def test_a_tag_without_a_value_is_refused_beside_the_values(house: House) -> None:
    app_id = await house.app_with_template()
    await house.admin.post(f"/apps/{app_id}/templates", {"name": "open", "locale": "en", "body": {"alert": "{{city}}"}})
    reply = await send_form(house.admin, "/jobs/new/preview", typed(app_id, template="open"))
    assert reply.status == 422 and b'id="wrong-context"' in reply.body
    assert any("no value for {{city}}" in wrong for wrong in show(reply).wrong)
    shown = await look(house.admin, f"/templates/{app_id}/named?name=open")
    assert "each job needs a value for it" in shown.text


async def test_a_refusal_that_ends_itself_gets_no_second_full_stop(house: House) -> None:
    app_id = await house.app_with_template()
    await house.admin.post(f"/apps/{app_id}/templates", {"name": "oi", "locale": "pt", "body": {"alert": "Oi"}})
    reply = await send_form(house.admin, "/jobs/new/preview", typed(app_id, template="oi"))
    assert reply.status == 422 and b"locale" in reply.body
    assert ".</strong>" in reply.body.decode() and "..</strong>" not in reply.body.decode()


async def test_many_devices_want_a_name(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MANY_DEVICES", 9)
    app_id = await house.app_with_template()
    confirm = typed(app_id, devices="1", key="one")  # whoever sends it does not say how many there are
    reply = await send_form(house.admin, "/jobs/new", confirm)
    page = show(reply)
    assert reply.status == 422
    assert any("type game" in wrong for wrong in page.wrong) or "type game" in page.text.lower()
    assert page.fields["key"] == ["one"]
    assert await jobs_of(house, app_id) == []
    assert (await send_form(house.admin, "/jobs/new", confirm | {"named": "game"})).status == 303
    assert len(await jobs_of(house, app_id)) == 1


async def test_viewers_make_no_jobs(house: House) -> None:
    app_id = await house.app_with_template()
    viewer = await viewer_of(house, app_id)
    page = await look(viewer, "/jobs/new")
    assert "You need the role operator" in page.text
    await look(viewer, f"/jobs/new?app={app_id}", 403)
    assert (await send_form(viewer, "/jobs/new/preview", typed(app_id))).status == 403
    assert (await send_form(viewer, "/jobs/new", typed(app_id))).status == 403
