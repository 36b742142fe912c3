"""Pages of messages: what they show to whom, what their forms do, and what they say where the API refuses."""

import re
from datetime import timedelta
from urllib.parse import quote

import pytest
import pytest_asyncio

from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.credentials import CredentialStatus
from shared.messages.rules.ledger import EarlierAttempt, MessageState
from tests.providers.rules import Rule
from tests.services.api.client import Client
from tests.services.api.messages.campaign import Campaign, campaign_at
from tests.services.api.messages.conftest import Desk
from tests.services.api.messages.pages.sheets import look, read_sheet, send

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HOSTILE = "<script>alert('x')</script>"
DEEP = '{"a":' * 5_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(campaign: Campaign) -> Job:
    """A job that was stopped: of ten messages, two have failed, one is unknown, and four were never called."""
    job = await campaign.made()
    await campaign.plan(job, [10])
    failed = {"state": MessageState.FAILED, "reason": "refused", "detail": HOSTILE}
    earlier = (EarlierAttempt(attempt=1, state=MessageState.FAILED, reason="gave-up", detail="come again"),)
    again = failed | {"attempt": 2, "earlier": earlier}
    await campaign.note(job, 0, {0: {}, 1: {}, 2: {}, 3: failed, 4: again, 5: {"state": MessageState.UNKNOWN}})
    await campaign.close(job, days_ago=0)
    return job


async def person_of(campaign: Campaign, role: str) -> Client:
    """Somebody with this role over the app."""
    email = f"{role}-{campaign.app_id}@example.com"
    made = await campaign.desk.admin.post("/users", {"email": email, "roles": {f"app/{campaign.app_id}": role}})
    assert made.status in {201, 409}, made.body
    return campaign.desk.admin.someone(email)


def account_page(campaign: Campaign, act: str = "") -> str:
    return f"/messages/{campaign.app_id}/credentials/{campaign.credential_id}{act}"


async def test_an_app_without_accounts_is_told_how_to_make_one(desk: Desk) -> None:
    app_id = await desk.house.app()
    sheet = await look(desk.admin, f"/messages?app={app_id}")
    assert sheet.status == 200
    assert "has no account yet" in sheet.words and sheet.does(f"/messages/{app_id}/credentials/new")
    recipients = await look(desk.admin, f"/messages/{app_id}/recipients")
    assert "everybody may receive messages" in recipients.words
    assert "no account to send with" in (await look(desk.admin, f"/messages/{app_id}/send")).words


async def test_accounts_are_a_picture_of_how_each_stands(desk: Desk, campaign: Campaign, job: Job) -> None:
    sheet = await look(desk.admin, f"/messages?app={campaign.app_id}")
    assert sheet.status == 200
    assert "play ready sandbox" in sheet.words and "50 of 50" in sheet.words
    assert "Nothing is waiting." in sheet.words
    assert f"/ui/messages/jobs/{campaign.app_id}/{job.id}" in sheet.links
    account = await look(desk.admin, account_page(campaign))
    assert (account.status, account.does("/suspend"), account.does("/activate")) == (200, True, False)
    assert "Tests go to ana@example.com" in account.words
    assert "If the outcome is unknown send again" in account.words
    form = await look(desk.admin, f"/messages/{campaign.app_id}/credentials/new?kind=sandbox")
    assert "a sandbox sends again" in form.words and "do not send again" not in form.words


async def test_who_may_not_does_not_see_how(campaign: Campaign, job: Job) -> None:
    viewer, operator = await person_of(campaign, "viewer"), await person_of(campaign, "operator")
    seen = await look(viewer, account_page(campaign))
    assert seen.status == 200 and "ana@example.com" not in seen.words
    assert not any(seen.does(act) for act in ("/suspend", "/test", "/delete", "/change", "/secret"))
    seen = await look(operator, account_page(campaign))
    assert seen.does("/suspend") and seen.does("/test")
    assert not any(seen.does(act) for act in ("/delete", "/change", "/secret"))
    ledger = await look(viewer, f"/messages/jobs/{campaign.app_id}/{job.id}")
    assert ledger.status == 200 and "ana3" not in ledger.html and "alert(" not in ledger.html
    assert not ledger.does("/retry") and "recipient" not in ledger.typed
    recipients = await look(viewer, f"/messages/{campaign.app_id}/recipients?address=ana3@example.com")
    assert recipients.status == 200 and not recipients.does("/suppress") and "ana3" not in recipients.html
    assert (await look(viewer, f"/messages/{campaign.app_id}/send")).status == 403
    assert (await look(operator, f"/messages/{campaign.app_id}/credentials/new")).status == 403
    assert (await send(viewer, account_page(campaign, "/suspend"))).status == 403


async def test_an_account_is_suspended_with_a_reason_and_sends_again(campaign: Campaign) -> None:
    admin = campaign.desk.admin
    moved = await send(admin, account_page(campaign, "/suspend"), reason="the bill")
    assert (moved.status, moved.headers["location"]) == (303, f"/ui{account_page(campaign)}?said=suspended")
    shown = await look(admin, account_page(campaign))
    assert "It was suspended by hand. the bill" in shown.words and shown.does("/activate")
    refused = read_sheet(await send(admin, account_page(campaign, "/suspend")))
    assert refused.status == 409 and "The credential is suspended." in refused.words
    assert (await send(admin, account_page(campaign, "/activate"))).status == 303
    stored = await campaign.desk.house.store.credentials.get(campaign.credential_id)
    assert stored is not None and stored.status is CredentialStatus.ACTIVE


async def test_a_test_message_goes_where_the_account_says(campaign: Campaign) -> None:
    before = len(campaign.desk.noted())
    assert (await send(campaign.desk.admin, account_page(campaign, "/test"))).status == 303
    assert [note["to"] for note in campaign.desk.noted()[before:]] == ["ana@example.com"]


async def test_a_new_account_keeps_its_secret_to_itself(desk: Desk) -> None:
    app_id = await desk.house.app()
    page = f"/messages/{app_id}/credentials/new"
    form = await look(desk.admin, f"{page}?kind=http")
    assert form.status == 200 and form.typed["key"]
    secret = desk.body()["secret"]
    parts = [(f"secret.{name}", text) for name, text in secret.items()]
    typed = {"kind": "http", "key": form.typed["key"], "name": "Bad Name", "testRecipient": "ana", "rate": "7"}
    fields = [("fields.url", f"{desk.provider.url}/send"), ("fields.headers", "x-team: push\nx-more: yes")]
    refused = read_sheet(await send(desk.admin, page, *fields, *parts, **typed))
    assert refused.status == 422 and "1 to 50 of the letters" in refused.wrong["name"]
    assert (refused.typed["name"], refused.typed["rate"]) == ("Bad Name", "7")
    assert refused.typed["fields.headers"] == "x-team: push\nx-more: yes"
    assert not any(text in refused.html for text in secret.values())
    for wrong, field in (
        ({"rate": "fast"}, "rate"),
        ({"testContent": "{"}, "testContent"),
        ({"testContent": DEEP}, "testContent"),
        ({}, "fields.url"),
    ):
        others = [] if field == "fields.url" else fields
        refused = read_sheet(await send(desk.admin, page, *others, *parts, **(typed | {"name": "good"} | wrong)))
        assert refused.status == 422 and field in refused.wrong, refused.words
    await desk.provider.answer(Rule(status=503))
    away = read_sheet(await send(desk.admin, page, *fields, *parts, **(typed | {"name": "good"})))
    assert away.status == 422 and "does not take the test message now" in away.words and away.typed["name"] == "good"
    moved = await send(desk.admin, page, *fields, *parts, **(typed | {"name": "good"}))
    assert moved.status == 303, moved.body
    [made] = (await desk.admin.get(f"/apps/{app_id}/credentials")).json
    assert (made["name"], made["rate"], made["fields"]["headers"]) == ("good", 7, {"x-team": "push", "x-more": "yes"})
    shown = await look(desk.admin, moved.headers["location"].removeprefix("/ui"))
    assert made["fingerprint"] in shown.words and not any(text in shown.html for text in secret.values())


async def test_what_is_changed_of_an_account_is_what_was_typed(desk: Desk) -> None:
    app_id = await desk.house.app()
    made = await desk.made(app_id)
    page = f"/messages/{app_id}/credentials/{made['id']}"
    form = await look(desk.admin, f"{page}/change")
    assert (form.typed["rate"], form.typed["retry.attempts"], form.typed["name"]) == ("50", "3", "main")
    moved = await send(desk.admin, f"{page}/change", **(form.typed | {"rate": "12.5", "retry.attempts": "5"}))
    assert moved.status == 303, moved.body
    shown = (await desk.admin.get(f"/apps/{app_id}/credentials/{made['id']}")).json
    assert (shown["rate"], shown["retry"]["attempts"], shown["name"]) == (12.5, 5, "main")
    refused = read_sheet(await send(desk.admin, f"{page}/change", **(form.typed | {"retry.capSeconds": "0.2"})))
    assert refused.status == 422 and refused.wrong["retry.capSeconds"] and refused.typed["retry.capSeconds"] == "0.2"
    form = await look(desk.admin, f"{page}/secret")
    assert form.typed["fields.headers"] == "x-team: push" and form.typed["secret.signingSecret"] == ""
    refused = read_sheet(await send(desk.admin, f"{page}/secret", **(form.typed | {"secret.signingSecret": "hush"})))
    assert refused.status == 422 and refused.wrong["secret.signingSecret"] and "hush" not in refused.html
    assert (await send(desk.admin, f"{page}/delete", reason="not ours")).status == 303
    assert (await desk.admin.get(f"/apps/{app_id}/credentials")).json == []


async def test_a_ledger_adds_up_and_is_searched(campaign: Campaign, job: Job) -> None:
    admin, page = campaign.desk.admin, f"/messages/jobs/{campaign.app_id}/{job.id}"
    sheet = await look(admin, page)
    assert sheet.status == 200
    for part in ("sent 3", "unsent 4", "unknown 1", "failed 2", "refused the provider rejects"):
        assert part in sheet.words
    assert "4 unsent messages in all: this list has only those that were tried before." in sheet.words
    assert HOSTILE in sheet.words and sheet.tags.count("script") == 2
    failed = await look(admin, f"{page}?state=failed")
    assert "ana3@" in failed.words and "ana4@" in failed.words and "ana1@" not in failed.words
    found = await look(admin, f"{page}?recipient=ana4@EXAMPLE.com")
    assert "ana4@" in found.words and "ana3@" not in found.words
    assert "no message to this recipient" in (await look(admin, f"{page}?recipient={HOSTILE}@")).words
    [link] = [each for each in found.links if f"/ui/messages/{campaign.app_id}/messages/" in each]
    message = await look(admin, link.removeprefix("/ui"))
    assert f"/ui/jobs/{campaign.app_id}/{job.id}" in sheet.links
    assert message.status == 200 and "come again" in message.words and HOSTILE in message.words
    assert f"Job {(await admin.get(f'/apps/{campaign.app_id}/jobs/{job.id}')).json['name']} " in message.words
    assert page in [each.removeprefix("/ui") for each in message.links]


async def test_a_held_job_says_that_its_messages_bounced(campaign: Campaign) -> None:
    held = await campaign.made()
    running = frozenset({JobStatus.RUNNING})
    assert await campaign.desk.house.store.jobs.move(held.key, to=JobStatus.TRIPPED, only=running, at=1) is not None
    sheet = await look(campaign.desk.admin, f"/jobs/{campaign.app_id}/{held.id}")
    assert "Too many messages bounced or were refused" in sheet.words
    assert "batches failed" not in sheet.words
    assert "messages planned so far" in sheet.words and "devices" not in sheet.words
    details = await look(campaign.desk.admin, f"/jobs/{campaign.app_id}/{held.id}?show=details")
    assert "Control group" not in details.words and "Recipients in the file" in details.words


async def test_the_page_of_a_job_of_messages_counts_messages_and_calls(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [2])
    refused = {"state": MessageState.FAILED, "reason": "refused"}
    await campaign.note(job, 0, {0: refused, 1: {"repeated": 1}})
    await campaign.close(job, days_ago=0)
    sheet = await look(campaign.desk.admin, f"/jobs/{campaign.app_id}/{job.id}")
    assert "1 call was repeated, because" in sheet.words
    assert "Reason Messages Share refused 1" in sheet.words
    assert "control group" not in sheet.words and "Devices" not in sheet.words


async def test_messages_are_sent_again_as_chosen(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [3])
    await campaign.note(job, 0, {0: {"state": MessageState.FAILED, "reason": "refused"}, 1: {}})
    page = f"/messages/jobs/{campaign.app_id}/{job.id}"
    assert not (await look(campaign.desk.admin, page)).does("/retry")
    await campaign.close(job, days_ago=0)
    assert (await look(campaign.desk.admin, page)).does("/retry")
    refused = read_sheet(await send(campaign.desk.admin, f"{page}/retry"))
    assert refused.status == 422 and "Choose the messages to send again" in refused.words
    moved = await send(campaign.desk.admin, f"{page}/retry", ("states", "failed"), ("states", "unsent"))
    assert moved.status == 303, moved.body
    assert (await campaign.shown(job))["state"] == "running"


async def test_a_mailing_of_one_batch_shows_its_rate_while_it_runs(desk: Desk) -> None:
    campaign = await campaign_at(desk, name="rated")
    job, now = await campaign.made(), await desk.house.store.now()
    await campaign.plan(job, [600])
    await campaign.note(job, 0, {row: {} for row in range(100)})
    one = {"job_id": job.key, "ordinal": 0}
    took = {"began_at": now - timedelta(seconds=20), "taken_at": now}
    await desk.house.store._database["batches"].update_one(one, {"$set": took})
    page = await look(desk.admin, f"/jobs/{campaign.app_id}/{job.id}")
    [told] = re.findall(r"Rate (\S+) a second", page.words)
    assert 3 < float(told) < 6, "100 messages in twenty seconds"
    assert "Messages per second peak" in page.words and "Delivered" not in page.words
    assert "a second" in (await look(desk.admin, f"/jobs?app={campaign.app_id}")).words
    points = (await desk.admin.get(f"/apps/{campaign.app_id}/jobs/{job.id}/rate")).json["points"]
    assert len(points) > 15 and max(point["perSecond"] for point in points) <= 10


async def test_a_recipient_is_looked_up_suppressed_and_let_in_again(campaign: Campaign, job: Job) -> None:
    admin, page = campaign.desk.admin, f"/messages/{campaign.app_id}/recipients"
    sheet = await look(admin, f"{page}?address=ana5@example.com")
    assert "May receive messages" in sheet.words and "play" in sheet.words
    assert "must be one that messages can have" in (await look(admin, f"{page}?address={'x' * 2_000}")).wrong["address"]
    moved = await send(admin, f"{page}/suppress", addresses="ana5@example.com", channel="mail", list="", cause="hand")
    assert moved.headers["location"] == f"/ui{page}?said=suppressed-mail"  # addresses of pages stand in logs of proxies
    shown = await look(admin, f"{page}?address=ana5@EXAMPLE.com")
    assert "suppressed" in shown.words and "everything" in shown.words
    [lift] = [action for action in shown.actions if action.endswith("/delete")]
    lifted = await send(admin, lift.removeprefix("/ui"))
    assert lifted.headers["location"] == f"/ui{page}?said=suppression-deleted"
    assert (await admin.get(f"/apps/{campaign.app_id}/suppressions")).json == []
    forgot = await send(admin, f"{page}/forget", address="ana5@example.com")
    assert forgot.headers["location"] == f"/ui{page}?said=forgotten&count=1"
    assert "There is no message to them" in (await look(admin, f"{page}?address=ana5@example.com")).words


async def test_a_suppression_is_offered_for_the_channel_of_the_accounts_and_says_which_it_took(desk: Desk) -> None:
    campaign = await campaign_at(desk)
    page = f"/messages/{campaign.app_id}/recipients"
    form = (await desk.admin.get(f"/ui{page}")).body.decode()
    channels = re.findall(r'<option value="(mail|sms|push|other)">(.*?)</option>', form)
    assert channels[:2] == [("other", "other (play)"), ("mail", "mail address (no account of this app)")]
    moved = await send(desk.admin, f"{page}/suppress", addresses="ana", channel="other", cause="hand")
    said = await look(desk.admin, moved.headers["location"].removeprefix("/ui"))
    assert "Suppressed by the channel other." in said.words


@pytest.mark.parametrize("typed", ["a//b", "a/b/", "/a/b", "..", "a/../b", "x y@example.com", "x+y@example.com", "{}"])
async def test_an_address_with_any_characters_is_found_and_forgotten(campaign: Campaign, typed: str) -> None:
    job = await campaign.made()
    await campaign.plan(job, [2])
    await campaign.note(job, 0, {0: {"to": typed}, 1: {"to": "a/b"}})
    admin, page = campaign.desk.admin, f"/messages/{campaign.app_id}/recipients"
    query = f"?address={quote(typed, safe='')}"
    assert (await look(admin, page + query)).does(f"{page}/forget")
    forgot = await send(admin, f"{page}/forget{query}", address=typed)
    assert forgot.headers["location"] == f"/ui{page}?said=forgotten&count=1"
    left = (await admin.get(f"{campaign.jobs}/{job.id}/messages")).json
    assert [each["recipient"] for each in left] == ["", "a/b"]


async def test_no_address_forgets_nobody(campaign: Campaign) -> None:
    page = f"/messages/{campaign.app_id}/recipients"
    refused = read_sheet(await send(campaign.desk.admin, f"{page}/forget?address=a", address=""))
    assert (refused.status, "1 to 1,024 characters" in refused.wrong["address"]) == (422, True)


async def test_of_many_recipients_only_the_wrong_ones_stay_in_the_form(campaign: Campaign) -> None:
    admin, page = campaign.desk.admin, f"/messages/{campaign.app_id}/recipients"
    typed = {"channel": "mail", "list": "news", "cause": "unsubscribe"}
    addresses = f"bob@example.com\n{HOSTILE}\neve@example.com"
    refused = read_sheet(await send(admin, f"{page}/suppress", addresses=addresses, **typed))
    assert refused.status == 422 and refused.typed["addresses"] == HOSTILE
    assert "2 are suppressed; 1 could not be read" in refused.words
    kept = (await admin.get(f"/apps/{campaign.app_id}/suppressions")).json
    assert {(each["address"], each["list"]) for each in kept} == {
        ("bob@example.com", "news"),
        ("eve@example.com", "news"),
    }
    one = read_sheet(await send(admin, f"{page}/suppress", addresses="nobody", **typed))
    assert "malformed address" in one.wrong["addresses"].lower() and one.typed["list"] == "news"


async def test_one_message_is_sent_once_and_can_be_taken_back(campaign: Campaign) -> None:
    admin, page = campaign.desk.admin, f"/messages/{campaign.app_id}/send"
    form = await look(admin, page)
    typed = {"credential": campaign.credential_id, "to": "zoe@example.com", "key": form.typed["key"]}
    refused = read_sheet(await send(admin, page, body="[]", **typed))
    assert refused.status == 422 and refused.wrong["body"] and refused.typed["to"] == "zoe@example.com"
    assert refused.typed["key"] == form.typed["key"]
    sent = [await send(admin, page, body='{"text": "Hi"}', transactional="yes", **typed) for _ in range(2)]
    assert [reply.status for reply in sent] == [303, 303]
    assert sent[0].headers["location"] == sent[1].headers["location"]
    message = sent[0].headers["location"].removeprefix("/ui").partition("?")[0]
    assert "zoe@example.com" in (await look(admin, message)).words
    assert (await send(admin, f"{message}/cancel")).status == 303
    assert "cancelled" in (await look(admin, message)).words


async def test_a_name_tells_a_job_and_one_on_hold_says_what_waits(desk: Desk) -> None:
    campaign = await campaign_at(desk, name="held")
    job = await campaign.made(name="autumn sale")
    await campaign.plan(job, [1])
    running = frozenset({JobStatus.RUNNING})
    assert await desk.house.store.jobs.move(job.key, to=JobStatus.PAUSED, only=running, at=1) is not None
    for page in (f"/messages?app={campaign.app_id}", account_page(campaign)):
        words = (await look(desk.admin, page)).words
        assert "Its job is on hold: 1 message waits." in words
        assert "autumn sale" in words
    assert "1 message of 1 open job waits" in (await look(desk.admin, account_page(campaign))).words


async def test_over_a_thousand_messages_take_a_name(desk: Desk) -> None:
    campaign = await campaign_at(desk, name="big")
    job = await campaign.made()
    await campaign.plan(job, [1_001])
    page = account_page(campaign)
    assert "1,001 messages of 1 open job wait" in (await look(desk.admin, page)).words
    refused = read_sheet(await send(desk.admin, f"{page}/suspend", named="small"))
    assert refused.status == 422 and "Type big to confirm" in refused.words
    assert (await send(desk.admin, f"{page}/suspend", named="big")).status == 303
    await campaign.close(job, days_ago=0)
    ledger = f"/messages/jobs/{campaign.app_id}/{job.id}"
    assert read_sheet(await send(desk.admin, f"{ledger}/retry", states="unsent")).status == 422
    assert (await campaign.shown(job))["state"] == "stopped"


async def test_who_has_unsubscribed_by_a_link_is_let_in_from_the_list(campaign: Campaign) -> None:
    admin, page = campaign.desk.admin, f"/messages/{campaign.app_id}/recipients"
    given = {"channel": "mail", "address": "kim@example.com", "cause": "unsubscribe"}
    made = (await admin.post(f"/apps/{campaign.app_id}/suppressions", given)).json
    suppressions = campaign.desk.house.store.suppressions._suppressions
    await suppressions.update_one({"_id": made["id"]}, {"$set": {"address": ""}})
    sheet = await look(admin, page)
    assert "known by its link only" in sheet.words
    assert (await send(admin, f"{page}/suppressions/{made['id']}/delete")).status == 303
    assert "known by its link only" not in (await look(admin, page)).words


async def test_one_box_finds_what_was_sent_what_will_be_and_why_not(campaign: Campaign, job: Job) -> None:
    admin, app_id = campaign.desk.admin, campaign.app_id
    later = {"credential": campaign.credential_id, "to": "ana4@example.com", "body": {"text": "Hi"}}
    waits = await admin.post(f"/apps/{app_id}/messages", later | {"sendAt": "2036-12-24T09:00:00Z"})
    assert waits.status == 201, waits.body
    barred = {"channel": "mail", "address": "ana4@example.com", "cause": "complaint", "list": "news"}
    assert (await admin.post(f"/apps/{app_id}/suppressions", barred)).status == 201
    sheet = await look(admin, f"/find?q=ana4@EXAMPLE.com&app={app_id}")
    come = sheet.words.index("To come")
    sent = sheet.words.index("Sent", come)
    assert sheet.words.index("to be sent 2036") > come
    assert sheet.words.index("refused: the provider rejects") > sent > come
    assert "news: a complaint: no message passes" in sheet.words
    assert HOSTILE in sheet.words and sheet.tags.count("script") == 2
    assert sheet.does(f"/messages/{app_id}/recipients")
    nobody = await look(admin, f"/find?q=nobody@example.com&app={app_id}")
    assert any(told in nobody.words for told in ("Carillon knows nothing of nobody@example.com", "Nothing found."))
    assert "at most 1,024" in (await look(admin, f"/find?q={'x' * 1_025}")).wrong["q"]


async def test_ids_lead_to_their_pages(campaign: Campaign, job: Job) -> None:
    admin, app_id = campaign.desk.admin, campaign.app_id
    [first, *_] = (await admin.get(f"/apps/{app_id}/jobs/{job.id}/messages")).json
    every = {
        "key": "order.17",
        "every": 3_600,
        "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {}}},
    }
    assert (await admin.post("/schedules", every)).status == 201
    pages = {str(job.id): f"/jobs/{app_id}/{job.id}", first["id"]: f"/messages/{app_id}/messages/{first['id']}"}
    for wanted, page in (pages | {"order.17": "/schedules/order.17"}).items():
        sheet = await look(admin, f"/find?q={wanted}&app={app_id}")
        assert sheet.does(page), (wanted, sheet.words)
        assert (await look(admin, page)).status == 200


async def test_nobody_finds_recipients_of_apps_that_are_not_theirs(campaign: Campaign, job: Job) -> None:
    other = await campaign_at(campaign.desk, name="other")
    for person in (await person_of(campaign, "viewer"), await person_of(other, "operator")):
        for app in ("", f"&app={campaign.app_id}"):
            sheet = await look(person, f"/find?q=ana1@example.com{app}")
            assert (sheet.status, "Carillon knows nothing of ana1@example.com" in sheet.words) == (200, True), (
                sheet.words
            )
    found = await look(await person_of(campaign, "viewer"), f"/find?q={job.id}")
    assert found.does(f"/jobs/{campaign.app_id}/{job.id}"), found.words
    assert not (await look(await person_of(other, "operator"), f"/find?q={job.id}")).does(
        f"/jobs/{campaign.app_id}/{job.id}"
    )
