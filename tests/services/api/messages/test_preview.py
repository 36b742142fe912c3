"""Previews of jobs with a credential: who would be called, when, and no trace of it."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from services.api.messages import recipient_counting
from shared.core.instants import ns
from shared.messages.barring import find_barred
from shared.messages.rules.credentials import CredentialStatus
from shared.runtime.server_settings import BlobSettings
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import _execute
from tests.services.api.messages.campaign import NOW, Campaign, campaign_at
from tests.services.api.messages.conftest import Desk
from tests.stack import Endpoints

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

LOCAL = ("127.0.0.0/8", "::1/128")
PEOPLE = (
    b"Recipient,Name\n"
    b"ana@example.com,Ana\n"
    b"  Ana@EXAMPLE.com ,Ana again\n"
    b"ana@EXAMPLE.com,and again\n"
    b"bob,no address\n"
    b"eva@example.com,Eva\n"
    b"gone@example.com,Gone\n"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(desk: Desk) -> Desk:
    """One whose API counts to the end."""
    return desk_that_counts(desk, seconds=60)


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(patient: Desk) -> Campaign:
    return await campaign_with_letter(patient)


def desk_that_counts(desk: Desk, *, seconds: float) -> Desk:
    """One whose API takes larger files than usual here, and counts for so long."""
    settings = ApiSettings(first_admin=ADMIN, trusted_proxies=LOCAL, preview_seconds=seconds)
    sections = (desk.rooms.servers.settings.providers, BlobSettings(max_file_bytes=10**8), settings)
    return replace(desk, admin=Client(desk.house.build(*sections, **_providers(desk)), desk.house.admin.headers))


async def campaign_with_letter(desk: Desk) -> Campaign:
    made = await campaign_at(desk, rate=10)
    letter = {"name": "letter", "locale": "en", "body": {"subject": "Hi", "text": "Hi {{name}} of {{city}}"}}
    assert (await desk.admin.post(f"/apps/{made.app_id}/templates", letter)).status == 201
    return made


def _providers(desk: Desk) -> dict[str, Any]:
    """What the desk opens accounts by."""
    names = ("key_ring", "provider_kinds", "provider_outgoing")
    return {name: getattr(desk.rooms.servers, name) for name in names}


async def ask(campaign: Campaign, *, template: str = "hello", **body: Any) -> Reply:
    given = {"credential": campaign.credential_id} | body
    return await campaign.desk.admin.post(f"{campaign.jobs}/preview?template={template}", given)


async def mail(campaign: Campaign, **body: Any) -> dict[str, Any]:
    """The preview of a job of mail over the people."""
    credential = await campaign.credential(kind="smtp")
    given = {"csvPath": await campaign.file(PEOPLE), "context": {"city": "Rome"}} | body
    reply = await ask(campaign, template="letter", credential=credential.id, **given)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_a_file_is_counted_by_what_would_become_of_its_rows(campaign: Campaign) -> None:
    barred = await campaign.desk.admin.post(
        f"/apps/{campaign.app_id}/suppressions", {"address": "gone@example.com", "channel": "mail"}
    )
    assert barred.status == 201, barred.body
    preview = await mail(campaign)
    messages = preview["messages"]
    counts = ("exact", "recipients", "estimatedRecipients", "malformed", "suppressed", "repeated")
    assert [messages[name] for name in counts] == [True, 3, 3, 1, 1, 1], "the domain alone is read in any case"
    assert (messages["columns"], messages["unfilledTags"]) == (["recipient", "name"], [])
    assert (preview["topic"], preview["audience"], preview["samples"]) == ("", None, [])
    assert [warning["code"] for warning in preview["warnings"]] == ["case-differs"]
    assert preview["warnings"][0]["message"].startswith("1 address differs only in case")
    assert preview["fileBytes"] == len(PEOPLE)
    [sample] = messages["samples"]
    assert (sample["locale"], sample["content"]) == ("en", {"subject": "Hi", "text": "Hi Ana of Rome"})
    assert sample["bytes"] == len(b'{"subject":"Hi","text":"Hi Ana of Rome"}')
    each = (await mail(campaign, duplicates="each"))["messages"]
    assert (each["recipients"], each["repeated"]) == (4, 0)


async def test_nothing_is_stored_and_no_use_is_noted(desk: Desk, campaign: Campaign) -> None:
    store = desk.house.store
    before = await store.credentials.count_uses(campaign.credential_id)
    assert (await ask(campaign, csvPath=await campaign.file())).status == 200
    assert [*await store.job_lists.page_of_app(campaign.app_id, template="", after=None, limit=10)] == []
    assert await store.credentials.count_uses(campaign.credential_id) == before
    assert await desk.arrived() == 0


async def test_when_it_begins_and_ends_is_estimated(desk: Desk, campaign: Campaign) -> None:
    older = await campaign.made()
    await campaign.plan(older, [40])
    desk.house.clock.advance(1)
    people = b"Recipient,Name\n" + b"".join(b"a%d@example.com,A\n" % number for number in range(100))
    preview = (await ask(campaign, csvPath=await campaign.file(people))).json["messages"]
    assert preview["queue"] == {"jobs": 1, "messages": 40, "startsIn": 4.0}
    now = ns(await desk.house.store.now())
    assert 13 <= (preview["estimatedEnd"] - now) / 10**9 <= 14, "40 of others and 100 of its own, 10 a second"
    assert await desk.house.store.credentials.move(campaign.credential_id, CredentialStatus.SUSPENDED, why="", at=NOW)
    refused = await ask(campaign, csvPath=await campaign.file())
    assert (refused.status, refused.json["field"]) == (409, "credential"), "as POST of the job"


async def test_a_tag_that_nothing_fills_is_told(campaign: Campaign) -> None:
    preview = await mail(campaign, context={})
    assert preview["messages"]["unfilledTags"] == ["city"]
    warning = preview["warnings"][0]
    assert warning["code"] == "bad-file"
    assert "{{city}}" in warning["message"]


async def test_each_locale_has_a_sample_and_that_of_most_comes_first(campaign: Campaign) -> None:
    body = {"subject": "Oi", "html": "<b>{{name}}</b> {{city}} {{nobody}}"}
    letter = {"name": "letter", "locale": "de", "body": body}
    assert (await campaign.desk.admin.post(f"/apps/{campaign.app_id}/templates", letter)).status == 201
    messages = (await mail(campaign, context={"city": "A&B"}))["messages"]
    assert [sample["locale"] for sample in messages["samples"]] == ["en", "de"]
    assert messages["samples"][1]["content"]["html"] == "<b>Ana</b> A&amp;B {{nobody}}"
    assert messages["unfilledTags"] == ["nobody"]


async def test_locales_without_a_template_are_told(campaign: Campaign) -> None:
    people = b"Recipient,Name,Locale\na@x.com,A,en\nb@x.com,B,pt-BR\nc@x.com,C,pt_br\nd@x.com,D,\ne@x.com,E,en-GB\n"
    preview = await mail(campaign, csvPath=await campaign.file(people))
    [warning] = preview["warnings"]
    assert warning == {
        "code": "default-locale",
        "message": "'letter' has no template for the locales 'pt-BR', 'pt_br' (2 rows): 'en' is used.",
    }


async def test_messages_that_would_be_empty_or_too_long_are_told(campaign: Campaign, stack: Endpoints) -> None:
    credential = await campaign.credential(kind="twilio")
    own = {"name": "own", "locale": "en", "body": {"text": "{{text}}"}}
    assert (await campaign.desk.admin.post(f"/apps/{campaign.app_id}/templates", own)).status == 201
    texts = ["Hi", "", "again", " ", "x" * 1_600, "x" * 1_601]
    numbers = ["+6591234567", "+6591234568", "+6591234567", "+6591234569", "+6591234570", "+6591234571"]
    rows = "".join(f"{number},{text}\n" for number, text in zip(numbers, texts, strict=True))
    path = await campaign.file(f"Recipient,Text\n{rows}123,\n,\n".encode())
    counts = ("exact", "recipients", "malformed", "unrendered", "repeated")
    told = (await ask(campaign, template="own", credential=credential.id, csvPath=path)).json["messages"]
    assert [told[name] for name in counts] == [True, 2, 1, 3, 1]

    name = campaign.desk.house.store._database.name
    people = enumerate(zip(numbers, texts, strict=True), 1)
    values = ", ".join(f"({place}, '{number}', '{text}')" for place, (number, text) in people)
    await _execute(
        f"{stack.postgres_url.rpartition('/')[0]}/{name}",
        "DROP TABLE IF EXISTS game_twilio",
        "CREATE TABLE game_twilio (seq_id bigint, recipient text, text text)",
        "CREATE INDEX ON game_twilio (seq_id)",
        f"INSERT INTO game_twilio VALUES {values}",
    )
    told = (await ask(campaign, template="own", credential=credential.id)).json["messages"]
    assert [told[name] for name in counts] == [True, 2, 0, 3, 1]


async def test_blank_recipients_are_malformed_in_files_and_tables(campaign: Campaign, stack: Endpoints) -> None:
    credential = await campaign.credential(kind="smtp")
    job: dict[str, Any] = {"template": "letter", "credential": credential.id, "context": {"city": "Rome"}}
    blank = ["", " ", '""', '"\u200b"', "no-address", "no-address"]
    path = await campaign.file(
        "".join(["Name,Recipient\n", *(f"Ana,{each}\n" for each in blank), "B,b@x.com\n"]).encode()
    )
    counts = ("exact", "recipients", "malformed", "repeated")
    told = (await ask(campaign, **job, csvPath=path)).json["messages"]
    assert [told[name] for name in counts] == [True, 1, 5, 1]

    name = campaign.desk.house.store._database.name
    await _execute(
        f"{stack.postgres_url.rpartition('/')[0]}/{name}",
        "DROP TABLE IF EXISTS game_smtp",
        "CREATE TABLE game_smtp (seq_id bigint PRIMARY KEY, recipient text, name text)",
        "INSERT INTO game_smtp VALUES (1, NULL, 'a'), (2, '', 'b'), (3, ' ', 'c'), (4, 'b@x.com', 'd')",
    )
    told = (await ask(campaign, **job)).json["messages"]
    assert [told[name] for name in counts] == [True, 1, 3, 0]
    assert (await campaign.post(**job, csvPath=path)).status == 201


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Name,Recipient\nAna\n", "line 2"),
        (b"Name\nAna\n", 'no column "recipient"'),
        (b"Recipient,Recipient\na,b\n", "two columns"),
        (b"Recipient\n", "no rows behind it"),
    ],
)
async def test_a_file_over_which_the_job_would_fail(campaign: Campaign, content: bytes, words: str) -> None:
    preview = (await ask(campaign, csvPath=await campaign.file(content))).json
    assert preview["messages"] is None
    [warning] = preview["warnings"]
    assert (warning["code"], words in warning["message"]) == ("bad-file", True), warning


async def test_too_many_recipients_are_told(campaign: Campaign) -> None:
    preview = await mail(campaign, maxRecipients=4)
    assert [warning["code"] for warning in preview["warnings"]] == ["bad-file", "case-differs"]
    assert "maxRecipients" in preview["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"duplicates": "twice", "csvPath": "x/y"}, "duplicates"),
        ({"csvPath": "bucket/nothing.csv"}, "csvPath"),
        ({"credential": "nobody"}, "credential"),
        ({"filters": {"colour": "red"}}, "filters.colour"),
    ],
)
async def test_what_post_refuses_is_refused(
    campaign: Campaign, body: dict[str, Any], field: str, stack: Endpoints
) -> None:
    await make_table(campaign, stack, rows=1)
    refused = await ask(campaign, **body)
    assert (refused.status, refused.json["field"]) == (422, field), refused.body


async def make_table(campaign: Campaign, stack: Endpoints, *, rows: int) -> None:
    """A table of so many rows, the last 7 of which repeat the first; 10 rows are of level 3."""
    name = campaign.desk.house.store._database.name
    await _execute(
        f"{stack.postgres_url.rpartition('/')[0]}/{name}",
        "DROP TABLE IF EXISTS game_sandbox",
        "CREATE TABLE game_sandbox (seq_id bigint, recipient text, name text, level integer)",
        "CREATE INDEX ON game_sandbox (seq_id)",
        f"INSERT INTO game_sandbox SELECT n, 'p' || (n % ({rows} - 7)), 'A', CASE WHEN n <= 10 THEN 3 ELSE 4 END "
        f"FROM generate_series(1, {rows}) n" if rows > 7 else "INSERT INTO game_sandbox VALUES (1, 'ana', 'Ana', 3)",
    )  # fmt: skip


async def test_a_table_is_counted_part_by_part(campaign: Campaign, stack: Endpoints) -> None:
    await make_table(campaign, stack, rows=25_007)
    found = (await ask(campaign)).json["messages"]
    assert (found["exact"], found["recipients"], found["repeated"]) == (True, 25_000, 7)
    assert found["columns"] == ["seq_id", "recipient", "name", "level"]
    few = (await ask(campaign, filters={"level": "3"})).json["messages"]
    assert (few["exact"], few["recipients"], few["repeated"]) == (True, 10, 0)
    nobody = (await ask(campaign, filters={"level": "9"})).json["messages"]
    assert (nobody["exact"], nobody["recipients"], nobody["estimatedEnd"]) == (True, 0, 0)


@pytest.mark.slow
async def test_what_cannot_be_counted_in_time_is_estimated(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over while the third of nine thousand is looked up."""
    looks = itertools.count(1)

    async def find_or_hang(*given: Any) -> Any:
        if next(looks) == 3:
            await asyncio.Event().wait()
        return await find_barred(*given)

    monkeypatch.setattr(recipient_counting, "find_barred", find_or_hang)
    campaign = await campaign_with_letter(desk_that_counts(desk, seconds=3))
    rows = b"".join(b"a%06d@example.com,A\n" % number for number in range(9_000))
    found = (await ask(campaign, csvPath=await campaign.file(b"Recipient,Name\n" + rows))).json["messages"]
    assert not found["exact"], found
    assert found["recipients"] == 2_000
    assert found["estimatedRecipients"] == pytest.approx(9_000, rel=0.01)
    assert found["queue"]["startsIn"] == 0
    assert found["estimatedEnd"] > 0
