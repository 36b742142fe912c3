"""`carillon jobs create --credential`, `carillon jobs messages` and `carillon messages`, beside a real API."""

import csv
from io import StringIO
from types import SimpleNamespace
from typing import cast

import pytest

from shared.messages.rules.ledger import Message, MessageState
from shared.messages.store_ledger import EntryChange
from tests.cli.conftest import Document, Program
from tests.services.api.conftest import House
from tests.services.api.messages.campaign import Campaign
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HINT = "1 job of messages has begun and has not ended; its waiting messages are not searched.\n"
PLAY = ("credentials", "create", "play", "--kind", "sandbox", "--test-recipient", "ana@example.com")


async def made_job(cli: Program, house: House, *options: str) -> tuple[tuple[str, str], str]:
    """The option for the app, and the job's id."""
    app_id = await house.app_with_template()
    app = ("--app", app_id)
    await cli.done(*PLAY, *app)
    path = await house.file("people.csv", b"recipient\nana@example.com\n")
    named = ("--credential", "play", "--template", "like", "--csv-path", path)
    made = await cli.done("jobs", "create", *app, *named, *options, "--json")
    return app, made.json["id"]


async def test_a_job_by_a_credential_is_made_and_shown(cli: Program, house: House, document: Document) -> None:
    options = ("--halt-on", "null", "--share", "4", "--duplicates", "each", "--max-recipients", "9", "--transactional")
    app, job_id = await made_job(cli, house, *options, "--list", "news", "--default-region", "SG")
    shown = await cli.done("jobs", "show", job_id, *app, "--json")
    document.check("get", "/apps/{appId}/jobs/{jobId}", shown.json)
    told = shown.json["options"]
    assert (told["haltOn"], told["share"], told["duplicates"], told["maxRecipients"]) == (None, 4, "each", 9)
    assert (told["transactional"], told["list"], told["defaultRegion"]) == (True, "news", "SG")
    page = (await cli.done("jobs", "show", job_id, *app)).out
    assert f"play ({shown.json['credentialId']})\n" in page
    assert not {"devices", "group", "service"} & {*page.split()}
    assert "unsent: 0" not in page
    await house.store.credentials.remove(shown.json["credentialId"])
    page = (await cli.done("jobs", "show", job_id, *app)).out
    assert f"  {shown.json['credentialId']}\n" in page


async def test_a_preview_tells_who_would_be_called_and_when(cli: Program, house: House, document: Document) -> None:
    app = ("--app", await house.app_with_template())
    await cli.done(*PLAY, *app)
    path = await house.file("twice.csv", b"recipient,name\nana@example.com,A\nana@example.com,B\n")
    named = ("--credential", "play", "--template", "like", "--csv-path", path)
    told = await cli.done("jobs", "preview", *app, *named, "--json")
    document.check("post", "/apps/{appId}/jobs/preview", told.json)
    assert (told.json["messages"]["recipients"], told.json["messages"]["repeated"]) == (1, 1)
    shown = (await cli.done("jobs", "preview", *app, *named)).out
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("would be sent")] == ["1"]
    assert "ends, estimated" in shown
    assert any(line.split() == ["LOCALE", "BYTES", "MESSAGE"] for line in shown.splitlines()), shown
    bad = await house.file("bad.csv", b'recipient\n"')
    broken = await cli.run("jobs", "preview", *app, *named[:-1], bad)
    assert broken.code == 5
    assert "The job would fail" in broken.out
    assert (await cli.run("jobs", "preview", *app, *named[:-1], bad, "--json")).code == 5
    assert "devices" not in broken.out


async def test_what_needs_a_credential_says_so(cli: Program, house: House) -> None:
    ended = await cli.run("jobs", "create", "--app", await house.app(), "--template", "like", "--share", "4")
    assert (ended.code, "--share: only with --credential" in ended.err) == (2, True)


async def test_a_wrong_credential_kind_or_source_is_named(cli: Program, house: House) -> None:
    app = ("--app", await house.app_with_template())
    await cli.done(*PLAY, *app)
    create = ("jobs", "create", *app, "--template", "like", "--credential")
    for command, told in (
        ((*create, "plai"), "'plai'; did you mean play?"),
        ((*create, "play"), "in the push database; give --csv FILE (csvPath), or make the table"),
        (("credentials", "create", "x", "--kind", "smpt", "--test-recipient", "a@b.example", *app), "mean smtp?"),
    ):
        ended = await cli.run(*command)
        assert ended.code and told in ended.err, ended.err


async def test_a_blank_recipient_is_shown_as_such(cli: Program, house: House) -> None:
    app, job_id = await made_job(cli, house)
    job = await house.store.jobs.view(job_id)
    assert job is not None
    blank = Message(
        id=f"{job.incarnation}.00000000.00000", app_id=job.app_id, credential_id=job.credential_id, to=" ",
        state=MessageState.INVALID,
    )  # fmt: skip
    await house.store.messages.fold([EntryChange(None, blank)])
    assert "  (blank)  " in (await cli.done("jobs", "messages", job_id, *app)).out
    assert "(blank)\n" in (await cli.done("messages", "show", blank.id, *app)).out


async def test_a_retry_says_how_many_messages_it_sends(cli: Program, house: House) -> None:
    app, job_id = await made_job(cli, house)
    job = await house.store.jobs.view(job_id)
    assert job is not None
    campaign = Campaign(cast(Desk, SimpleNamespace(house=house)), job.app_id, job.credential_id)
    await campaign.plan(job, [4])
    await campaign.note(job, 0, {0: {}, 1: {"state": MessageState.FAILED}, 2: {"state": MessageState.FAILED}})
    await campaign.close(job, days_ago=0)
    ended = await cli.done("jobs", "retry", job_id, *app, "--state", "failed", "--state", "unsent")
    assert ended.out == f"Retrying job {job_id}: 3 messages.\n"


async def test_messages_are_listed_found_and_shown(cli: Program, house: House, document: Document) -> None:
    app, job_id = await made_job(cli, house)
    job = await house.store.jobs.view(job_id)
    assert job is not None
    entries = [
        Message(
            id=f"{job.incarnation}.00000000.{row:05}", app_id=job.app_id, credential_id=job.credential_id,
            to=f"+659123456{row}", state=state, detail="=1+1", ref=f"{job.credential_id}/SM{row}",
        )
        for row, state in enumerate((MessageState.SENT, MessageState.FAILED))
    ]  # fmt: skip
    await house.store.messages.fold([EntryChange(None, entry) for entry in entries])
    listed = (await cli.done("jobs", "messages", job_id, *app, "--json")).lines
    document.check("get", "/apps/{appId}/jobs/{jobId}/messages", listed)
    assert [message["id"] for message in listed] == [entry.id for entry in entries]
    failed = await cli.done("jobs", "messages", job_id, *app, "--state", "failed", "--quiet")
    assert failed.out.split() == [entries[1].id]
    rows = [*csv.DictReader(StringIO((await cli.done("jobs", "messages", job_id, *app, "--csv")).out))]
    assert [(row["recipient"], row["detail"]) for row in rows] == [
        ("+6591234560", "'=1+1"),
        ("+6591234561", "'=1+1"),
    ]
    for question in (("+65 9123 4560",), ("--credential", "play", "--provider-id", "SM0")):
        found = (await cli.done("messages", "find", *question, *app, "--json")).lines
        document.check("get", "/apps/{appId}/messages", found)
        assert [message["id"] for message in found] == [entries[0].id]
    assert job_id[:8] in (await cli.done("messages", "find", "+65 9123 4560", *app)).out
    nothing = await cli.done("messages", "find", "+65 9999 9999", *app)
    assert nothing.err == f"Nothing found. {HINT}"
    nothing = await cli.done("messages", "find", "user5", *app)
    assert nothing.err == f"Nothing found. {HINT}"
    assert (await cli.done("messages", "find", "+65 9123 4560", *app)).err.endswith(HINT)
    mistaken = await cli.run("messages", "list", *app)
    assert (mistaken.code, "Did you mean find?" in mistaken.err) == (2, True)
    shown = await cli.done("messages", "show", entries[0].id, *app, "--json")
    assert shown.json["jobId"] == job_id
    document.check("get", "/apps/{appId}/messages/{messageId}", shown.json)
    assert "SM0" in (await cli.done("messages", "show", entries[0].id, *app)).out
    assert (await cli.run("messages", "show", "nothing", *app)).code == 4
    unsure = await cli.run("messages", "redact", "+65 9123 4560", *app)
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    redacted = await cli.done("messages", "redact", "+65 9123 4560", *app, "--yes", "--json")
    document.check("delete", "/apps/{appId}/recipients", redacted.json | {"more": False})
    assert redacted.json == {"redacted": 1}
    shown = await cli.done("messages", "show", entries[0].id, *app)
    assert ("it is forgotten" in shown.out, "+659123456" in shown.out) == (True, False)
    assert "(redacted)" in (await cli.done("jobs", "messages", job_id, *app)).out
    assert (await cli.run("messages", "find", *app)).code == 2
