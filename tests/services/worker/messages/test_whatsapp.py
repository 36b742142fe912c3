"""WhatsApp by Twilio: one person in two spellings is written to once, suppressed and redacted."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest
import pytest_asyncio

from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from shared.messages.rules.ledger import MessageState
from tests.providers.accounts import TWILIO_SID
from tests.providers.fakes import FakeProcess, fake_process
from tests.providers.rules import Rule
from tests.services.api.client import ADMIN, Client
from tests.services.worker.messages.post import BUCKET, Post, post_office

pytestmark = [pytest.mark.sending, pytest.mark.native]

SID = "HX" + "2e" * 16
FILE = """Recipient,Name
whatsapp:+6591234567,Ana
+65 9123 4567,Ana again
whatsapp:+6598765432,Bob
+6581112222,
whatsapp:+6583334444,Eve
"""


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProcess]:
    async with fake_process("twilio_fake") as running:
        await running.answer(always=Rule(201, json.dumps({"sid": "SM1", "status": "queued"})))
        yield running


@pytest_asyncio.fixture
async def post(mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess) -> AsyncIterator[Post]:
    admin = {"CARILLON_API_FIRST_ADMIN": ADMIN, "CARILLON_API_TRUSTED_PROXIES": "127.0.0.0/8"}
    async with post_office(mongo_database, push_database, tmp_path, fake, **admin) as opened:
        yield opened


async def test_two_spellings_are_one_person(post: Post) -> None:
    api = Client(build_api(Rooms(post.servers)), {"x-forwarded-email": ADMIN})
    app = f"/apps/{post.app.id}"
    credential = await post.credential(
        kind="twilio",
        fields={"accountSid": TWILIO_SID, "from": "whatsapp:+14155238886", "apiUrl": post.fake.url},
        secret={"authToken": "t0ken"},
        test_recipient="whatsapp:+6591234567",
    )
    body = {"contentSid": SID, "contentVariables": {"1": "{{name}}"}}
    assert (await api.post(f"{app}/templates", {"name": "offer", "locale": "en", "body": body})).status == 201
    barred = {"channel": "sms", "address": "whatsapp:+6583334444"}
    assert (await api.post(f"{app}/suppressions", barred)).status == 201
    (post.folder / BUCKET).mkdir()
    (post.folder / BUCKET / "people.csv").write_text(FILE)
    asked = {"credential": credential.name, "csvPath": f"{BUCKET}/people.csv"}
    made = await api.post(f"{app}/jobs?template=offer", asked)
    assert made.status == 201, made.body
    job = await post.store.jobs.view(made.json["id"])
    closed = await post.closed(job)

    forms = [dict(parse_qsl(call.body)) for call in (await post.fake.tell()).arrived]
    assert {form["To"]: json.loads(form["ContentVariables"]) for form in forms} == {
        "whatsapp:+6591234567": {"1": "Ana"}, "whatsapp:+6598765432": {"1": "Bob"},
    }  # fmt: skip
    assert len(forms) == 2
    assert all((form["From"], form["ContentSid"]) == ("whatsapp:+14155238886", SID) for form in forms)
    assert all("Body" not in form for form in forms)
    assert {entry.to: entry.state for entry in await post.entries(closed)} == {
        "+6591234567": MessageState.SENT, "+6598765432": MessageState.SENT,
        "+6581112222": MessageState.INVALID, "+6583334444": MessageState.INVALID,
    }  # fmt: skip
    assert closed.reasons == {"unrendered": 1, "suppressed": 1}

    written = quote("whatsapp:+6591234567", safe="")
    [found] = (await api.get(f"{app}/messages?recipient={written}")).json
    assert found["recipient"] == "+6591234567"
    assert (await api.get(f"{app}/messages?recipient=whatsapp:+6591234567")).status == 422, "+ is a blank there"
    redacted = await api.delete(f"{app}/recipients/{written}")
    assert (redacted.status, redacted.json["redacted"]) == (200, 1)
    assert not any("91234567" in entry.to for entry in await post.entries(closed))
