"""Mails by Carillon itself, to a few people: about jobs, rejected credentials and suspended subscriptions.

    letter ──> recipients in ASCII ──> SMTP or SendGrid, as for an account ──> the answer, as an error

The account is that of the settings `mail`. `send` returns when the server has taken the mail for at least one
recipient. Refused recipients, and those whose address has no ASCII form, are left out with a warning in the log. After
`Unavailable`, the mail may have been sent: the next attempt has the same Message-ID, so that the repetition can be
recognised. No error shows a password, a key or a whole address.
"""

from typing import TYPE_CHECKING, Self
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import structlog

from shared.core.errors import Invalid, Unauthorized, Unavailable
from shared.core.mail import address_in_ascii
from shared.drivers.http import Outgoing
from shared.jobs.rules.mails import Letter
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, CallUnanswered, LoginRefused, NotNow
from shared.providers.base import tell
from shared.runtime.server_settings import MailSettings, TlsSettings

if TYPE_CHECKING:  # imported when a deployment has such a server
    from shared.providers.sendgrid import SendGridProvider
    from shared.providers.smtp import SmtpProvider

log = structlog.get_logger(__name__)

_ANYWHERE = ("0.0.0.0/0", "::/0")  # the operator chose the server
# The settings that an account's fields are made of.
_SETTINGS = {"tls": "smtps:// or ?tls in mail.url", "user": "the login in mail.url", "from": "mail.sender_address"}


class Mail:
    """The mail server of a deployment. Without one, callers look at `delivers` and send nothing."""

    def __init__(self, provider: "SmtpProvider | SendGridProvider | None" = None) -> None:
        self._provider = provider

    @classmethod
    def open(cls, chosen: MailSettings, tls: TlsSettings, outgoing: Outgoing) -> Self:
        """Prepare to send, without connecting. Raises `Invalid` if no server can have this URL."""
        server = urlsplit(chosen.url)
        if not server.scheme:
            return cls()
        try:
            port = server.port
        except ValueError:
            raise Invalid("a port is a number up to 65535", field="mail.url") from None
        option = "".join(parse_qs(server.query).get("tls", ()))
        if server.scheme == "sendgrid":
            return cls(_open_sendgrid(chosen, server, "http" if option == "never" else "https", outgoing))
        if server.scheme == "smtps" and option in {"offered", "never"}:
            raise Invalid("smtps:// is TLS from the first byte: give ?tls to smtp:// alone", field="mail.url")
        return cls(_open_smtp(chosen, server, port, option, tls))

    @property
    def delivers(self) -> bool:
        return self._provider is not None

    async def send(self, letter: Letter) -> None:
        """Raises `Unauthorized` if the server does not accept the login or key, `Invalid` if it refuses the mail, or
        all its recipients, for good."""
        from shared.providers.mailing import MailContent  # loads numpy

        assert self._provider is not None
        headers = {"Message-ID": f"<{letter.id}>", "Auto-Submitted": "auto-generated"}
        mail = MailContent(letter.subject, letter.text, headers=headers)
        _check(await self._provider.deliver(mail, _recipients(letter), lambda: True))

    async def verify(self) -> None:
        """Check the login or key without sending anything. Raises as `send` does."""
        assert self._provider is not None
        _check(await self._provider.verify())

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()


def _open_smtp(
    chosen: MailSettings, server: SplitResult, port: int | None, option: str, tls: TlsSettings
) -> "SmtpProvider":
    from shared.drivers.http.guard import Guard
    from shared.providers.smtp import SmtpFields, SmtpManner, SmtpProvider, SmtpTls, judge_reply, name_message
    from shared.runtime.tls import client_context

    user, password = unquote(server.username or ""), unquote(server.password or "")
    implicit = server.scheme == "smtps"
    fields = SmtpFields(
        host=server.hostname or "",
        port=port or (465 if implicit else 587),
        tls=SmtpTls.IMPLICIT if implicit else SmtpTls(option or ("required" if password else "offered")),
        user=user,
        sender=chosen.sender_address,
        from_name=chosen.sender_name,
    )
    manner, guard = SmtpManner(name_message, judge_reply), Guard(_ANYWHERE)
    return SmtpProvider(fields, password, manner, guard, client_context(tls), chosen.timeout_seconds)


def _open_sendgrid(chosen: MailSettings, server: SplitResult, scheme: str, outgoing: Outgoing) -> "SendGridProvider":
    from shared.providers.calls import Posts
    from shared.providers.sendgrid import KEY, SendGridFields, SendGridProvider, SendGridSecret

    key = unquote(server.password or "")
    if not KEY.fullmatch(key):
        raise Invalid("a key is made of printable ASCII characters", field="mail.url")
    url = f"{scheme}://{server.netloc.rpartition('@')[2]}"
    fields = SendGridFields(chosen.sender_address, chosen.sender_name, api_url=url)
    return SendGridProvider(fields, SendGridSecret(key), Posts(outgoing, chosen.timeout_seconds))


def _recipients(letter: Letter) -> tuple[str, ...]:
    """The recipients in ASCII, each once. Raises `Invalid` if none is left."""
    spelled = {address: address_in_ascii(address) for address in letter.to}
    if left_out := [tell(address) for address, known in spelled.items() if known is None]:
        log.warning("recipients left out, their addresses have no form in ASCII", letter=letter.id, recipients=left_out)
    recipients = tuple(dict.fromkeys(known for known in spelled.values() if known is not None))
    if not recipients:
        raise Invalid("no recipient has an address in ASCII", field="to")
    return recipients


def _check(answer: Answer) -> None:
    match answer:
        case CallAccepted():
            return
        case CallUnanswered():
            raise Unavailable(f"the mail server may have the mail: {answer.detail}")
        case NotNow():
            raise Unavailable(f"the mail server takes no mail now: {_explain(answer)}")
        case LoginRefused():
            raise Unauthorized(f"the mail server refuses the login: {_explain(answer)}")
        case CallRefused():
            raise Invalid(f"the mail server refuses the mail: {_explain(answer)}")


def _explain(answer: NotNow | LoginRefused | CallRefused) -> str:
    """The detail, with the setting at fault in place of advice about an account's fields."""
    detail = answer.detail.partition(" Set fields.")[0]
    return f"{detail}; see {_SETTINGS[answer.field]}" if answer.field in _SETTINGS else detail
