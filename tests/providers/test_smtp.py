"""The kind `smtp`: what an account must be made of, whom it connects to, and how its connections are kept."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from email import message_from_string
from email.policy import default
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.providers import NotCalled, Provider, ProviderRules
from shared.providers import smtp_connections as connections
from shared.providers.ses import SesKind
from shared.providers.smtp import SmtpKind
from tests.drivers.http.receiver import scripted, self_signed
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Arrived, Rule
from tests.providers.smtp_fake import PASSWORD
from tests.waiting import until

FIELDS = {"host": "127.0.0.1", "tls": "never", "from": "news@example.com"}
NO_HTTP: Outgoing = None  # type: ignore[assignment]
RULES = ProviderRules(call_seconds=20.0, allowed_networks=("127.0.0.1/32",))
KIND = SmtpKind(RULES)
IMPATIENT = SmtpKind(msgspec.structs.replace(RULES, call_seconds=3.0))


OPENED: list[Provider] = []


@pytest.fixture(autouse=True)
async def _close_all() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


@pytest.fixture
async def server(fakes: Mapping[str, FakeProcess]) -> FakeProcess:
    fake = fakes["smtp_fake"]
    await fake.answer(always=Rule(250))
    return fake


def provider_at(port: int, *, kind: SmtpKind = KIND, **changes: Any) -> Provider:
    provider = kind.open(FIELDS | {"port": port} | changes, {}, NO_HTTP)
    OPENED.append(provider)
    return provider


async def send(provider: Provider, to: str = "ana@example.com", **content: Any) -> Answer:
    return await provider.send({"subject": "s", "text": "t", **content}, to, "m.1~2", lambda: True)


async def only(server: FakeProcess) -> Arrived:
    (arrived,) = (await server.tell()).arrived
    return arrived


async def test_a_mail_has_the_parts_that_it_is_given(server: FakeProcess) -> None:
    url = f"https://x.example/u/{'t' * 700}"
    answer = await send(
        provider_at(server.port), subject="a\r\nBcc: b@example.com", text="", html="<b>", unsubscribeUrl=url
    )
    assert answer == CallAccepted("4F2B1")
    mail = message_from_string((await only(server)).body, policy=default)
    assert mail["Subject"] == "a??Bcc: b@example.com" and mail["Bcc"] is None
    assert mail["List-Unsubscribe"] == f"<{url}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert mail["Message-ID"] == "<m.1@example.com>" and mail["X-Carillon-Message"] == "m.1~2"
    assert mail.get_content_type() == "text/html"


@pytest.mark.parametrize("to", ["søren@example.com", "nobody", "", "a b@example.com>\r\nRCPT TO:<c@example.com"])
async def test_what_no_server_can_be_told_is_not_connected_to(server: FakeProcess, to: str) -> None:
    answer = await send(provider_at(server.port), to)
    assert isinstance(answer, CallRefused) and answer.reason is Reason.MALFORMED
    assert (await server.tell()).counts.connections == 0


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (550, "5.1.1 no such user", CallRefused(Reason.HARD_BOUNCE, "SMTP 550: 5.1.1 no such user")),
        (550, "User unknown", CallRefused(Reason.HARD_BOUNCE, "SMTP 550: User unknown")),
        (550, "no", CallRefused(Reason.REFUSED, "SMTP 550: no")),
        (550, "5.1.8 Sender address rejected", CallRefused(Reason.REFUSED, "SMTP 550: 5.1.8 Sender address rejected")),
        (552, "5.2.2 Mailbox full", CallRefused(Reason.REFUSED, "SMTP 552: 5.2.2 Mailbox full")),
        (550, "5.7.1 relaying denied", CallRefused(Reason.REFUSED, "SMTP 550: 5.7.1 relaying denied")),
        (530, "5.7.0 log in", LoginRefused("SMTP 530: 5.7.0 log in", "user")),
        (451, "4.7.1 greylisted", NotNow("SMTP 451: 4.7.1 greylisted")),
        (421, "4.7.28 slow down", NotNow("SMTP 421: 4.7.28 slow down", too_fast=True)),
        (450, "4.7.1 too many messages from you", NotNow("SMTP 450: 4.7.1 too many messages from you", too_fast=True)),
        (450, "4.2.1 gets mail at a rate that", NotNow("SMTP 450: 4.2.1 gets mail at a rate that")),
        (452, "too many messages in the mailbox", NotNow("SMTP 452: too many messages in the mailbox")),
        (454, "Throttling failure", NotNow("SMTP 454: Throttling failure", too_fast=True)),
    ],
)
async def test_what_a_reply_means(server: FakeProcess, status: int, text: str, expected: Answer) -> None:
    await server.answer(always=Rule(status, text))
    assert await send(provider_at(server.port)) == expected


async def test_behind_a_refused_mail_the_connection_goes_on(server: FakeProcess) -> None:
    provider = provider_at(server.port)
    for status in (250, 550, 451, 250, 550, 250):
        await server.answer(always=Rule(status, "5.1.1 x"))
        await send(provider)
    told = await server.tell()
    assert len(told.arrived) == 3 and told.counts.connections == 1


async def test_behind_a_withheld_mail_the_connection_goes_on(server: FakeProcess) -> None:
    provider = provider_at(server.port)
    for _ in range(3):
        with pytest.raises(NotCalled):
            await provider.send({}, "ana@example.com", "m~1", lambda: False)
    await send(provider)
    assert (await server.tell()).counts.connections == 1


async def test_a_connection_bears_so_many_mails(server: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAILS", 3)
    provider = provider_at(server.port)
    for _ in range(7):
        assert isinstance(await send(provider), CallAccepted)
    assert (await server.tell()).counts.connections == 3


async def test_what_was_idle_is_asked_before_it_is_used(server: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FRESH_SECONDS", 0)
    provider = provider_at(server.port)
    for _ in range(3):
        assert isinstance(await send(provider), CallAccepted)
    assert (await server.tell()).counts.connections == 1


async def test_what_was_idle_for_long_is_not_used(server: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0)
    provider = provider_at(server.port)
    for _ in range(3):
        assert isinstance(await send(provider), CallAccepted)
    assert (await server.tell()).counts.connections == 3


async def test_closing_says_goodbye(server: FakeProcess) -> None:
    provider = provider_at(server.port)
    await send(provider)
    await provider.close()

    async def has_ended() -> bool:
        return (await server.tell()).counts.ended == 1

    await until(has_ended, "the end of the connection")


async def test_a_name_that_leads_inside_is_not_connected_to(
    server: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", server.port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    answer = await send(provider_at(server.port, host="mx.example"))
    assert answer == CallRefused(Reason.OTHER, "mx.example leads to a loopback address; allowed_networks can allow it")
    assert (await server.tell()).counts.connections == 0


async def test_what_is_wrong_with_a_connection_is_told(server: FakeProcess) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = await send(provider_at(unused.getsockname()[1]))
    assert answer == NotNow("127.0.0.1 cannot be connected to: Connection refused")


async def test_of_several_addresses_the_next_is_tried(server: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        there = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))
        return [(*there[:4], ("127.0.0.1", 1)), there]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert isinstance(await send(provider_at(server.port, host="mx.example")), CallAccepted)


async def test_where_tls_is_required_nothing_goes_without(server: FakeProcess) -> None:
    answer = await send(provider_at(server.port, tls="required"))
    assert isinstance(answer, NotNow)
    assert answer.detail == (
        "The server offers no STARTTLS. Set fields.tls to never (this machine only), implicit (port 465) or offered."
    )
    assert (await server.tell()).arrived == []


@pytest.mark.parametrize(
    ("changes", "replies", "expected", "field"),
    [
        ({"tls": "required"}, {}, NotNow, "tls"),
        ({"tls": "implicit"}, {}, NotNow, "tls"),
        ({"tls": "never", "user": "ana"}, {}, NotNow, "user"),
        ({"tls": "never"}, {b"MAIL": b"530 5.7.0 Must issue a STARTTLS command first\r\n"}, LoginRefused, "tls"),
        ({"tls": "never"}, {b"MAIL": b"530 5.7.0 Authentication required\r\n"}, LoginRefused, "user"),
        ({"tls": "never"}, {b"MAIL": b"550 5.7.1 Sender not allowed\r\n"}, CallRefused, "from"),
        ({"tls": "never"}, {b"RCPT": b"550 5.7.1 no\r\n"}, CallRefused, ""),
        (
            {"tls": "never", "user": "ana"},
            {b"EHLO": b"250-mx\r\n250 AUTH PLAIN\r\n", b"AUTH": b"535 no\r\n"},
            LoginRefused,
            "",
        ),
    ],
)
async def test_the_field_of_the_account_that_is_at_fault_is_named(
    changes: dict[str, Any], replies: dict[bytes, bytes], expected: type[Answer], field: str
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        while line := await reader.readline():
            writer.write(replies.get(line[:4].upper(), b"250 OK\r\n"))

    async with scripted(speak) as address:
        port = int(address.rpartition(":")[2])
        secret = {"password": "hush"} if "user" in changes else {}
        OPENED.append(provider := KIND.open(FIELDS | {"port": port} | changes, secret, NO_HTTP))
        answer = await send(provider)
    assert isinstance(answer, expected) and not isinstance(answer, CallAccepted | CallUnanswered), answer
    assert answer.field == field


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        await reader.read()

    async with scripted(greet, tls=self_signed(tmp_path)) as address:
        answer = await send(provider_at(int(address.rpartition(":")[2]), tls="implicit"))
    assert isinstance(answer, NotNow) and "self-signed certificate" in answer.detail


@pytest.mark.parametrize("greeting", [b"554 go away\r\n", b"421 later\r\n", b"", b"HTTP/1.1 400\r\n"])
async def test_a_server_that_does_not_greet_takes_nothing(greeting: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)

    async with scripted(refuse) as address:
        assert isinstance(await send(provider_at(int(address.rpartition(":")[2]))), NotNow)


@pytest.mark.slow
@pytest.mark.parametrize(("silent_at", "expected"), [(b"MAIL", NotNow), (b"RCPT", NotNow), (b"DATA", CallUnanswered)])
async def test_doubt_begins_with_the_data(silent_at: bytes, expected: type[Answer]) -> None:
    """A server that falls silent before the data cannot have the mail."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        while not (line := await reader.readline()).startswith(silent_at):
            writer.write(b"250 OK\r\n")
            assert line
        await reader.read()

    async with scripted(speak) as address:
        assert isinstance(await send(provider_at(int(address.rpartition(":")[2]), kind=IMPATIENT)), expected)


LONGER_THAN_A_REPLY = b"250 " + b"a" * 9_000 + b"\r\n"


@pytest.mark.parametrize("kind", [SmtpKind, SesKind])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"200 ok\r\n", CallAccepted),
        (b"251 queued elsewhere\r\n", CallAccepted),
        (b"queued\r\n", CallUnanswered),
        (LONGER_THAN_A_REPLY, CallUnanswered),
        (b"354 go on\r\n", CallUnanswered),
        (b"451 4.3.0 later\r\n", NotNow),
        (b"554 5.6.0 no\r\n", CallRefused),
    ],
)
async def test_a_mail_that_may_be_taken_is_not_said_to_be_refused(
    kind: type[SmtpKind], said: bytes, expected: type[Answer]
) -> None:
    """Not now would have it sent again."""
    async with scripted(partial(take_mails, said)) as address:
        answers = [await send(kind_at(kind, address)) for _ in range(2)]
    assert [type(answer) for answer in answers] == [expected] * 2


async def test_what_is_said_to_the_beginning_of_the_data_is_not_about_the_mail() -> None:
    """A reply too many to what came before: the server is not waiting for a mail, so it is handed none."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        while await reader.readline():
            writer.write(b"250 OK\r\n")

    async with scripted(speak) as address:
        assert isinstance(await send(provider_at(int(address.rpartition(":")[2]))), NotNow)


async def test_lines_that_begin_with_a_dot_arrive_as_they_are(server: FakeProcess) -> None:
    assert isinstance(await send(provider_at(server.port), text="a\n.\n..b\n.c"), CallAccepted)
    assert message_from_string((await only(server)).body, policy=default).get_content() == "a\r\n.\r\n..b\r\n.c\r\n"


def kind_at(kind: type[SmtpKind], address: str) -> Provider:
    made = kind(RULES)
    OPENED.append(provider := made.open(FIELDS | {"port": int(address.rpartition(":")[2])}, {}, NO_HTTP))
    return provider


async def take_mails(said: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A mail server that answers the end of the data with this."""
    writer.write(b"220 mx\r\n")
    in_data = False
    while line := await reader.readline():
        if in_data and line != b".\r\n":
            continue
        begins = line.upper().startswith(b"DATA")
        writer.write(said if in_data else b"354 go on\r\n" if begins else b"250 OK\r\n")
        in_data = begins and not in_data


BYE = b"421 4.7.0 too many mails on this connection, goodbye\r\n"


class LeavingServer:
    """A mail server that takes some mails on a connection, and answers a command of the next one with `said`. `b"."` is
    the end of the data."""

    def __init__(self, at: bytes, said: bytes = BYE, *, mails: int = 3, closes: bool = True) -> None:
        self._at, self._said, self._mails, self._closes = at, said, mails, closes
        self.taken: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        taken, in_data, mail = 0, False, b""
        writer.write(b"220 mx\r\n")
        while line := await reader.readline():
            mail += line
            if in_data and line != b".\r\n":
                continue
            if taken >= self._mails and line.upper().startswith(self._at):
                writer.write(self._said)
                if self._closes:
                    return
                continue
            if in_data:
                taken += 1
                self.taken.append(mail)
            in_data = line.upper().startswith(b"DATA")
            mail = b"" if in_data else mail
            writer.write(b"354 go on\r\n" if in_data else b"250 OK\r\n")


@pytest.mark.parametrize("kind", [SmtpKind, SesKind])
@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("said", [BYE, b""])
@pytest.mark.parametrize("at", [b"MAIL", b"RCPT", b"DATA", b"."])
async def test_a_goodbye_says_nothing_of_the_mail(kind: type[SmtpKind], at: bytes, said: bytes, closes: bool) -> None:
    if not said and (at == b"." or not closes):
        return  # in doubt, or silent
    leaving = LeavingServer(at, said, closes=closes)
    async with scripted(leaving.serve) as address:
        provider = kind_at(kind, address)
        answers = [await send(provider, text=str(number)) for number in range(10)]
    assert answers == [CallAccepted()] * 10
    assert len(set(leaving.taken)) == len(leaving.taken) == 10 and leaving.connections == 4


async def test_what_is_lost_behind_the_data_is_in_doubt_on_every_connection() -> None:
    leaving = LeavingServer(b".", b"")
    async with scripted(leaving.serve) as address:
        provider = kind_at(SmtpKind, address)
        answers = [type(await send(provider)) for _ in range(4)]
    assert answers == [CallAccepted] * 3 + [CallUnanswered]
    assert len(leaving.taken) == 3 and leaving.connections == 1


@pytest.mark.parametrize("at", [b"EHLO", b"MAIL", b"RCPT", b"DATA", b"."])
async def test_a_goodbye_to_the_first_mail_is_not_now(at: bytes) -> None:
    leaving = LeavingServer(at, mails=0)
    async with scripted(leaving.serve) as address:
        assert await send(kind_at(SmtpKind, address)) == NotNow(
            f"SMTP {BYE.decode().strip()}".replace("421", "421:"), True
        )
    assert leaving.connections == 1


async def test_behind_a_goodbye_the_sender_is_asked_again() -> None:
    wanted = iter([True, True, False, True])
    leaving = LeavingServer(b"MAIL", mails=1)
    async with scripted(leaving.serve) as address:
        provider = kind_at(SmtpKind, address)
        await provider.send({"subject": "s"}, "ana@example.com", "m.1~1", lambda: next(wanted))
        with pytest.raises(NotCalled):
            await provider.send({"subject": "s"}, "ana@example.com", "m.2~1", lambda: next(wanted))
        assert len(leaving.taken) == 1
        answer = await provider.send({"subject": "s"}, "ana@example.com", "m.2~1", lambda: next(wanted))
    assert answer == CallAccepted() and leaving.connections == 2


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({b"EHLO": b"250-mx\r\n250 AUTH PLAIN\r\n", b"AUTH": b"454 4.7.0 try later\r\n"}, NotNow),
        ({b"EHLO": b"250-mx\r\n250 AUTH PLAIN\r\n", b"AUTH": b"550 5.7.1 closed\r\n"}, LoginRefused),
        ({b"EHLO": b"421 later\r\n", b"HELO": b"421 later\r\n"}, NotNow),
        ({b"EHLO": b"554 no\r\n", b"HELO": b"554 no\r\n"}, NotNow),
    ],
)
async def test_a_reply_before_the_mail_is_not_about_it(script: dict[bytes, bytes], expected: type[Answer]) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        while line := await reader.readline():
            writer.write(script.get(line[:4].upper(), b"250 OK\r\n"))

    async with scripted(speak) as address:
        fields = FIELDS | {"port": int(address.rpartition(":")[2]), "user": "news"}
        OPENED.append(provider := KIND.open(fields, {"password": PASSWORD}, NO_HTTP))
        assert isinstance(await send(provider), expected)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"host": "10.0.0.1"}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "mx.example/x"}, "host"),
        ({"host": "user@mx.example"}, "host"),
        ({"host": "::1"}, "host"),
        ({"host": ""}, "host"),
        ({"port": 0}, "port"),
        ({"port": 70_000}, "port"),
        ({"port": "25"}, "port"),
        ({"tls": "perhaps"}, "tls"),
        ({"from": "nobody"}, "from"),
        ({"fromName": "a\nb"}, "fromName"),
        ({"replyTo": "x"}, "replyTo"),
        ({"user": "news"}, "secret.password"),
        ({"url": "x"}, "url"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check({"host": "mx.example", "from": "news@example.com"} | changes, {})
    assert caught.value.field == field


def test_an_account_that_can_be() -> None:
    KIND.check(FIELDS | {"port": 2525, "user": "news"}, {"password": PASSWORD})
    KIND.check({"host": "mx.example", "from": "news@example.com"}, {})
    KIND.check({"host": "2606:4700::1111", "from": "news@example.com"}, {})
