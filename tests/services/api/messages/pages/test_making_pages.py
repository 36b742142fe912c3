"""A job of an account made in the wizard: previewed, confirmed in figures, made once, and refused beside its fields."""

import re
from typing import Any

import pytest
import pytest_asyncio

from services.api.jobs.pages import making
from services.api.messages.pages import accounts
from shared.messages.rules.credentials import CredentialStatus
from tests.services.api.jobs.pages.filled import look, send_file, send_form, viewer_of
from tests.services.api.messages.campaign import NOW, Campaign, campaign_at
from tests.services.api.messages.conftest import Desk
from tests.services.api.messages.pages import sheets
from tests.services.api.messages.pages.sheets import Sheet, read_sheet
from tests.services.api.messages.test_preview import make_table
from tests.stack import Endpoints

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

PEOPLE = b"Recipient,Name\nana@example.com,Ana\nbob@example.com,Bob\nana@example.com,Ana\n"


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    made = await campaign_at(desk, rate=2)
    letter = {"name": "letter", "locale": "pt", "body": {"subject": "Oi {{name}}", "text": "De {{city}}"}}
    assert (await desk.admin.post(f"/apps/{made.app_id}/templates", letter)).status == 201
    return made


def typed(campaign: Campaign, **changes: Any) -> dict[str, Any]:
    sender = {"sender": "credential", "service": "apns", "credential": campaign.credential_id}
    return {"app": campaign.app_id, "template": "hello", "when": "now"} | sender | changes


async def preview(campaign: Campaign, **changes: Any) -> Sheet:
    return read_sheet(await send_form(campaign.desk.admin, "/jobs/new/preview", typed(campaign, **changes)))


async def jobs_of(campaign: Campaign) -> list[Any]:
    found: list[Any] = (await campaign.desk.admin.get(campaign.jobs)).json
    return found


async def test_the_page_of_an_account_leads_to_a_form_that_has_it_chosen(campaign: Campaign) -> None:
    link = f"/jobs/new?app={campaign.app_id}&credential={campaign.credential_id}"
    account = await sheets.look(
        campaign.desk.admin, f"/messages/{campaign.app_id}/credentials/{campaign.credential_id}"
    )
    assert f"/ui{link}" in account.links
    form = await look(campaign.desk.admin, link)
    assert form.fields["sender"] == ["credential"]
    assert "play (sandbox, 2 per second)" in form.text and "letter pt" in form.text
    assert (await look(campaign.desk.admin, f"/jobs/new?app={campaign.app_id}")).fields["sender"] == ["service"]
    chosen = await sheets.look(campaign.desk.admin, f"{link}&template=letter")
    assert 'placeholder="{&#34;name&#34;: &#34;a value&#34;}"' in chosen.html


async def test_an_unknown_outcome_is_asked_about_unless_a_sandbox_sends(campaign: Campaign) -> None:
    form = f"/jobs/new?app={campaign.app_id}"
    assert "If the outcome is unknown" not in (await look(campaign.desk.admin, form)).text
    mail = await campaign.credential(kind="smtp")
    for credential, is_asked in ((campaign.credential_id, False), (mail.id, True), ("", True)):
        page = await look(campaign.desk.admin, f"{form}&credential={credential}")
        assert ("If the outcome is unknown" in page.text) is is_asked


async def test_a_list_of_accounts_or_templates_that_is_cut_says_so(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await campaign.credential()
    for path, module, most in (("/jobs/new?", making, "SHOWN_ACCOUNTS"), ("", accounts, "_NAMES_SHOWN")):
        page = path or f"/messages/{campaign.app_id}/send?"
        uncut = await sheets.look(campaign.desk.admin, f"{page}app={campaign.app_id}")
        assert "of more" not in uncut.words
        monkeypatch.setattr(module, most, 1)
        cut = await sheets.look(campaign.desk.admin, f"{page}app={campaign.app_id}&credential={other.id}")
        assert cut.words.count("The first 1 of more.") == (1 if path else 2)
        assert re.search(rf'value="{other.id}" selected|selected>{other.id}<', cut.html)


async def test_a_job_over_a_file_is_previewed_and_made_once(campaign: Campaign) -> None:
    admin, fields = campaign.desk.admin, typed(campaign, context='{"city": "Rome"}', list="news", maxRecipients="1,000")
    reply = await send_file(admin, "/jobs/new/preview", fields, PEOPLE)
    page = read_sheet(reply)
    assert reply.status == 200, page.words
    assert (
        "This sends to 2 recipients now with play, at up to 2 per second." in page.words
        and "Duplicates 1 row " in page.words
    )
    assert "Takes 1 s at 2 per second" in page.words and "Hi Ana" in page.words
    assert await jobs_of(campaign) == []
    confirm = fields | {"csvPath": page.typed["csvPath"], "key": page.typed["key"]}
    replies = [await send_form(admin, "/jobs/new", confirm) for _ in range(2)]
    [job] = await jobs_of(campaign)
    assert {each.headers["location"] for each in replies} == {f"/ui/jobs/{campaign.app_id}/{job['id']}?said=made"}
    shown = (await admin.get(f"{campaign.jobs}/{job['id']}")).json
    assert (shown["credentialId"], shown["csvPath"]) == (campaign.credential_id, page.typed["csvPath"])
    assert (shown["options"]["list"], shown["options"]["maxRecipients"]) == ("news", 1_000)
    made = await sheets.look(admin, f"/jobs/{campaign.app_id}/{job['id']}")
    assert f"/ui/messages/jobs/{campaign.app_id}/{job['id']}" in made.links


async def test_a_job_may_start_later_in_another_locale_and_call_nobody(campaign: Campaign) -> None:
    later = {"when": "at", "startsAt": "2100-01-31T18:00", "template": "letter", "locale": "pt", "dryRun": "1"}
    path = await campaign.file()
    page = await preview(campaign, csvPath=path, context='{"city": "Roma"}', haltOn="null", **later)
    assert page.status == 200, page.words
    assert "This will send to 1 recipient at 2100-01-31 18:00 UTC" in page.words
    assert "nobody receives anything" in page.words and "De Roma" in page.words and "Takes" not in page.words
    assert page.typed["haltOn"] == "null"


async def test_who_would_get_nothing_is_told(campaign: Campaign) -> None:
    mail = await campaign.credential(kind="smtp", name="mail", rate=10.0)
    path = await campaign.file(b"Recipient\nana@example.com\nbob\neva\n")
    body = {"subject": "Hi", "text": "There"}
    made = {"name": "plain", "locale": "en", "body": body}
    assert (await campaign.desk.admin.post(f"/apps/{campaign.app_id}/templates", made)).status == 201
    page = await preview(campaign, credential=mail.id, template="plain", csvPath=path)
    assert page.status == 200 and "Not sent to 2 malformed" in page.words
    assert "This sends to 1 recipient now with mail, at up to 10 per second." in page.words


async def test_what_would_stop_the_job_is_told_and_cannot_be_made(campaign: Campaign) -> None:
    missing = await preview(campaign, csvPath=await campaign.file(b"Name\nAna\n"))
    assert (missing.status, "key" in missing.typed) == (200, False)
    assert 'no column "recipient"' in missing.words and "cannot be created" in missing.words
    unfilled = await preview(campaign, template="letter", locale="pt", csvPath=await campaign.file())
    assert (unfilled.status, "key" in unfilled.typed) == (200, False)
    assert "{{city}}" in unfilled.words and "cannot be created" in unfilled.words


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"template": ["hello", "letter"]}, "template"),
        ({"template": "letter"}, "template"),
        ({"when": "localized", "startsAt": "2100-01-31T18:00"}, "localized"),
        ({"filter-column": "level", "filter-value": "3"}, "app"),
        ({"credential": "00000000-0000-4000-8000-00000000dead"}, "credential"),
        ({"credential": ""}, "credential"),
        ({"csvPath": "bucket/nothing.csv"}, "csvPath"),
        ({"recipientColumn": "x" * 256}, "recipientColumn"),
        ({"defaultRegion": "Singapore"}, "defaultRegion"),
        ({"duplicates": "twice"}, "duplicates"),
        ({"onUnknown": "guess"}, "onUnknown"),
        ({"list": "x" * 200}, "list"),
        ({"share": "many"}, "share"),
        ({"share": "101"}, "share"),
        ({"maxRecipients": "-1"}, "maxRecipients"),
        ({"haltOn": "{"}, "haltOn"),
        ({"haltOn": '{"share": 2}'}, "haltOn"),
    ],
)
async def test_a_refusal_stands_beside_its_field(campaign: Campaign, changes: dict[str, Any], field: str) -> None:
    path = {} if "csvPath" in changes or "filter-column" in changes else {"csvPath": await campaign.file()}
    page = await preview(campaign, **(path | changes))
    assert page.status == 422, page.words
    assert re.findall(r'id="wrong-(\w+)"', page.html) == [field]
    assert ("Choose a CSV file, or fill the table." in page.words) == (field == "app")
    assert f'aria-describedby="wrong-{field}"' in page.html or field in {"app", "template"}
    folded = {"defaultRegion", "duplicates", "onUnknown", "maxRecipients", "share", "haltOn"}
    assert ("<details open>" in page.html) == (field in folded)
    for name in ("recipientColumn", "defaultRegion", "list", "share", "maxRecipients", "haltOn"):
        if name in changes:
            assert page.typed[name] == changes[name]
    assert await jobs_of(campaign) == []


async def test_a_control_group_of_pushes_is_no_part_of_it(campaign: Campaign) -> None:
    page = await preview(campaign, controlGroup="20", csvPath=await campaign.file())
    assert page.status == 200 and "Held out" not in page.words


async def test_an_account_that_sends_nothing_now_is_refused(campaign: Campaign) -> None:
    store = campaign.desk.house.store
    assert await store.credentials.move(campaign.credential_id, CredentialStatus.SUSPENDED, why="", at=NOW)
    page = await preview(campaign, csvPath=await campaign.file())
    assert (page.status, list(page.wrong)) == (409, ["credential"])


async def test_many_recipients_want_a_name(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MANY_THINGS", 0)
    confirm = typed(campaign, csvPath=await campaign.file(), key="one")
    page = read_sheet(await send_form(campaign.desk.admin, "/jobs/new", confirm))
    assert "type game" in page.wrong["named"] and page.typed["key"] == "one"
    assert await jobs_of(campaign) == []
    assert (await send_form(campaign.desk.admin, "/jobs/new", confirm | {"named": "game"})).status == 303
    assert len(await jobs_of(campaign)) == 1


async def test_viewers_make_none(desk: Desk, campaign: Campaign) -> None:
    viewer = desk.admin.someone((await viewer_of(desk.house, campaign.app_id)).headers["x-forwarded-email"])
    account = await sheets.look(viewer, f"/messages/{campaign.app_id}/credentials/{campaign.credential_id}")
    assert account.status == 200 and not any("/jobs/new" in link for link in account.links)
    for path in ("/jobs/new/preview", "/jobs/new"):
        assert (await send_form(viewer, path, typed(campaign, csvPath=await campaign.file()))).status == 403
    assert await jobs_of(campaign) == []


async def test_filters_choose_rows_of_the_table(campaign: Campaign, stack: Endpoints) -> None:
    """It is the last test: others want that there is no table."""
    await make_table(campaign, stack, rows=100)
    level = {"filter-column": "level", "filter-value": "3", "key": "table"}
    page = await preview(campaign, **level)
    assert page.status == 200 and "This sends to 10 recipients now" in page.words
    wrong = await preview(campaign, **(level | {"filter-column": "colour"}))
    assert wrong.status == 422 and 'id="wrong-filters"' in wrong.html
    assert (await send_form(campaign.desk.admin, "/jobs/new", typed(campaign, **level))).status == 303
    [job] = await jobs_of(campaign)
    assert job["filters"] == {"level": "3"}
