"""Mails by Carillon itself: one letter to several people, by SMTP and by SendGrid, as the URL in the settings says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from shared.core.errors import Invalid, Unauthorized, Unavailable
from shared.providers.sendgrid import SendGridProvider
from tests.drivers.http.receiver import PRIVATE, calling, make_certificate, scripted
from tests.providers.sinks import KEY, SENDER, Mailed, Sink, letter, sendgrid, smtp
from tests.providers.test_smtp import LeavingServer

ANA, BOB = "ana@example.com", "bob@example.org"
LONG_ID = f"{'j' * 36}.circuitbreak.{'9' * 19}@{'d' * 60}.example.com"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["plain SMTP", "STARTTLS", "STARTTLS and login", "SMTPS and login", "SendGrid"])
async def sink(request: pytest.FixtureRequest, certificate: Path) -> AsyncIterator[Sink]:
    match request.param:
        case "plain SMTP":
            opened = smtp()
        case "STARTTLS":
            opened = smtp(certificate)
        case "STARTTLS and login":
            opened = smtp(certificate, login=True)
        case "SMTPS and login":
            opened = smtp(certificate, scheme="smtps", login=True, auth_require_tls=False)
        case _:
            async with sendgrid() as posted:
                yield posted
            return
    async with opened as started:
        yield started


async def test_a_letter_arrives_whole(sink: Sink) -> None:
    sent = letter()
    await sink.mail.send(sent)
    assert sink.mailed == [
        Mailed(
            id=f"<{sent.id}>",
            sender=SENDER,
            envelope=sent.to,
            to=sent.to,
            subject=sent.subject,
            text=sent.text,
            automatic="auto-generated",
        )
    ]


async def test_a_letter_that_is_sent_again_has_the_same_id(sink: Sink) -> None:
    sent = letter(id=LONG_ID)
    mail = sink.mail
    await mail.send(sent)
    await mail.send(sent)
    assert [each.id for each in sink.mailed] == [f"<{LONG_ID}>"] * 2


async def test_long_lines_many_recipients_and_every_script(sink: Sink) -> None:
    to = tuple(f"somebody.number.{number}@example.com" for number in range(100))
    sent = letter(to=to, text=f"{'x' * 5_000}\n.\n..\nFrom here\n東京 {'é' * 2_000}\n", subject=f"東京 {'ø' * 200}")
    await sink.mail.send(sent)
    [arrived] = sink.mailed
    assert (arrived.to, arrived.envelope, arrived.subject, arrived.text) == (to, to, sent.subject, sent.text)


async def test_recipients_are_written_in_ascii_each_once(sink: Sink) -> None:
    await sink.mail.send(letter(to=("ana@bücher.example", "ana@xn--bcher-kva.example")))
    with capture_logs() as lines:
        await sink.mail.send(letter(to=("zoë.the.first@example.com", BOB)))
    assert [each.envelope for each in sink.mailed] == [("ana@xn--bcher-kva.example",), (BOB,)]
    assert [line["recipients"] for line in lines if line["log_level"] == "warning"] == [["z…@example.com"]]
    with pytest.raises(Invalid):
        await sink.mail.send(letter(to=("zoë@example.com", f"ana@{'x' * 64}.example")))
    assert len(sink.mailed) == 2


async def test_a_refusal_says_whether_the_mail_may_be_sent_later(sink: Sink) -> None:
    mail = sink.mail
    for codes, error in ((sink.later, Unavailable), (sink.never, Invalid)):
        for code in codes:
            sink.fail(code)
            with pytest.raises(error, match=str(code)) as caught:
                await mail.send(letter())
            assert "ana@" not in str(caught.value)
    assert sink.mailed == []


async def test_a_silent_server_is_waited_for_until_the_deadline(sink: Sink) -> None:
    sink.hang()
    began = monotonic()
    with pytest.raises(Unavailable, match=r"did not answer|gave no answer"):
        await sink.open(timeout_seconds=0.3).send(letter())
    assert monotonic() - began > 0.25


async def test_the_login_is_verified_without_a_mail(sink: Sink) -> None:
    await sink.mail.verify()
    assert sink.mailed == []


@pytest.mark.parametrize("reply", ["550 no <ana@example.com> here", "451 not ana@example.com now"])
async def test_a_mail_that_some_recipients_get_is_sent_and_the_others_are_logged(reply: str) -> None:
    async with smtp() as sink:
        sink.replies[ANA] = reply
        with capture_logs() as lines:
            await sink.mail.send(letter())
        assert [(each.envelope, each.to) for each in sink.mailed] == [((BOB,), (ANA, BOB))]
    [warning] = [line for line in lines if line["log_level"] == "warning"]
    assert warning["recipients"] == {"a…@example.com": int(reply[:3])}
    assert ANA not in repr(warning)


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ("550 no", "551 no", Invalid),
        ("450 wait", "451 wait", Unavailable),
        ("550 no", "450 wait", Unavailable),
        ("450 wait", "550 no", Unavailable),
    ],
)
async def test_a_mail_that_all_recipients_refuse_is_refused_if_none_may_take_it_later(
    first: str, second: str, error: type[Exception]
) -> None:
    async with smtp() as sink:
        sink.replies |= {ANA: first, BOB: second}
        with pytest.raises(error, match=r"no|wait"):
            await sink.mail.send(letter())
        assert sink.mailed == []


@pytest.mark.parametrize("at", [b"RCPT TO:<BOB", b"DATA", b"."])
async def test_a_connection_that_the_server_ends_costs_no_mail_and_repeats_none(at: bytes) -> None:
    leaving = LeavingServer(at, mails=2)
    sink = Sink()
    async with scripted(leaving.serve) as address:
        mail = sink.open(f"smtp://{address}")
        for number in range(5):
            await mail.send(letter(id=f"{number}@example.com"))
        await sink.close()
    assert len(set(leaving.taken)) == len(leaving.taken) == 5 and leaving.connections == 3


async def test_a_mail_that_may_be_there_is_not_sent_again_by_itself() -> None:
    leaving = LeavingServer(b".", b"", mails=1)
    sink = Sink()
    async with scripted(leaving.serve) as address:
        mail = sink.open(f"smtp://{address}")
        await mail.send(letter())
        with pytest.raises(Unavailable, match="may have the mail"):
            await mail.send(letter())
        await sink.close()
    assert (len(leaving.taken), leaving.connections) == (1, 1)


async def test_a_login_goes_over_tls_unless_the_url_allows_otherwise(certificate: Path) -> None:
    async with smtp(certificate, login=True) as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].ssl is not None
    async with smtp(login=True, options="?tls=never", auth_require_tls=False) as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].authenticated


async def test_a_password_is_not_told_to_a_server_without_tls() -> None:
    heard = bytearray()

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            heard.extend(line)
            writer.write(b"221 bye\r\n" if line.startswith(b"QUIT") else b"250-hello\r\n250 AUTH PLAIN LOGIN\r\n")

    async with scripted(greets) as address:
        with pytest.raises(Unavailable, match=r"no STARTTLS.; see smtps:// or \?tls in mail\.url"):
            await Sink().open(f"smtp://ana:s3cret@{address}").send(letter())
    assert heard.startswith(b"EHLO")
    assert b"AUTH" not in heard


async def test_tls_that_is_offered_is_used_and_need_not_be(certificate: Path) -> None:
    async with smtp(certificate) as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].ssl is not None
    async with smtp(certificate, options="?tls=never") as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].ssl is None
    async with smtp(certificate, starttls=False, options="?tls=required") as sink:
        with pytest.raises(Unavailable, match="STARTTLS"):
            await sink.mail.send(letter())


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_certificate_of_an_unknown_authority_is_refused(certificate: Path, scheme: str) -> None:
    async with smtp(certificate, scheme=scheme) as sink:
        sink.trust = None
        with pytest.raises(Unavailable, match="cannot be trusted"):
            await sink.mail.send(letter())
        assert sink.mailed == []


async def test_a_refused_login_is_told_as_such_and_not_shown(certificate: Path) -> None:
    async with smtp(certificate, login=True) as sink:
        wrong = sink.url.replace("s3%2Fcr%40t", "wr0ng")
        for ask in (sink.open(wrong).verify(), sink.open(wrong).send(letter())):
            with pytest.raises(Unauthorized, match="535") as caught:
                await ask
            assert "wr0ng" not in str(caught.value)
        with pytest.raises(Unauthorized, match="530"):
            await sink.open(f"smtp://{sink.url.rpartition('@')[2]}").send(letter())
    for status in (401, 403):
        async with sendgrid() as posted:
            posted.fail(status)
            with pytest.raises(Unauthorized, match=str(status)) as caught:
                await posted.mail.verify()
            assert KEY not in str(caught.value)


async def test_sendgrid_is_called_only_where_calls_may_go() -> None:
    async with calling() as outgoing:
        with pytest.raises(Invalid, match="is a loopback address"):
            await Sink(f"sendgrid://apikey:{KEY}@{PRIVATE}", outgoing).mail.send(letter())


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("api.sendgrid.com", "https://api.sendgrid.com/v3/mail/send"),
        ("api.eu.sendgrid.com:8443/", "https://api.eu.sendgrid.com:8443/v3/mail/send"),
        ("[::1]:80?tls=never", "http://[::1]:80/v3/mail/send"),
        ("api.sendgrid.com?tls=required", "https://api.sendgrid.com/v3/mail/send"),
    ],
)
def test_the_url_says_where_the_api_is(place: str, called: str) -> None:
    provider = Sink(f"sendgrid://apikey:{KEY}@{place}").mail._provider
    assert isinstance(provider, SendGridProvider) and provider._url == called


@pytest.mark.parametrize(
    "url",
    [
        "sendgrid://apikey:s3cret%0A@api.sendgrid.com",
        "smtp://ana:s3cret@mail.example.com:99999",
        "smtps://ana:s3cret@mail.example.com?tls=never",
    ],
)
def test_a_url_that_no_server_can_have_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        Sink().open(url)
    assert caught.value.field == "mail.url"
    assert "s3cret" not in str(caught.value)
