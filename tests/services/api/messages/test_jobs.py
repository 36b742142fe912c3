"""Jobs that send by a credential: what POST stores, and what it refuses before anything is stored."""

import asyncio
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from shared.core.errors import Conflict
from shared.core.instants import ns
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import CredentialStatus, OnUnknown
from shared.messages.rules.jobs import Duplicates, Halt, options_of
from shared.store import Store
from tests.services.api.conftest import _execute
from tests.services.api.messages.campaign import Campaign, campaign_at
from tests.services.api.messages.conftest import Desk
from tests.stack import Endpoints

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk, rate=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _make_table(desk: Desk, stack: Endpoints) -> None:
    """A table of recipients for the sandbox."""
    database = f"{stack.postgres_url.rpartition('/')[0]}/{desk.house.store._database.name}"
    await _execute(
        database,
        'CREATE TABLE game_sandbox (seq_id bigint, "Recipient" text, name text, level integer, phone text)',
        "CREATE INDEX ON game_sandbox (seq_id)",
        "INSERT INTO game_sandbox VALUES (1, 'ana@example.com', 'Ana', 3, '91234567')",
    )


async def jobs_of(store: Store, campaign: Campaign) -> list[Job]:
    return [*await store.job_lists.page_of_app(campaign.app_id, template="", after=None, limit=100)]


async def test_who_resumes_a_stopped_job_is_told_of_its_retry(desk: Desk, campaign: Campaign) -> None:
    job = await campaign.made()
    path = f"{campaign.jobs}/{job.id}"
    assert (await desk.admin.put(f"{path}/stop")).status == 200
    refused = await desk.admin.put(f"{path}/resume")
    assert (refused.status, refused.json["field"]) == (403, "status")
    assert "/retry" in refused.json["reason"]


async def test_a_job_over_a_file_is_stored_with_what_is_usual(desk: Desk, campaign: Campaign) -> None:
    path = await campaign.file()
    answer = await campaign.post(csvPath=path, context={"when": "today"}, metadata={"campaign": 7})
    assert answer.status == 201, answer.body
    assert (answer.json["service"], answer.json["credentialId"]) == ("message", campaign.credential_id)
    job = await desk.house.store.jobs.view(answer.json["id"])
    assert job is not None
    assert (job.credential_id, job.table_kind, job.csv_path) == (campaign.credential_id, "sandbox", path)
    options = options_of(job)
    assert (options.recipient_column, options.locale, options.duplicates) == ("recipient", "en", Duplicates.ONCE)
    assert (options.on_unknown, options.halt, options.share) == (OnUnknown.HOLD, None, 1)
    assert options.batch_size == 120, "a minute of the rate"
    assert job.context == {"when": "today"}


async def test_all_of_its_own_is_read_and_shown(campaign: Campaign) -> None:
    own = {
        "recipientColumn": "  E-Mail\u200b ",
        "locale": "en",
        "defaultRegion": "sg",
        "duplicates": "each",
        "onUnknown": "retry",
        "haltOn": {"share": 0.5, "minimum": 3},
        "share": 7,
        "list": "news",
        "transactional": True,
        "maxRecipients": 1_000,
    }
    people = await campaign.file(b"E-Mail,Name\n91234567,Ana\n")
    job = await campaign.made(csvPath=people, **own)
    shown = (await campaign.shown(job))["options"]
    assert shown == own | {"recipientColumn": "e-mail", "defaultRegion": "SG"}


async def test_instants_may_be_texts(campaign: Campaign) -> None:
    job = await campaign.made(startsAt="2126-12-24T09:00:00Z", expiresAt="2126-12-24T10:00:00Z")
    start = ns(datetime(2126, 12, 24, 9, tzinfo=UTC))
    assert (job.starts_at, job.expires_at) == (start, start + 3_600 * 10**9)


async def test_the_credential_is_named_in_any_way(desk: Desk, campaign: Campaign) -> None:
    other = await campaign_at(desk, name="theirs")
    shared = await campaign.credential(app_id=other.app_id, name="lent", shared_with=(campaign.app_id,))
    for written, meant in (("play", campaign.credential_id), ("lent", shared.id), (shared.id, shared.id)):
        job = await campaign.made(credential=written)
        assert job.credential_id == meant
    await campaign.credential(app_id=(await campaign_at(desk)).app_id, name="lent", shared_with=(campaign.app_id,))
    refused = await campaign.post(credential="lent", csvPath=await campaign.file())
    assert (refused.status, refused.json["field"]) == (422, "credential")
    assert "give its id" in refused.json["detail"]


async def test_null_is_another_answer_than_none(campaign: Campaign) -> None:
    mail = await campaign.credential(kind="smtp")
    await campaign.desk.admin.post(
        f"/apps/{campaign.app_id}/templates",
        {"name": "letter", "locale": "en", "body": {"subject": "Hi", "text": "Hi {{name}}"}},
    )
    usual = await campaign.made(credential=mail.id, template="letter")
    assert options_of(usual).halt == Halt()
    assert options_of(usual).channel is Channel.MAIL
    never = await campaign.made(credential=mail.id, template="letter", haltOn=None)
    assert options_of(never).halt is None


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"service": "apns"}, "credential", "a credential or a service, not both"),
        ({"credential": ...}, "service", "it must be apns or gcm, or `credential` must be set"),
        ({"credential": "nobody"}, "credential", "no credential with the name or id 'nobody'"),
        ({"credential": "plya"}, "credential", "no credential with the name or id 'plya'; did you mean play?"),
        ({"credential": "00000000-0000-4000-8000-00000000ffff"}, "credential", "no credential"),
        ({"localized": True, "startsAt": 4 * 10**18}, "localized", "cannot be localized"),
        ({"controlGroup": 0.1}, "controlGroup", "no control group"),
        ({"metadata": {"dryRun": "yes"}}, "metadata.dryRun", "true or false"),
        ({"expiresAt": 1}, "expiresAt", "in the future"),
        ({"template": "hello,hello"}, "template", "one template"),
        ({"template": "nothing"}, "template", "no template named"),
        ({"template": "helo"}, "template", "no template named 'helo'; did you mean hello?"),
        ({"template": "odd"}, "body.text", "'{{first name}}'"),
        ({"locale": "pt"}, "template", "none in the locale 'pt'"),
        ({"recipientColumn": "x" * 256}, "recipientColumn", "of up to 255 characters"),
        ({"defaultRegion": "XX"}, "defaultRegion", "two letters"),
        ({"duplicates": "twice"}, "duplicates", "once or each"),
        ({"onUnknown": "wait"}, "onUnknown", "hold or retry"),
        ({"haltOn": {"share": 2}}, "haltOn.share", "up to 1"),
        ({"haltOn": {"minimum": -1}}, "haltOn.minimum", "0 or more"),
        ({"haltOn": {"most": 1}}, "haltOn", "there is no field 'most'"),
        ({"haltOn": "never"}, "haltOn", "an object"),
        ({"share": 0}, "share", "from 1 to 100"),
        ({"share": 101}, "share", "from 1 to 100"),
        ({"share": "much"}, "share", "an integer"),
        ({"list": " news"}, "list", "without blanks"),
        ({"maxRecipients": -1}, "maxRecipients", "or 0 for no limit"),
        ({"csvPath": "bucket/nothing.csv"}, "csvPath", ""),
        ({"filters": {"level": "3"}}, "filters", "not both"),
    ],
)
async def test_what_is_wrong_is_told_and_nothing_is_stored(
    desk: Desk, campaign: Campaign, fields: dict[str, Any], field: str, words: str
) -> None:
    # It was stored before templates were checked for such tags.
    text = {"text": "Hi {{first name}}"}
    odd = Template(id=str(uuid.uuid4()), app_id=campaign.app_id, name="odd", locale="en", body=text)
    with suppress(Conflict):
        await desk.house.store.templates.add(odd)
    before = await jobs_of(desk.house.store, campaign)
    refused = await campaign.post(**({"csvPath": await campaign.file()} | fields))
    assert (refused.status, refused.json["field"]) == (422, field), refused.body
    assert words in refused.json["detail"]
    assert await jobs_of(desk.house.store, campaign) == before


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        (b"Recipient,Name\nana@example.com,Ana\nbob@example.com\n", "csvPath", "line 3"),
        (b"Recipients,Name\nana@example.com,Ana\n", "csvPath", "did you mean recipients?, in the header"),
        (b"Recipient,Nmae\nana@example.com,Ana\n", "template", "default for {{name}}; did you mean nmae?"),
        (b"Recipient,Name\n", "csvPath", "no rows behind it"),
    ],
)
async def test_a_broken_file_takes_no_job(
    desk: Desk, campaign: Campaign, content: bytes, field: str, words: str
) -> None:
    before = await jobs_of(desk.house.store, campaign)
    refused = await campaign.post(csvPath=await campaign.file(content))
    assert (refused.status, refused.json["field"]) == (422, field), refused.body
    assert words in refused.json["detail"]
    assert await jobs_of(desk.house.store, campaign) == before


async def test_a_dry_run_is_one_by_its_metadata(campaign: Campaign) -> None:
    dry = await campaign.made(metadata={"dryRun": True})
    assert options_of(dry).dry_run
    assert not options_of(await campaign.made(metadata={"dryRun": False})).dry_run
    shown = await campaign.shown(dry)
    assert shown["metadata"] == {"dryRun": True}
    assert shown["queue"] == {"jobs": 0, "messages": 0, "startsIn": None}, "it waits for nobody"


async def test_another_apps_credential_is_none(desk: Desk, campaign: Campaign) -> None:
    other = await campaign_at(desk)
    refused = await campaign.post(credential=other.credential_id, csvPath=await campaign.file())
    unknown = await campaign.post(credential="00000000-0000-4000-8000-00000000ffff", csvPath=await campaign.file())
    told = unknown.json["detail"].replace("00000000-0000-4000-8000-00000000ffff", other.credential_id)
    assert (refused.status, refused.json["detail"]) == (422, told)


@pytest.mark.parametrize("status", [CredentialStatus.SUSPENDED, CredentialStatus.REJECTED])
async def test_a_credential_that_does_not_send_takes_no_job(campaign: Campaign, status: CredentialStatus) -> None:
    held = await campaign.credential(status=status, why="no money")
    refused = await campaign.post(credential=held.name, csvPath=await campaign.file())
    assert (refused.status, refused.json["field"]) == (409, "credential")
    assert "no money" in refused.json["detail"]


async def test_a_template_that_the_provider_does_not_take_is_refused(campaign: Campaign) -> None:
    mail = await campaign.credential(kind="smtp")
    refused = await campaign.post(credential=mail.id, csvPath=await campaign.file())
    assert (refused.status, refused.json["field"]) == (422, "template")
    assert "'hello' in 'en'" in refused.json["detail"]


async def test_a_link_that_would_be_empty_is_refused(desk: Desk, campaign: Campaign) -> None:
    mail = await campaign.credential(kind="smtp")
    body = {"subject": "Hi", "text": "Hi", "html": "<a href='{{ Unsubscribe_URL }}'>no more</a>"}
    template = {"name": "linked", "locale": "en", "body": body}
    assert (await desk.admin.post(f"/apps/{campaign.app_id}/templates", template)).status == 201
    for path in (campaign.jobs, f"{campaign.jobs}/preview"):
        given = {"credential": mail.id, "csvPath": await campaign.file()}
        refused = await desk.admin.post(f"{path}?template=linked", given)
        assert (refused.status, refused.json["field"]) == (422, "template"), refused.body
        for words in ("{{unsubscribe_url}} in body.html of 'linked' in 'en'", "api.public_url"):
            assert words in refused.json["detail"]


async def test_a_table_is_looked_at(desk: Desk, campaign: Campaign) -> None:
    made = await campaign.post(filters={"level": "3"})
    assert made.status == 201, made.body
    job = await desk.house.store.jobs.view(made.json["id"])
    assert job is not None and (job.table, job.filters) == ("game_sandbox", {"level": "3"})
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"recipientColumn": "recipients"}, "recipientColumn", 'no column "recipients"; did you mean recipient?'),
        ({"filters": {"colour": "red"}}, "filters.colour", "colour"),
        ({"filters": {"levle": "3"}}, "filters.levle", 'no column "levle"; did you mean level?'),
        ({"filters": {"level": "three"}}, "filters.level", ""),
        ({"template": "tagged"}, "template", "{{city}}"),
        ({"credential": (await campaign.credential(kind="http")).id}, "app", "game_http"),
    ]
    tagged = {"name": "tagged", "locale": "en", "body": {"text": "Hi {{ NAME }} of {{City}}"}}
    await desk.admin.post(f"/apps/{campaign.app_id}/templates", tagged)
    for fields, field, words in wrong:
        refused = await campaign.post(**fields)
        assert (refused.status, refused.json["field"]) == (422, field), refused.body
        assert words in refused.json["detail"]
    filled = await campaign.post(template="tagged", context={"CITY": "Rome"})
    assert filled.status == 201, filled.body


async def test_a_credential_is_deleted_or_a_job_is_made_and_never_both(desk: Desk, campaign: Campaign) -> None:
    for _ in range(10):
        credential = await campaign.credential()
        path = await campaign.file()
        made, deleted = await asyncio.gather(
            campaign.post(credential=credential.id, csvPath=path),
            desk.admin.delete(f"/apps/{campaign.app_id}/credentials/{credential.id}"),
        )
        there = await desk.house.store.credentials.get(credential.id) is not None
        assert deleted.status == (409 if there else 204)
        assert made.status in ({201} if there else {409, 422}), (there, made.body)
        assert await desk.house.store.message_jobs.has_open(credential.id) == (made.status == 201)


async def test_a_deletion_between_the_look_and_the_end_is_noticed(desk: Desk, campaign: Campaign) -> None:
    store = desk.house.store
    credential = await campaign.credential()
    uses = await store.credentials.count_uses(credential.id)
    await campaign.made(credential=credential.id)
    assert not await store.credentials.remove_unused(credential.id, since=uses), "the job has noted its use"
    refused = await desk.admin.delete(f"/apps/{campaign.app_id}/credentials/{credential.id}")
    assert refused.status == 409
    assert not await store.credentials.note_use("00000000-0000-4000-8000-00000000ffff")


async def test_the_same_key_gives_the_same_job(desk: Desk, campaign: Campaign) -> None:
    body = {"credential": "play", "csvPath": await campaign.file(), "share": 2}
    key = {"idempotency-key": "one"}
    first = await desk.admin.post(f"{campaign.jobs}?template=hello", body, **key)
    again = await desk.admin.post(f"{campaign.jobs}?template=hello", body, **key)
    other = await desk.admin.post(f"{campaign.jobs}?template=hello", body | {"share": 3}, **key)
    assert (first.status, again.status, other.status) == (201, 200, 422)
    assert first.json["id"] == again.json["id"]
