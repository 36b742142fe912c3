"""One person's messages forget whom they were to: at once, everywhere in the app, and nowhere else."""

import csv
import json
from io import StringIO
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from shared.jobs.rules.jobs import Job
from shared.messages import retention
from shared.messages.rules.ledger import MessageState
from tests.services.api.client import Client, Reply
from tests.services.api.messages.campaign import Campaign, campaign_at
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ANA, BOB = "ana.maria@example.com", "bob@example.com"


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk)


@pytest_asyncio.fixture(loop_scope="module")
async def job(campaign: Campaign) -> Job:
    """Two messages to Ana, of which one has failed, and one to Bob."""
    job = await campaign.made()
    await campaign.plan(job, [3])
    failed = {"to": ANA, "state": MessageState.FAILED, "reason": "refused", "detail": "no mailbox ana.maria"}
    await campaign.note(job, 0, {0: {"to": ANA}, 1: failed, 2: {"to": BOB, "detail": "fine"}})
    return job


async def redact(campaign: Campaign, address: str, client: Client | None = None, *, separator: str = "/") -> Reply:
    caller = client or campaign.desk.admin
    return await caller.delete(f"/apps/{campaign.app_id}/recipients{separator}{quote(address, safe='')}")


async def listed(campaign: Campaign, job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await campaign.desk.admin.get(f"{campaign.jobs}/{job.id}/messages")).json
    return found


async def test_their_messages_forget_them_and_count_as_before(campaign: Campaign, job: Job) -> None:
    before = await campaign.shown(job, "?exact=true")
    answer = await redact(campaign, "Ana.Maria@EXAMPLE.com")
    assert (answer.status, answer.json) == (200, {"redacted": 0, "more": False}), "a mailbox has its own case"
    answer = await redact(campaign, "ana.maria@EXAMPLE.com")
    assert (answer.status, answer.json) == (200, {"redacted": 2, "more": False})
    first, second, third = await listed(campaign, job)
    for message in (first, second):
        assert (message["recipient"], message["detail"], message["redacted"]) == ("", "", True)
        assert message["redactedAt"]
    assert (second["state"], second["reason"]) == ("failed", "refused")
    assert (third["recipient"], third["redactedAt"], third["redacted"]) == (BOB, None, False)
    after = await campaign.shown(job, "?exact=true")
    assert (after["messages"], after["reasons"]) == (before["messages"], before["reasons"])
    assert (await campaign.desk.admin.get(f"/apps/{campaign.app_id}/messages?recipient={ANA}")).json == []
    assert (await redact(campaign, ANA)).json == {"redacted": 0, "more": False}


async def test_exports_say_so(campaign: Campaign, job: Job) -> None:
    await redact(campaign, ANA)
    path = f"{campaign.jobs}/{job.id}/messages"
    table = await campaign.desk.admin.download(path, accept="text/csv")
    rows = [*csv.DictReader(StringIO(table.body.decode()))]
    assert [(row["recipient"], bool(row["redactedAt"])) for row in rows] == [("", True), ("", True), (BOB, False)]
    lines = await campaign.desk.admin.download(path, accept="application/x-ndjson")
    assert [json.loads(line)["redacted"] for line in lines.body.splitlines()] == [True, True, False]
    assert ANA not in (table.body + lines.body).decode()


async def test_another_apps_messages_stay(desk: Desk, campaign: Campaign, job: Job) -> None:
    other = await campaign_at(desk)
    answer = await redact(other, ANA)
    assert answer.json == {"redacted": 0, "more": False}
    assert [message["recipient"] for message in await listed(campaign, job)] == [ANA, ANA, BOB]


async def test_any_address_can_stand_there(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [4])
    strange = ["a/b?c=d&e#f%2F", "+6591234567", "日本", "x y"]
    await campaign.note(job, 0, {row: {"to": to} for row, to in enumerate(strange)})
    for address in ("a/b?c=d&e#f%2F", "+65 9123 4567", "日本", "x y"):
        answer = await redact(campaign, address)
        assert (answer.status, answer.json["redacted"]) == (200, 1), address
    assert (await redact(campaign, "x" * 1_025)).status == 422


STRANGE = [
    *("tok//9", "tok/9", "abc", "/abc", "abc/", "//abc", "a/b", "a//b", "a/./b", "a/../b", ".", "..", "/", "//", "="),
    *("https://hooks.example.com/services/T1/B2", "https:/hooks.example.com/services/T1/B2", "/C=US/A= /P=x/S=Lee"),
    *("100%", "100%25", "%2F", "%252F", "a+b", "a b", "x y@example.com", "x+y@example.com", "a?b=c", "a#b", "a&b=c"),
    *("日本/", "{}", "due", "bulk", "recipients", "messages/../a"),
]


@pytest.mark.parametrize("way", ["path", "query"])
async def test_exactly_the_address_of_the_request_is_forgotten(campaign: Campaign, way: str) -> None:
    job = await campaign.made()
    await campaign.plan(job, [len(STRANGE)])
    await campaign.note(job, 0, {row: {"to": to} for row, to in enumerate(STRANGE)})
    left = list(STRANGE)
    for address in STRANGE:
        written = quote(address, safe="")
        path = f"/apps/{campaign.app_id}/recipients" + (f"/{written}" if way == "path" else f"?address={written}")
        assert (await campaign.desk.admin.delete(path)).json["redacted"] == 1, address
        left.remove(address)
        assert sorted(each["recipient"] for each in await listed(campaign, job) if each["recipient"]) == sorted(left)


@pytest.mark.parametrize(
    ("rest", "forgotten"),
    [
        *(("/tok//9", "tok//9"), ("//abc", "/abc"), ("/abc/", "abc/"), ("/a/%2e/b", "a/./b"), ("/%61bc", "abc")),
        *(("/", ""), ("", ""), ("/%FF", ""), ("?address=", ""), ("?address=%FF", ""), ("?address=abc&address=a", "")),
        *(("?address=x+y@example.com", ""), ("?address=x%20y@example.com", "x y@example.com")),
    ],
)
async def test_an_address_is_read_as_it_was_sent_or_refused(campaign: Campaign, rest: str, forgotten: str) -> None:
    job = await campaign.made()
    await campaign.plan(job, [len(STRANGE)])
    await campaign.note(job, 0, {row: {"to": to} for row, to in enumerate(STRANGE)})
    answer = await campaign.desk.admin.delete(f"/apps/{campaign.app_id}/recipients{rest}")
    assert (answer.status == 200) == bool(forgotten) and answer.status < 500
    shown = [each["recipient"] for each in await listed(campaign, job)]
    assert [to for to in STRANGE if to not in shown] == [forgotten] * bool(forgotten)


async def test_who_has_very_many_is_told_to_ask_again(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_REDACTED_AT_ONCE", 2)
    monkeypatch.setattr(retention, "_REDACTION_STEPS", 2)
    job = await campaign.made()
    await campaign.plan(job, [5])
    await campaign.note(job, 0, {row: {"to": ANA} for row in range(5)})
    assert (await redact(campaign, ANA)).json == {"redacted": 4, "more": True}
    assert (await redact(campaign, ANA)).json == {"redacted": 1, "more": False}


@pytest.mark.parametrize("separator", ["/", "?address="])
async def test_neither_the_audit_nor_the_log_names_them(
    campaign: Campaign, job: Job, capsys: pytest.CaptureFixture[str], separator: str
) -> None:
    await redact(campaign, ANA, separator=separator)
    stranger = Client(campaign.desk.admin.app, {})
    assert (await redact(campaign, ANA, stranger, separator=separator)).status == 401
    audit = await campaign.desk.admin.get(f"/apps/{campaign.app_id}/audit")
    [record] = [each for each in audit.json if each["act"] == "recipient.redact"]
    assert (record["on"]["id"], record["outcome"]) == ("a…@example.com", "done")
    logged = "".join(capsys.readouterr())
    assert ("/recipients/***" in logged) == (separator == "/")
    assert ANA not in logged + audit.body.decode()
    assert quote(ANA, safe="") not in logged


async def test_a_viewer_redacts_nobody(campaign: Campaign, job: Job) -> None:
    for role, status in (("viewer", 403), ("operator", 200)):
        made = await campaign.desk.admin.post("/tokens", {"name": role, "roles": {f"app/{campaign.app_id}": role}})
        client = campaign.desk.admin.service(made.json["token"])
        assert (await redact(campaign, ANA, client)).status == status
