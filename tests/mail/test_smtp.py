"""SMTP alone: recipients one by one, TLS, logins, and servers that misbehave on the wire."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from socket import socket
from time import monotonic

import pytest
from structlog.testing import capture_logs

from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.mail.smtp import SmtpMail
from tests.mail.sinks import PATIENCE, SENDER, letter, smtp
from tests.outgoing.receiver import INTERNET, Script, scripted

ANA, BOB = "ana@example.com", "bob@example.org"


def opened(url: str, *, timeout_seconds: float = PATIENCE, trust: ssl.SSLContext | None = None) -> SmtpMail:
    return SmtpMail.open(url, sender=SENDER, timeout_seconds=timeout_seconds, trust=trust)


@pytest.mark.parametrize("reply", ["550 no <ana@example.com> here", "451 not ana@example.com now"])
async def test_some_recipients_refused_is_sent_and_told_without_an_address(reply: str) -> None:
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
async def test_all_recipients_refused_is_final_when_each_is(first: str, second: str, error: type[Exception]) -> None:
    async with smtp() as sink:
        sink.replies |= {ANA: first, BOB: second}
        with pytest.raises(error, match="none of 2 recipients"):
            await sink.mail.send(letter())
        assert sink.mailed == []


async def test_a_login_goes_over_tls_only(certificate: Path) -> None:
    async with smtp(certificate, login=True) as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].ssl is not None


async def test_a_password_is_not_told_to_a_server_without_tls() -> None:
    heard = bytearray()

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            heard.extend(line)
            writer.write(b"221 bye\r\n" if line.startswith(b"QUIT") else b"250-hello\r\n250 AUTH PLAIN LOGIN\r\n")

    async with scripted(greets) as address:
        with pytest.raises(Unavailable, match="STARTTLS"):
            await opened(f"smtp://ana:s3cret@{address}").send(letter())
    assert heard.startswith(b"EHLO")
    assert b"AUTH" not in heard


async def test_it_is_told_where_the_url_allows_it() -> None:
    async with smtp(login=True, options="?tls=never", auth_require_tls=False) as sink:
        await sink.mail.send(letter())
        assert sink.sessions[0].authenticated


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
async def test_a_certificate_that_nobody_vouches_for(certificate: Path, scheme: str) -> None:
    async with smtp(certificate, scheme=scheme) as sink:
        sink.trust = None
        with pytest.raises(Unavailable, match="self-signed certificate"):
            await sink.mail.send(letter())
        assert sink.mailed == []


@pytest.mark.parametrize("user", ["ana%40example.com", "bob"])
async def test_a_wrong_password_is_told_as_such_and_not_shown(certificate: Path, user: str) -> None:
    async with smtp(certificate, login=True) as sink:
        wrong = sink.url.replace("s3%2Fcr%40t", "wr0ng").replace("ana%40example.com", user)
        with pytest.raises(Unauthorized, match="535") as caught:
            await opened(wrong, trust=sink.trust).send(letter())
    assert "wr0ng" not in str(caught.value)


async def test_a_server_that_wants_a_login(certificate: Path) -> None:
    async with smtp(certificate, login=True) as sink:
        anonymous = f"smtp://{sink.url.rpartition('@')[2]}"
        with pytest.raises(Unauthorized, match="530"):
            await opened(anonymous, trust=sink.trust).send(letter())


async def test_a_closed_port() -> None:
    with socket() as unused:
        unused.bind((INTERNET, 0))
        with pytest.raises(Unavailable, match="Error connecting to"):
            await opened("smtp://{}:{}".format(*unused.getsockname())).send(letter())


def says(*lines: bytes, then: Callable[[asyncio.StreamWriter], None] = asyncio.StreamWriter.close) -> Script:
    """A server that gives these answers, one a line, and then does that."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in lines:
            writer.write(line + b"\r\n")
            await reader.readline()
        then(writer)
        await reader.read()

    return script


def nothing(writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (says(), Unavailable),
        (says(b"220 hello"), Unavailable),
        (says(b"220 hello", b"250 hello", b"250 from"), Unavailable),
        (says(b"HTTP/1.1 400 Bad Request"), Unavailable),
        (says(b"421 too many connections"), Unavailable),
        (says(b"554 no mail here"), Invalid),
        (says(b"220 hello", b"250 hello", b"451 not now"), Unavailable),
        (says(b"220 hello", b"250 hello", b"553 not from you"), Invalid),
        (says(b"220 hello", b"250 hello", b"250 from", b"250 to", b"250 to", b"552 no data"), Invalid),
    ],
)
async def test_a_server_that_breaks_off_or_refuses(script: Script, error: type[Exception]) -> None:
    async with scripted(script) as address:
        with pytest.raises(error, match=r"the mail server 127\.0\.0\.1"):
            await opened(f"smtp://{address}").send(letter())


@pytest.mark.parametrize(("reply", "error"), [(b"454 later", Unavailable), (b"550 closed", Unauthorized)])
async def test_a_reply_to_the_login_is_not_about_the_mail(reply: bytes, error: type[Exception]) -> None:
    async with scripted(says(b"220 hello", b"250-hello\r\n250 AUTH PLAIN", reply)) as address:
        with pytest.raises(error):
            await opened(f"smtp://ana:p4ss@{address}?tls=never").send(letter())


async def test_a_login_for_a_server_that_knows_none() -> None:
    async with scripted(says(b"220 hello", b"250 hello")) as address:
        with pytest.raises(Unavailable, match="AUTH") as caught:
            await opened(f"smtp://ana:s3cret@{address}?tls=never").send(letter())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("lines", [[], [b"220 hello"], [b"220 hello", b"250 hello", b"250 from"]])
async def test_a_server_that_hangs(lines: list[bytes]) -> None:
    async with scripted(says(*lines, then=nothing)) as address:
        began = monotonic()
        with pytest.raises(Unavailable, match="did not answer"):
            await opened(f"smtp://{address}", timeout_seconds=0.3).send(letter())
        assert monotonic() - began < 30


async def test_one_deadline_binds_all_answers_together() -> None:
    async def trickles(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while await reader.readline():
            await asyncio.sleep(0.2)
            writer.write(b"250 OK\r\n")

    async with scripted(trickles) as address:
        began = monotonic()
        with pytest.raises(Unavailable, match="did not answer"):
            await opened(f"smtp://{address}", timeout_seconds=0.5).send(letter())
        assert monotonic() - began < 30


async def test_what_was_taken_is_sent_though_the_farewell_hangs() -> None:
    answers = [b"220 hello", b"250 hello", b"250 from", b"250 to", b"250 to", b"354 go on"]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in answers:
            writer.write(line + b"\r\n")
            if line != answers[-1]:
                await reader.readline()
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(b"250 taken\r\n")
        await reader.read()

    async with scripted(script) as address, asyncio.timeout(PATIENCE):
        await opened(f"smtp://{address}").send(letter())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "smtp://",
        "http://mail.example.com",
        "smtp://ana@mail.example.com",
        "smtp://:s3cret@mail.example.com",
        "smtp://ana:s3cret@mail.example.com:port",
        "smtp://ana:s3cret@mail.example.com/inbox",
        "smtp://ana:s3cret@mail.example.com?tls=perhaps",
        "smtp://ana:s3cret@mail.example.com?verify=no",
        "smtps://ana:s3cret@mail.example.com?tls=never",
    ],
)
def test_a_url_that_names_no_server(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        opened(url)
    assert caught.value.field == "mail.url"
    assert "s3cret" not in str(caught.value)


def test_no_repr_shows_the_password() -> None:
    mail = opened("smtp://ana:s3cret@mail.example.com")
    assert "s3cret" not in repr(mail) + repr(mail._server)
