"""Mails about messages, sent by a real worker to a real mail server: a login that is refused, a job that is held."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from shared.core.errors import Unavailable
from shared.jobs.rules.events import EventState
from shared.jobs.rules.mails import Mailing
from shared.messages.halting import RejectionMails
from shared.messages.rules.credentials import CredentialStatus
from shared.messages.rules.jobs import Halt
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule
from tests.providers.sinks import SmtpSink, smtp
from tests.services.worker.messages.post import SECRET, Post, post_office
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[SmtpSink]:
    async with smtp() as opened:
        yield opened


@pytest_asyncio.fixture
async def post(
    mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess, sink: SmtpSink
) -> AsyncIterator[Post]:
    mail = {
        "CARILLON_MAIL_URL": sink.url,
        "CARILLON_MAIL_ADDRESSEES": "team@example.com",
        "CARILLON_MAIL_SENDER_ADDRESS": "carillon@example.com",
    }
    async with post_office(mongo_database, push_database, tmp_path, fake, **mail) as opened:
        yield opened


async def test_one_mail_tells_what_the_provider_says_and_what_to_do(post: Post, sink: SmtpSink) -> None:
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=401, text="key revoked"))
    job = await post.job(credential, 60)

    async def is_told() -> bool:
        return any("Credential" in mail.subject for mail in sink.mailed)

    await until(is_told)
    known = await post.store.credentials.get(credential.id)
    assert known is not None and known.status is CredentialStatus.REJECTED
    now = await post.store.now()
    assert await post.store.credentials.lease_mail(now=now + timedelta(days=1), until=now) is None, "none is due"
    [mail] = [mail for mail in sink.mailed if "Credential" in mail.subject]
    assert mail.envelope == ("team@example.com",)
    assert mail.subject == "Credential rejected by its provider"
    for words in (credential.name, post.app.name, known.why, "carillon credentials secret"):
        assert words in mail.text
    assert SECRET not in mail.text
    assert (await post.store.jobs.view(job.key)).open


async def test_a_mail_about_a_held_job_tells_of_its_bounces(post: Post, sink: SmtpSink) -> None:
    credential = await post.credential(rate=100)
    await post.fake.answer(Rule(status=202), always=Rule(status=400))
    job = await post.job(credential, 200, batch_size=20, halt=Halt(share=0.1, minimum=10))
    subject = "Message job entered circuit break state"

    async def is_told() -> bool:
        return any(mail.subject == subject for mail in sink.mailed)

    await until(is_told)
    [text] = [mail.text for mail in sink.mailed if mail.subject == subject]
    held = await post.store.jobs.view(job.key)
    [cause] = [event.message for event in held.events if event.state is EventState.FAIL]
    assert cause.endswith("answered messages bounced or were refused (haltOn)")
    assert text.startswith(f"A message job of {post.app.name} is held: {cause}.\n")
    for words in ("Messages: ", "of 200)", "refused: ", "Credential: ", credential.id):
        assert words in text
    for of_pushes in ("ack", "Batches", "held out", "push"):
        assert of_pushes not in text


async def test_a_server_that_is_away_is_tried_again_and_a_repaired_credential_is_not_told(
    post: Post, sink: SmtpSink
) -> None:
    away, repaired = [await post.credential() for _ in range(2)]
    flow = post.rooms.messages.credentials
    mails = RejectionMails(post.store, sink.mail, Mailing(domain="example.com", addressees=("team@example.com",)),
                           lease=timedelta(milliseconds=1))  # fmt: skip
    sink.fail(451)
    assert await flow.reject(away, "no")
    assert not await flow.reject(away, "no"), "it is known"
    with pytest.raises(Unavailable):
        await mails.run_once()
    sink.replies.clear()
    assert await flow.reject(repaired, "no")
    await flow.move(await flow.require(repaired.id), CredentialStatus.ACTIVE)

    async def is_done() -> bool:
        await mails.run_once()
        now = await post.store.now()
        return await post.store.credentials._credentials.find_one({"mail_due": {"$lte": now}}) is None

    await until(is_done)
    told = [mail.text for mail in sink.mailed if "Credential" in mail.subject]
    assert any(away.name in text for text in told)
    assert not any(repaired.name in text for text in told)
