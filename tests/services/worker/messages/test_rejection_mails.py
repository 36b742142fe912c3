"""The mail about a credential whose login its provider refuses, sent by a real worker to a real mail server."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from services.parts.messages.common import MessagesPart
from shared.domain.errors import Unavailable
from shared.domain.jobs.mails import Mailing
from shared.domain.messages.credentials import CredentialStatus
from shared.flow.messages.rejections import RejectionMails
from tests.mail.sinks import SmtpSink, smtp
from tests.providers.fakes import FakeProcess, fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.post import SECRET, Post, post_office
from tests.waiting import until

pytestmark = pytest.mark.native


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProcess]:
    async with fake_process("http_fake") as running:
        await running.answer(always=Rule(status=202))
        yield running


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


async def test_a_server_that_is_away_is_tried_again_and_a_repaired_credential_is_not_told(
    post: Post, sink: SmtpSink
) -> None:
    away, repaired = [await post.credential() for _ in range(2)]
    flow = post.parts.of(MessagesPart).credentials
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
