"""Mail by SMTP, over connections that are kept: logged in once, and used for one mail after the other.

    take or make a connection ──> before_bytes ──> MAIL ──> RCPT ──> DATA, the mail, its reply
              ↑                                     │
              └── once, if the server ends a connection that has had mails before

A server has a mail only after it has answered the end of its data. So a failure before the data is certainly "not now";
after the data has begun, the outcome is open. There, any 2xx means that the server has the mail, only 4xx and 5xx that
it has not, and any other reply says nothing. A refusal (5xx to RCPT or to the mail) is a hard bounce only if the server
says that the address is dead (`is_dead_address`), because servers also refuse the sender there. A refusal before MAIL
is about the account: "login refused" at AUTH, else "not now". A server asks for fewer mails only in words.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import IntEnum, StrEnum
from typing import Any, ClassVar

import aiosmtplib
import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from shared.core.errors import Invalid
from shared.core.mail import LOGIN_REPLIES, build_mail, encode_words, mailbox
from shared.drivers.http import Blocked, Outgoing
from shared.drivers.http.checks import PROVIDER_NETWORKS, BadUrl, GuardedUrl, authority_of
from shared.drivers.http.guard import Guard
from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    Channel,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.providers import BeforeBytes, Content, NotCalled, Provider, ProviderKind, ProviderRules, message_of
from shared.providers.base import Concealed, read_fields, tell
from shared.providers.calls import describe_fault
from shared.providers.mailing import (
    OUR_HEADER,
    MailContent,
    check_sender,
    check_template,
    in_ascii,
    is_dead_address,
    read_mail,
)
from shared.providers.smtp_connections import Goodbye, SmtpConnection, SmtpConnections, SmtpTarget

log = structlog.get_logger(__name__)

_WANTS_TLS = re.compile(r"tls|encrypt|secure (connection|channel)", re.IGNORECASE)
_TOO_FAST = re.compile(r"\brate\b|throttl|too (many|fast)|limit exceeded|4\.7\.28|4\.4\.5", re.IGNORECASE)
# A reply to RCPT is about the recipient, unless the server closes the connection or means the account.
_OF_US = re.compile(r"^4\.[347]\.")
_OF_A_MAILBOX = re.compile(r"^4\.[12]\.")
_CLOSING, _THROTTLING = 421, 454
_REFUSALS = range(400, 600)
_NO_STARTTLS = (
    "The server offers no STARTTLS. Set fields.tls to never (this machine only), implicit (port 465) or offered."
)
_NO_TLS = "The server does not speak TLS at this port. Set fields.tls to required (port 587), or fields.port to 465."
_NO_LOGIN = "The server takes no login. Set fields.tls to required or implicit, or leave user and password empty."


class SmtpTls(StrEnum):
    REQUIRED = "required"  # STARTTLS
    IMPLICIT = "implicit"  # from the first byte on
    OFFERED = "offered"  # STARTTLS if the server has it
    NEVER = "never"


_MAY_BE_CLEAR = frozenset({SmtpTls.OFFERED, SmtpTls.NEVER})


class SmtpFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    host: str
    sender: str = field(name="from")
    port: int = 587
    tls: SmtpTls = SmtpTls.REQUIRED
    user: str = ""
    from_name: str = ""
    reply_to: str | None = None


class SmtpSecret(Concealed, frozen=True, forbid_unknown_fields=True):
    password: str = ""


class SmtpReply(Struct, frozen=True):
    """The reply of a server that does not take a mail; `detail` may be shown. `of_recipient`: it is about the
    recipient alone. `of_greeting`: no mail could begin. `of_mail`: the server has received the whole mail."""

    code: int
    words: str
    detail: str
    of_recipient: bool
    of_greeting: bool
    of_mail: bool = False

    @property
    def is_doubtful(self) -> bool:
        """Whether the server may have taken the mail."""
        return self.of_mail and self.code not in _REFUSALS

    @property
    def is_too_fast(self) -> bool:
        """Whether the account's mails come too fast. A single mailbox that gets too many holds up no other
        recipient."""
        of_us = not self.of_recipient or self.code in {_CLOSING, _THROTTLING} or _OF_US.match(self.words)
        of_a_mailbox = _OF_A_MAILBOX.match(self.words)
        return bool(of_us and not of_a_mailbox and _TOO_FAST.search(self.words))


class SmtpManner(Struct, frozen=True):
    """The manner of one server: the headers with Carillon's key, and the meaning of its replies."""

    headers: Callable[[str], Mapping[str, str]]
    judge: Callable[[SmtpReply], Answer]


class SmtpKind(ProviderKind):
    name: ClassVar[str] = "smtp"
    channel: ClassVar[Channel] = Channel.MAIL
    shape: ClassVar[type[SmtpFields]] = SmtpFields

    def __init__(self, rules: ProviderRules) -> None:
        super().__init__(rules)
        self._guard = Guard(rules.allowed_networks)
        self._trust: ssl.SSLContext | None = None

    def manner(self, fields: Mapping[str, Any]) -> SmtpManner:
        return SmtpManner(headers=name_message, judge=judge_reply)

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, self.shape)
        hidden = read_fields(secret, SmtpSecret, "secret")
        self._check_target(chosen)
        check_sender(chosen.sender, chosen.from_name, chosen.reply_to)
        if bool(chosen.user) != bool(hidden.password):
            raise Invalid("a login has a user and a password", field="secret.password")

    def check_content(self, body: Mapping[str, Any]) -> None:
        check_template(body)

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        chosen = read_fields(fields, self.shape)
        password = read_fields(secret, SmtpSecret).password
        # Reading the system's certificates takes as long as some mails, so it is done once for all accounts.
        self._trust = self._trust or ssl.create_default_context()
        return SmtpProvider(chosen, password, self.manner(fields), self._guard, self._trust, self._rules.call_seconds)

    def _check_target(self, chosen: SmtpFields) -> None:
        if not 1 <= chosen.port <= 65_535:
            raise Invalid("a port is a number from 1 to 65535", field="port")
        host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
        try:
            if authority_of(f"http://{host}:{chosen.port}/", self._guard) != f"{host}:{chosen.port}":
                raise BadUrl("it is a name or an address alone")
        except BadUrl as error:
            told = error.advise(PROVIDER_NETWORKS) if isinstance(error, GuardedUrl) else error
            raise Invalid(f"invalid host: {told}", field="host") from None


class SmtpProvider:
    def __init__(
        self,
        fields: SmtpFields,
        password: str,
        manner: SmtpManner,
        guard: Guard,
        trust: ssl.SSLContext,
        call_seconds: float,
    ) -> None:
        self._fields = fields
        self._manner = manner
        # A server may also repeat a login as it was sent, by AUTH PLAIN or by AUTH LOGIN.
        self._hidden = (password, _in_base64(f"\0{fields.user}\0{password}"), _in_base64(password)) if password else ()
        target = SmtpTarget(
            host=fields.host,
            port=fields.port,
            implicit_tls=fields.tls is SmtpTls.IMPLICIT,
            start_tls={SmtpTls.REQUIRED: True, SmtpTls.OFFERED: None}.get(fields.tls, False),
            user=fields.user,
            password=password,
        )
        self._connections = SmtpConnections(target, guard, trust, call_seconds)
        self._call_seconds = call_seconds

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        address = in_ascii(to)
        if address is None:
            return CallRefused(Reason.MALFORMED, "the address cannot be told in ASCII")
        mail = read_mail(content)
        name = f"<{message_of(key)}@{self._fields.sender.rpartition('@')[2]}>"
        headers = {"Message-ID": name, **self._manner.headers(key)}
        if self._fields.reply_to is not None:
            headers["Reply-To"] = mailbox("Reply-To", self._fields.reply_to)
        return await self.deliver(replace(mail, headers=headers | mail.headers), (address,), before_bytes)

    async def deliver(self, mail: MailContent, to: tuple[str, ...], before_bytes: BeforeBytes) -> Answer:
        """Send one mail to these addresses, which are ASCII. If the server takes it for some of them, it is accepted,
        and a warning in the log names the others."""
        delivery = _Delivery(self._fields.sender, to, _message(mail, to, self._fields), before_bytes)
        try:
            async with asyncio.timeout(self._call_seconds):
                return await self._deliver(delivery)
        except TimeoutError:
            return delivery.judge_loss(f"{self._fields.host} did not answer within {self._call_seconds:g} s")

    async def verify(self) -> Answer:
        """Log in, and send nothing."""
        try:
            return await self.deliver(MailContent(), (self._fields.sender,), lambda: False)
        except NotCalled:
            return CallAccepted()

    async def close(self) -> None:
        await self._connections.close()

    async def _deliver(self, delivery: "_Delivery") -> Answer:
        host = self._fields.host
        try:
            return CallAccepted(_queue_name(await delivery.make(self._connections)))
        except Blocked as error:
            return CallRefused(Reason.OTHER, str(error))
        except aiosmtplib.SMTPResponseException as error:
            return self._judge(error, delivery)
        except (aiosmtplib.SMTPException, OSError) as error:
            if delivery.step is _Step.CONNECTING and (advised := _advise(error.__cause__ or error)) is not None:
                return advised
            return delivery.judge_loss(self._tell(f"{host} {_fault(error)}", delivery.to))

    def _tell(self, text: str, to: tuple[str, ...]) -> str:
        return tell(text, to[0], (*to[1:], *self._hidden))

    def _judge(self, error: aiosmtplib.SMTPResponseException, delivery: "_Delivery") -> Answer:
        reply = SmtpReply(
            code=error.code,
            words=error.message,
            detail=self._tell(f"SMTP {error.code}: {error.message}", delivery.to),
            of_recipient=isinstance(error, aiosmtplib.SMTPRecipientRefused),
            of_greeting=delivery.step is _Step.CONNECTING,
            of_mail=delivery.step is _Step.HANDED_OVER,
        )
        if isinstance(error, aiosmtplib.SMTPAuthenticationError) and 500 <= error.code <= 599:
            judged: Answer = LoginRefused(reply.detail)
        else:
            judged = CallUnanswered(reply.detail) if reply.is_doubtful else self._manner.judge(reply)
        match judged:
            case LoginRefused() if self._fields.tls in _MAY_BE_CLEAR and _WANTS_TLS.search(reply.words):
                return replace(judged, field="tls")
            case LoginRefused() if not self._fields.user:
                return replace(judged, field="user")
            case CallRefused() if isinstance(error, aiosmtplib.SMTPSenderRefused):
                return replace(judged, field="from")
            case _:
                return judged


def name_message(key: str) -> dict[str, str]:
    return {OUR_HEADER: key}


def judge_reply(reply: SmtpReply) -> Answer:
    """The meaning of a reply by its code; kinds with a better knowledge of their server replace it."""
    if reply.code in LOGIN_REPLIES:
        return LoginRefused(reply.detail)
    if not 500 <= reply.code <= 599 or reply.of_greeting:
        return NotNow(reply.detail, too_fast=reply.is_too_fast)
    is_dead = (reply.of_recipient or reply.of_mail) and is_dead_address(reply.words)
    return CallRefused(Reason.HARD_BOUNCE if is_dead else Reason.REFUSED, reply.detail)


class _Step(IntEnum):
    CONNECTING = 0
    BEGUN = 1
    DATA_BEGUN = 2
    HANDED_OVER = 3  # the server's next reply is about the mail


class _Delivery:
    def __init__(self, sender: str, to: tuple[str, ...], mail: bytes, before_bytes: BeforeBytes) -> None:
        self._sender = sender
        self.to = to
        self._mail = mail
        self._before_bytes = before_bytes
        self.step = _Step.CONNECTING

    async def make(self, connections: SmtpConnections) -> str:
        """Deliver the mail; return the server's last words. Raises `NotCalled` and the driver's errors."""
        try:
            async with connections.lend() as connection:
                return await self._speak(connection)
        except Goodbye:
            self.step = _Step.CONNECTING
        async with connections.lend(new=True) as connection:
            return await self._speak(connection)

    async def _speak(self, connection: SmtpConnection) -> str:
        if not self._before_bytes():
            raise NotCalled("withheld")
        self.step = _Step.BEGUN
        client = connection.begin()
        await client.mail(self._sender)
        await self._name_recipients(client)
        self.step = _Step.DATA_BEGUN
        await connection.begin_data()
        self.step = _Step.HANDED_OVER
        reply = await connection.hand_over(self._mail)
        connection.end()
        return reply.message

    async def _name_recipients(self, client: aiosmtplib.SMTP) -> None:
        """Raises `SMTPRecipientRefused` if the server refuses all: a refusal for now, if there is one."""
        refused: dict[str, aiosmtplib.SMTPRecipientRefused] = {}
        for address in self.to:
            try:
                await client.rcpt(address)
            except aiosmtplib.SMTPRecipientRefused as error:
                refused[address] = error
        if len(refused) == len(self.to):
            raise min(refused.values(), key=lambda error: error.code >= 500)
        if refused:
            left_out = {tell(address): error.code for address, error in refused.items()}
            log.warning("recipients refused by the mail server", recipients=left_out)

    def judge_loss(self, reason: str) -> Answer:
        return CallUnanswered(reason) if self.step >= _Step.DATA_BEGUN else NotNow(reason)


def _advise(fault: BaseException) -> NotNow | None:
    """The answer if the account's own fields prevent a connection; `None` for any other fault."""
    if "STARTTLS extension not supported" in str(fault):
        return NotNow(_NO_STARTTLS, field="tls")
    if "AUTH extension is not supported" in str(fault):
        return NotNow(_NO_LOGIN, field="user")
    speaks_no_tls = isinstance(fault, ssl.SSLError) and fault.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
    return NotNow(_NO_TLS, field="tls") if speaks_no_tls else None


def _fault(error: Exception) -> str:
    """The fault of a connection, to be read after the server's name."""
    fault = error.__cause__ or error
    broken = isinstance(fault, aiosmtplib.SMTPServerDisconnected | aiosmtplib.SMTPConnectError)
    if broken and not isinstance(fault, TimeoutError):
        return "broke off without an answer"
    return describe_fault(fault)


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _queue_name(words: str) -> str:
    """The name of a queued mail that many servers return, as in `2.0.0 Ok: queued as 4F2B1`."""
    found = re.search(r"queued as ([\w.-]{1,100})|\bOk:? ([\w.-]{10,100})$", words, re.IGNORECASE)
    return (found[1] or found[2]) if found else ""


def _message(mail: MailContent, to: tuple[str, ...], fields: SmtpFields) -> bytes:
    headers = {
        "From": mailbox("From", fields.sender, fields.from_name),
        "To": ",\r\n ".join(mailbox("To", address) for address in to),
        "Subject": encode_words(mail.subject, "Subject"),
        "Date": format_datetime(datetime.now(UTC)),
    }
    return build_mail(headers | mail.headers, text=mail.text, html=mail.html)
