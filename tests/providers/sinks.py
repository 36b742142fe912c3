"""Mail servers that keep what they get and answer as told: aiosmtpd, and one that speaks SendGrid's API."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, cast

import msgspec
from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from msgspec import Struct

from shared.drivers.http import Outgoing
from shared.jobs.rules.mails import Letter
from shared.providers.mail import Mail
from shared.runtime.server_settings import MailSettings, TlsSettings
from tests.drivers.http.receiver import INTERNET, Receiver, calling, receiving, serving_tls

SENDER = ("Carillon Ünlimited", "carillon@example.com")
USER, PASSWORD = "ana@example.com", "s3/cr@t:é"
LOGIN = "ana%40example.com:s3%2Fcr%40t%3A%C3%A9"
KEY = "SG.s3cret"
PATIENCE = 30.0
NO_HTTP: Outgoing = None  # type: ignore[assignment]


class Mailed(Struct):
    """A mail as it arrived."""

    id: str
    sender: tuple[str, str]
    envelope: tuple[str, ...]
    to: tuple[str, ...]
    subject: str
    text: str
    automatic: str


class Sink:
    """A server and clients of it. `later` and `never` are the codes by which such a server refuses."""

    later: tuple[int, ...]
    never: tuple[int, ...]

    def __init__(self, url: str = "", outgoing: Outgoing = NO_HTTP, trust: Path | None = None) -> None:
        self.url = url
        self.outgoing = outgoing
        self.trust = trust
        self.opened: list[Mail] = []

    @property
    def mail(self) -> Mail:
        return self.open()

    @property
    def mailed(self) -> list[Mailed]:
        raise NotImplementedError

    def fail(self, code: int) -> None:
        raise NotImplementedError

    def hang(self) -> None:
        raise NotImplementedError

    def open(self, url: str = "", *, timeout_seconds: float = PATIENCE) -> Mail:
        name, address = SENDER
        chosen = MailSettings(
            url=url or self.url, sender_name=name, sender_address=address, timeout_seconds=timeout_seconds
        )
        self.opened.append(Mail.open(chosen, TlsSettings(ca_file=str(self.trust or "")), self.outgoing))
        return self.opened[-1]

    async def close(self) -> None:
        for mail in self.opened:
            await mail.close()


class SmtpSink(Sink):
    """The handler of an SMTP server. `replies` answers a recipient, "DATA" the mail."""

    later: tuple[int, ...] = (421, 450, 451, 452)
    never: tuple[int, ...] = (550, 552, 554)

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.envelopes: list[Envelope] = []
        self.sessions: list[Session] = []
        self.replies: dict[str, str] = {}
        self.silent = False

    def fail(self, code: int) -> None:
        self.replies["DATA"] = f"{code} because of <ana@example.com>"

    def hang(self) -> None:
        self.silent = True

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds it by its name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, _: list[str]
    ) -> str:
        if reply := self.replies.get(address):
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd finds it by its name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self.silent:
            await asyncio.Event().wait()
        if reply := self.replies.get("DATA"):
            return reply
        self.envelopes.append(envelope)
        self.sessions.append(session)
        return "250 OK"

    @property
    def mailed(self) -> list[Mailed]:
        return list(map(_from_envelope, self.envelopes))


class SendGridSink(Sink):
    """The API, called by the client that calls the Internet."""

    later: tuple[int, ...] = (408, 429, 500, 502, 503)
    never: tuple[int, ...] = (302, 400, 404, 413)

    def __init__(self, receiver: Receiver, outgoing: Outgoing) -> None:
        place = receiver.url.removeprefix("http://")
        super().__init__(f"sendgrid://apikey:{KEY}@{place}?tls=never", outgoing)
        self.receiver = receiver
        self.over = asyncio.Event()
        self._refused = 0
        receiver.answer = lambda: web.Response(status=202)

    def fail(self, code: int) -> None:
        def refuse() -> web.Response:
            self._refused += 1
            return web.json_response({"errors": [{"message": "not <ana@example.com>"}]}, status=code)

        self.receiver.answer = refuse

    def hang(self) -> None:
        self.receiver.answer = lambda: _Silent(self.over)

    @property
    def mailed(self) -> list[Mailed]:
        calls = [each.body for each in self.receiver.received[self._refused :]]
        return [_from_call(body) for body in calls if b'"sandbox_mode":{"enable":true}' not in body]


class _Silent(web.StreamResponse):
    """An answer that does not come before the test is over."""

    def __init__(self, over: asyncio.Event) -> None:
        super().__init__()
        self._over = over

    async def prepare(self, request: web.BaseRequest) -> Any:
        await self._over.wait()
        raise ConnectionError


@asynccontextmanager
async def sendgrid() -> AsyncIterator[SendGridSink]:
    async with receiving() as receiver, calling() as outgoing:
        sink = SendGridSink(receiver, outgoing)
        try:
            yield sink
        finally:
            sink.over.set()


@asynccontextmanager
async def smtp(
    certificate: Path | None = None,
    *,
    scheme: str = "smtp",
    options: str = "",
    login: bool = False,
    starttls: bool = True,
    **parameters: Any,
) -> AsyncIterator[SmtpSink]:
    """An SMTP server. With a certificate it offers STARTTLS, or speaks TLS at once for `smtps`."""
    sink = SmtpSink(trust=certificate)
    tls = serving_tls(certificate) if certificate else None
    implicit = tls if scheme == "smtps" else None
    if login:
        parameters |= {"authenticator": _authenticate, "auth_required": True}
    if tls and not implicit and starttls:
        parameters |= {"tls_context": tls, "require_starttls": login}

    protocols: list[SMTP] = []

    def serve() -> SMTP:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # that a login needs no STARTTLS here
            protocols.append(SMTP(sink, hostname="sink.example.com", loop=asyncio.get_running_loop(), **parameters))
        return protocols[-1]

    server = await asyncio.get_running_loop().create_server(serve, INTERNET, 0, ssl=implicit)
    sink.url = f"{scheme}://{LOGIN + '@' if login else ''}{INTERNET}:{server.sockets[0].getsockname()[1]}{options}"
    try:
        yield sink
    finally:
        await sink.close()
        server.close()
        for protocol in protocols:
            transport = cast("asyncio.Transport | None", protocol.transport)
            # Python 3.11.2, as in Debian 12, cannot abort a connection of TLS that is closed.
            if transport is not None and not transport.is_closing():
                transport.abort()
        handlers = [each._handler_coroutine for each in protocols if each._handler_coroutine is not None]
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def _authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(success=(data.login.decode(), data.password.decode()) == (USER, PASSWORD), handled=False)


def _from_envelope(envelope: Envelope) -> Mailed:
    assert isinstance(envelope.original_content, bytes)
    message = cast("EmailMessage", message_from_bytes(envelope.original_content, policy=cast("Any", default)))
    assert not message.defects
    lines = envelope.original_content.split(b"\r\n")
    assert all(len(line) <= 76 for line in lines if b"=?" in line)  # RFC 2047, 2
    [sender] = message["From"].addresses
    return Mailed(
        id=str(message["Message-ID"]),
        sender=(sender.display_name, sender.addr_spec),
        envelope=tuple(envelope.rcpt_tos),
        to=tuple(f"{each.username}@{each.domain}" for each in message["To"].addresses),
        subject=str(message["Subject"]),
        text=message.get_content().replace("\r\n", "\n"),
        automatic=str(message["Auto-Submitted"]),
    )


def _from_call(body: bytes) -> Mailed:
    mail = msgspec.json.decode(body)
    [person] = mail["personalizations"]
    [content] = mail["content"]
    assert content["type"] == "text/plain"
    to = tuple(each["email"] for each in person["to"])
    return Mailed(
        id=mail["headers"]["Message-ID"],
        sender=(mail["from"]["name"], mail["from"]["email"]),
        envelope=to,
        to=to,
        subject=mail["subject"],
        text=content["value"],
        automatic=mail["headers"]["Auto-Submitted"],
    )


def letter(**changes: Any) -> Letter:
    chosen = {
        "id": "j1.completed.7@example.com",
        "to": ("ana@example.com", "bob@example.org"),
        "subject": "Push job completed",
        "text": "Sent: 100 % (7 of 7)\n\n.\nÅ line of its own\n",
    }
    return msgspec.convert({**chosen, **changes}, Letter)
