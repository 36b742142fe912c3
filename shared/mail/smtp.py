"""Mail by SMTP: one connection per letter, because letters are rare.

With a password, TLS is required (STARTTLS on `smtp://`, from the first byte on `smtps://`); otherwise it is used if the
server offers it. In a URL of `smtp://`, `?tls=required`, `offered` or `never` decides. Certificates are verified
against those of the operating system or SSL_CERT_FILE.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Self

import aiosmtplib
import structlog

from shared.domain.errors import Invalid, Refused, Unauthorized, Unavailable
from shared.domain.mime import LOGIN_REPLIES, build_mail, encode_words, mailbox
from shared.mail import Letter, MailSender, mask_addresses, tellable
from shared.mail.urls import Server, Tls, read_url

log = structlog.get_logger(__name__)

QUIT_SECONDS = 1.0
_START_TLS = {Tls.REQUIRED: True, Tls.OFFERED: None, Tls.NEVER: False}
_FAILURES = (aiosmtplib.SMTPException, OSError, TimeoutError)


class SmtpMail:
    """A server that speaks SMTP."""

    delivers = True

    def __init__(
        self, server: Server, sender: MailSender, timeout_seconds: float, trust: ssl.SSLContext | None
    ) -> None:
        self._server = server
        self._sender = sender
        self._timeout_seconds = timeout_seconds
        self._trust = trust

    @classmethod
    def open(cls, url: str, *, sender: MailSender, timeout_seconds: float, trust: ssl.SSLContext | None = None) -> Self:
        """Prepare to send, without connecting. `trust` replaces the system's certificates.

        Raises:
            Invalid: the URL names no SMTP server.
        """
        server = read_url(url, "smtp", "smtps")
        if bool(server.user) != bool(server.password):
            raise Invalid("a login has a user and a password", field="mail.url")
        if server.scheme == "smtps" and server.tls not in {None, Tls.REQUIRED}:
            raise Invalid("smtps:// is TLS: smtp:// can do without", field="mail.url")
        return cls(server, sender, timeout_seconds, trust)

    async def send(self, letter: Letter) -> None:
        recipients = tellable(letter)
        body = _message(letter, self._sender, recipients)
        with self._translate_errors():
            async with self._connect() as client:
                refused, _ = await client.sendmail(self._sender.address, recipients, body)
        if refused:
            left_out = {mask_addresses(address): reply.code for address, reply in refused.items()}
            log.warning("recipients refused by the mail server", letter_id=letter.id, recipients=left_out)

    async def verify(self) -> None:
        with self._translate_errors():
            async with self._connect() as client:
                await client.noop()

    async def close(self) -> None: ...

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """A connection for one letter. An error at its end is ignored."""
        client = self._client()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await client.connect()
                yield client
            with suppress(*_FAILURES):
                await client.quit(timeout=min(QUIT_SECONDS, self._timeout_seconds))
        finally:
            client.close()

    def _client(self) -> aiosmtplib.SMTP:
        server = self._server
        implicit = server.scheme == "smtps"
        tls = server.tls or (Tls.REQUIRED if server.password else Tls.OFFERED)
        return aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            username=server.user or None,
            password=server.password or None,
            local_hostname=_own_name(),
            timeout=self._timeout_seconds,
            use_tls=implicit,
            start_tls=False if implicit else _START_TLS[tls],
            tls_context=self._trust,
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn the driver's errors into Carillon's. The driver's show addresses, so they are cut off."""
        try:
            yield
        except _FAILURES as error:
            raise _failure(error, f"the mail server {self._server.host}") from None


def _failure(error: Exception, server: str) -> Refused | Unavailable:
    match error:
        case aiosmtplib.SMTPRecipientsRefused():
            replies = error.recipients
            hopeful = next((reply for reply in replies if not _final(reply.code)), replies[0])
            return _refusal(hopeful, f"{server} takes none of {len(replies)} recipients")
        case aiosmtplib.SMTPResponseException():
            return _refusal(error, f"{server} refuses")
        case TimeoutError():
            return Unavailable(f"{server} did not answer in time")
        case _:
            return Unavailable(f"{server}: {mask_addresses(str(error)) or type(error).__name__}")


def _refusal(reply: aiosmtplib.SMTPResponseException, what: str) -> Refused | Unavailable:
    reason = f"{what}: {reply.code} {mask_addresses(reply.message)}"
    if not _final(reply.code):
        return Unavailable(reason)
    is_stranger = reply.code in LOGIN_REPLIES or isinstance(reply, aiosmtplib.SMTPAuthenticationError)
    return Unauthorized(reason) if is_stranger else Invalid(reason)


def _final(code: int) -> bool:
    return 500 <= code <= 599


def _message(letter: Letter, sender: MailSender, recipients: tuple[str, ...]) -> bytes:
    headers = {
        "From": mailbox("From", sender.address, sender.name),
        "To": ",\r\n ".join(mailbox("To", recipient) for recipient in recipients),
        "Subject": encode_words(letter.subject, "Subject"),
        "Date": format_datetime(datetime.now(UTC)),
        "Message-ID": f"<{letter.id}>",
        "Auto-Submitted": "auto-generated",
    }
    return build_mail(headers, text=letter.text, html="")


def _own_name() -> str:
    """The name in the greeting: a full host name or, as RFC 5321 says for hosts without one, an address."""
    name = socket.gethostname()
    return name if "." in name else "[127.0.0.1]"
