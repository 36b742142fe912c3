"""The ledger of a job: in pages, and as a stream of all."""

import csv
import json
from io import StringIO
from typing import Any

import pytest
import pytest_asyncio

from shared.jobs.rules.jobs import Job, split_key
from shared.messages.rules.ledger import EarlierAttempt, MessageState, entry_id
from tests.services.api.client import Client
from tests.services.api.messages.campaign import NOW, Campaign, campaign_at
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ROWS = 2_100


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(campaign: Campaign) -> Job:
    """Three batches: the first two are sent, but for each tenth message; of the third nobody has called any."""
    job = await campaign.made()
    await campaign.plan(job, [ROWS // 2, ROWS // 2, 7])
    for ordinal in (0, 1):
        for first in range(0, ROWS // 2, 200):
            rows = range(first, min(first + 200, ROWS // 2))
            failed = {"state": MessageState.FAILED, "reason": "refused", "detail": "=cmd|' /C calc'!A0"}
            sent = {"to": "+6591234567", "ref": f"{campaign.credential_id}/-9"}
            await campaign.note(job, ordinal, {row: sent if row % 10 else failed for row in rows})
    return job


async def viewer_of(campaign: Campaign) -> Client:
    made = await campaign.desk.admin.post("/tokens", {"name": "reader", "roles": {f"app/{campaign.app_id}": "viewer"}})
    assert made.status == 201, made.body
    return campaign.desk.admin.service(made.json["token"])


def path_of(campaign: Campaign, job: Job, query: str = "") -> str:
    return f"{campaign.jobs}/{job.id}/messages{query}"


def read_csv(content: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(StringIO(content.decode()))]


async def test_pages_follow_the_audience(campaign: Campaign, job: Job) -> None:
    seen: list[dict[str, Any]] = []
    path: str | None = path_of(campaign, job, "?limit=900")
    while path:
        answer = await campaign.desk.admin.get(path)
        assert answer.status == 200, answer.body
        seen += answer.json
        link = answer.headers.get("link", "")
        path = link[1 : link.index(">")] if link else None
    incarnation = split_key(job.key)[1]
    expected = [entry_id(incarnation, ordinal, row) for ordinal in (0, 1) for row in range(ROWS // 2)]
    assert [message["id"] for message in seen] == expected
    assert seen[1] == {
        "id": expected[1], "credentialId": campaign.credential_id, "recipient": "+6591234567", "state": "sent",
        "reason": "", "detail": "", "attempt": 1, "round": 0, "repeated": 0, "providerId": "-9",
        "answeredAt": "2026-12-24T14:00:00Z", "deliveredAt": None, "readAt": None, "redactedAt": None,
        "redacted": False, "jobId": job.id, "template": "hello", "locale": "en",
    }  # fmt: skip


async def test_one_state_is_chosen(campaign: Campaign, job: Job) -> None:
    answer = await campaign.desk.admin.get(path_of(campaign, job, "?state=failed"))
    assert len(answer.json) == ROWS // 10
    assert {message["state"] for message in answer.json} == {"failed"}
    wrong = await campaign.desk.admin.get(path_of(campaign, job, "?state=lost"))
    assert (wrong.status, wrong.json["field"]) == (422, "state")


async def test_what_was_given_back_is_unsent(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [2])
    await campaign.note(job, 0, {0: {"state": MessageState.UNSENT}, 1: {}})
    answer = await campaign.desk.admin.get(path_of(campaign, job, "?state=unsent"))
    assert [message["id"] for message in answer.json] == [entry_id(split_key(job.key)[1], 0, 0)]
    shown = await campaign.shown(job, "?exact=true")
    assert (shown["messages"]["unsent"], shown["messages"]["sent"]) == (1, 1)


async def test_all_come_in_one_stream_of_csv(campaign: Campaign, job: Job) -> None:
    answer = await campaign.desk.admin.download(path_of(campaign, job), accept="text/csv")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["x-carillon-unsent"] == "7"
    rows = read_csv(answer.body)
    assert len(rows) == ROWS
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    failed, sent = rows[0], rows[1]
    assert (failed["state"], failed["detail"]) == ("failed", "'=cmd|' /C calc'!A0"), "no spreadsheet runs it"
    assert (sent["recipient"], sent["providerId"]) == ("+6591234567", "'-9")


@pytest.mark.parametrize("media", ["text/csv", "application/x-ndjson"])
async def test_a_stream_is_taken_up_where_it_broke(campaign: Campaign, job: Job, media: str) -> None:
    whole = await campaign.desk.admin.download(path_of(campaign, job), accept=f"application/*;q=0.5, {media}")
    lines = whole.body.splitlines(keepends=True)
    broken = lines[:1_500]
    last = json.loads(broken[-1])["id"] if media.endswith("ndjson") else broken[-1].decode().split(",")[0]
    rest = await campaign.desk.admin.download(path_of(campaign, job, f"?cursor={last}"), accept=media)
    assert b"".join(broken) + rest.body == whole.body


async def test_a_line_of_json_is_the_message(campaign: Campaign, job: Job) -> None:
    page = await campaign.desk.admin.get(path_of(campaign, job, "?limit=3&state=sent"))
    stream = await campaign.desk.admin.download(path_of(campaign, job, "?state=sent"), accept="application/x-ndjson")
    assert [json.loads(line) for line in stream.body.splitlines()[:3]] == page.json


@pytest.mark.parametrize("accept", ["application/x-ndjson;q=0", "text/csv; q=0.000, application/json"])
async def test_a_type_of_no_quality_is_not_wanted(campaign: Campaign, job: Job, accept: str) -> None:
    answer = await campaign.desk.admin.download(path_of(campaign, job, "?limit=3"), accept=accept)
    assert answer.headers["content-type"].startswith("application/json")
    assert len(json.loads(answer.body)) == 3


async def test_the_cursor_of_a_page_begins_a_stream(campaign: Campaign, job: Job) -> None:
    page = await campaign.desk.admin.get(path_of(campaign, job, "?limit=999"))
    cursor = page.headers["link"].partition("cursor=")[2].partition(">")[0]
    path = path_of(campaign, job, f"?cursor={cursor}")
    rest = await campaign.desk.admin.download(path, accept="application/x-ndjson")
    assert len(page.json) + len(rest.body.splitlines()) == ROWS
    wrong = await campaign.desk.admin.download(path_of(campaign, job, "?cursor=!"), accept="text/csv")
    assert (wrong.status, wrong.json["field"]) == (422, "cursor")


async def test_a_job_without_messages_is_an_empty_list(campaign: Campaign) -> None:
    fresh = await campaign.made()
    assert (await campaign.desk.admin.get(path_of(campaign, fresh))).json == []
    exported = await campaign.desk.admin.download(path_of(campaign, fresh), accept="text/csv")
    assert (len(exported.body.splitlines()), exported.headers["x-carillon-unsent"]) == (1, "0")


async def test_a_viewer_sees_no_address(campaign: Campaign, job: Job) -> None:
    viewer = await viewer_of(campaign)
    pages = await viewer.get(path_of(campaign, job, "?limit=2"))
    assert [(each["recipient"], each["redacted"]) for each in pages.json] == [("…", True)] * 2
    exported = await viewer.download(path_of(campaign, job), accept="text/csv")
    assert b"+65" not in exported.body and b"calc" not in exported.body
    message = await viewer.get(f"/apps/{campaign.app_id}/messages/{pages.json[1]['id']}")
    assert (message.json["recipient"], message.json["redacted"]) == ("…", True)
    asked = await viewer.get(f"/apps/{campaign.app_id}/messages?recipient=ana@example.com")
    assert asked.status == 403


async def test_other_jobs_and_apps_are_not_shown(desk: Desk, campaign: Campaign, job: Job) -> None:
    other = await campaign_at(desk)
    assert (await desk.admin.get(f"{other.jobs}/{job.id}/messages")).status == 404
    [first] = (await desk.admin.get(path_of(campaign, job, "?limit=1"))).json
    assert (await desk.admin.get(f"/apps/{other.app_id}/messages/{first['id']}")).status == 404
    assert (await desk.admin.get(f"/apps/{campaign.app_id}/messages/{first['id']}")).status == 200


async def test_the_newest_messages_to_a_recipient_come_first(desk: Desk, campaign: Campaign) -> None:
    jobs = []
    for days in range(3):
        jobs.append(job := await campaign.made())
        desk.house.clock.advance(1)
        await campaign.plan(job, [2])
        at = NOW.replace(day=3 - days)
        await campaign.note(job, 0, {0: {"to": "bob@example.com", "until": at, "answered_at": None}})
    other = await campaign_at(desk)
    theirs = await other.made()
    await other.plan(theirs, [1])
    await other.note(theirs, 0, {0: {"to": "bob@example.com"}})
    path = f"/apps/{campaign.app_id}/messages?recipient=%20bob@EXAMPLE.com"
    found = await desk.admin.get(path)
    assert found.status == 200, found.body
    expected = [entry_id(split_key(job.key)[1], 0, 0) for job in reversed(jobs)]
    assert [message["id"] for message in found.json] == expected
    first = await desk.admin.get(f"{path}&limit=2")
    link = first.headers["link"]
    second = await desk.admin.get(link[1 : link.index(">")])
    assert [message["id"] for message in first.json + second.json] == expected


async def test_a_message_names_its_job_template_locale_and_subject(campaign: Campaign) -> None:
    made = campaign.desk.admin
    for locale, subject in (("en", "Hi {{name}}"), ("pt", "Oi {{name}}")):
        letter = {"name": "letter", "locale": locale, "body": {"subject": subject, "text": "Hi {{name}}"}}
        assert (await made.post(f"/apps/{campaign.app_id}/templates", letter)).status == 201
    job = await campaign.made(template="letter")
    await campaign.plan(job, [2])
    store = campaign.desk.house.store
    copies = [
        {"locale": each.locale, "body": json.dumps(each.body)}
        for each in await store.templates.find_named(campaign.app_id, ["letter"])
    ]
    await store.jobs._jobs.update_one({"_id": job.id}, {"$set": {"plan.templates": copies}})
    people = {0: {"to": "cem@example.com"}, 1: {"to": "cem@example.com", "locale": "pt"}}
    english, portuguese = await campaign.note(job, 0, people)
    found = (await made.get(f"/apps/{campaign.app_id}/messages?recipient=cem@example.com")).json
    listed = (await made.get(path_of(campaign, job))).json
    for some in (found, listed):
        told = {each["id"]: (each["jobId"], each["template"], each["locale"]) for each in some}
        assert told == {english.id: (job.id, "letter", "en"), portuguese.id: (job.id, "letter", "pt")}
    for client in (made, await viewer_of(campaign)):
        for message, subject in ((english, "Hi {{name}}"), (portuguese, "Oi {{name}}")):
            assert (await client.get(f"/apps/{campaign.app_id}/messages/{message.id}")).json["subject"] == subject


async def test_the_first_page_of_a_search_counts_the_jobs_that_may_still_send(desk: Desk) -> None:
    campaign = await campaign_at(desk)
    path = f"/apps/{campaign.app_id}/messages?recipient=new@example.com"
    header = "x-carillon-running-jobs"
    assert (await desk.admin.get(path)).headers[header] == "0"
    jobs = [await campaign.made() for _ in range(2)]
    empty = await desk.admin.get(path)
    assert (empty.json, empty.headers[header]) == ([], "2")
    await campaign.close(jobs[0])
    assert (await desk.admin.get(path)).headers[header] == "1"
    await campaign.plan(jobs[1], [2])
    await campaign.note(jobs[1], 0, {row: {"to": "new@example.com"} for row in range(2)})
    found = await desk.admin.get(f"{path}&limit=1")
    assert (len(found.json), found.headers[header]) == (1, "1")
    cursor = found.headers["link"].partition("cursor=")[2].partition(">")[0]
    assert header not in (await desk.admin.get(f"{path}&cursor={cursor}")).headers


async def test_phone_numbers_are_found_as_people_write_them(desk: Desk, campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [1])
    [message] = await campaign.note(job, 0, {0: {"to": "+6598765432"}})
    found = await desk.admin.get(f"/apps/{campaign.app_id}/messages?recipient=%2B65%209876-5432")
    assert [each["id"] for each in found.json] == [message.id]


async def test_a_message_is_found_by_what_its_provider_calls_it(desk: Desk, campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [1])
    earlier = EarlierAttempt(attempt=1, state=MessageState.FAILED, reason="gave-up", detail="busy", ref="x")
    fields = {"ref": f"{campaign.credential_id}/SM/7", "attempt": 2, "earlier": (earlier,)}
    [message] = await campaign.note(job, 0, {0: fields})
    path = f"/apps/{campaign.app_id}/messages"
    for credential in ("play", campaign.credential_id):
        found = await desk.admin.get(f"{path}?credential={credential}&providerId=SM/7")
        assert [(each["id"], each["providerId"]) for each in found.json] == [(message.id, "SM/7")]
    shown = await desk.admin.get(f"{path}/{message.id}")
    assert shown.json["earlier"] == [
        {"attempt": 1, "state": "failed", "reason": "gave-up", "detail": "busy", "providerId": "x"}
    ]
    other = await campaign_at(desk)
    none = await desk.admin.get(f"/apps/{other.app_id}/messages?credential=play&providerId=SM/7")
    assert none.json == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "recipient"),
        ("?recipient=ana&credential=play", "recipient"),
        ("?credential=play", "providerId"),
        ("?providerId=SM7", "credential"),
        ("?credential=nobody&providerId=SM7", "credential"),
        ("?recipient=ana&cursor=WzEsMl0", "cursor"),
        ("?recipient=ana&cursor=WzI4MTQ3NDk3NjcxMDY1NiwgIngiXQ", "cursor"),  # [2**48, "x"]: no instant
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(campaign: Campaign, query: str, field: str) -> None:
    refused = await campaign.desk.admin.get(f"/apps/{campaign.app_id}/messages{query}")
    assert (refused.status, refused.json["field"]) == (422, field)


async def test_an_unknown_message_is_none(campaign: Campaign) -> None:
    for message_id in ("nothing", "a.b.c", "%00", "…"):
        answer = await campaign.desk.admin.get(f"/apps/{campaign.app_id}/messages/{message_id}")
        assert answer.status == 404, (message_id, answer.body)


async def test_a_job_of_messages_has_no_records_to_be_shown(campaign: Campaign, job: Job) -> None:
    answer = await campaign.desk.admin.get(f"{campaign.jobs}/{job.id}/samples")
    assert answer.status == 409
    assert "it has no records" in answer.json["detail"]
