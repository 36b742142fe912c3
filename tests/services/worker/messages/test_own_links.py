"""Each mail of a job has its recipient's own link, and whoever uses it gets no other."""

from collections.abc import AsyncIterator
from email import message_from_string
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import pytest
import pytest_asyncio

from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template
from shared.messages.barring import UnsubscribeFlow
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.suppressions import SuppressionCause, suppress_address
from tests.providers.fakes import FakeProcess, fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post, post_office

pytestmark = [pytest.mark.sending, pytest.mark.native]

URL = "https://push.example.com"
PEOPLE = ["ana@example.com", "bob@example.com"]
BODY = {
    "subject": "News",
    "text": "No more: {{unsubscribe_url}}",
    "html": '<p>{{name}}</p><a href="{{unsubscribe_url}}">No more</a>',
}


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProcess]:
    async with fake_process("smtp_fake") as running:
        await running.answer(always=Rule(250))
        yield running


async def write_letter(post: Post) -> Credential:
    """An account at the mail server, and what the app's mails say."""
    await post.store.templates.remove_of(post.app.id)
    await post.store.templates.add(
        Template(id="letter", app_id=post.app.id, name="hello", locale="en", body=BODY, created_at=1)
    )
    fields = {"host": "127.0.0.1", "port": post.fake.port, "tls": "never", "from": "news@example.com"}
    return await post.credential(kind="smtp", fields=fields)


async def send(post: Post, credential: Credential, *, list_name: str = "", transactional: bool = False) -> Job:
    await post.fake.forget()
    job = await post.job(credential, PEOPLE, channel=Channel.MAIL, list=list_name, transactional=transactional)
    return await post.closed(job)


async def mails(post: Post) -> dict[str, EmailMessage]:
    """What has arrived, by recipient."""
    parsed = [message_from_string(one.body, policy=default) for one in (await post.fake.tell()).arrived]
    return {str(mail["To"]): mail for mail in parsed}


def link_of(mail: EmailMessage) -> str:
    return str(mail["List-Unsubscribe"]).strip("<>")


def texts_of(mail: EmailMessage) -> list[str]:
    return [str(part.get_content()).strip() for part in mail.walk() if not part.is_multipart()]


@pytest_asyncio.fixture
async def post(mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess) -> AsyncIterator[Post]:
    async with post_office(mongo_database, push_database, tmp_path, fake, CARILLON_API_PUBLIC_URL=URL) as opened:
        yield opened


@pytest.mark.proof
async def test_who_uses_the_link_gets_no_other_of_its_list(post: Post) -> None:
    credential = await write_letter(post)
    await send(post, credential, list_name="news")
    arrived = await mails(post)
    links = {to: link_of(mail) for to, mail in arrived.items()}
    assert {*links} == {*PEOPLE}
    assert len({*links.values()}) == 2
    for number, to in enumerate(PEOPLE):
        assert links[to].startswith(f"{URL}/u/")
        assert arrived[to]["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        assert texts_of(arrived[to]) == [
            f"No more: {links[to]}",
            f'<p>n{number}</p><a href="{links[to]}">No more</a>',
        ]
    flow = UnsubscribeFlow(post.store, post.rooms.messages.links, post.servers.clock)
    await flow.unsubscribe(links["ana@example.com"].rpartition("/")[2])
    closed = await send(post, credential, list_name="news")
    assert closed.reasons == {"unsubscribed": 1}
    assert {*await mails(post)} == {"bob@example.com"}
    await send(post, credential, list_name="offers")
    assert {*await mails(post)} == {*PEOPLE}


async def test_what_people_need_passes_their_wish_and_no_bar(post: Post) -> None:
    credential = await write_letter(post)
    at = post.servers.clock.now()
    gone = [
        suppress_address(post.app.id, Channel.MAIL, to, cause=cause, at=at)
        for to, cause in zip(PEOPLE, (SuppressionCause.UNSUBSCRIBE, SuppressionCause.COMPLAINT), strict=True)
    ]
    await post.store.suppressions.add(gone)
    closed = await send(post, credential, transactional=True)
    assert closed.reasons == {"suppressed": 1}
    [mail] = (await mails(post)).values()
    assert mail["To"] == "ana@example.com"
    assert mail["List-Unsubscribe"] is None
    assert texts_of(mail)[0].startswith(f"No more: {URL}/u/")


@pytest.mark.parametrize("settings", [{}, {"CARILLON_API_PUBLIC_URL": URL}])
async def test_without_a_public_url_there_is_no_link(
    mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess, settings: dict[str, str]
) -> None:
    async with post_office(mongo_database, push_database, tmp_path, fake, **settings) as post:
        await send(post, await write_letter(post))
        linked = {mail["List-Unsubscribe"] is not None for mail in (await mails(post)).values()}
        assert linked == {bool(settings)}
