"""Mail by SendGrid's API, version 3, or a server that speaks like it: one POST per message.

Carillon's key is in `custom_args`, which events repeat. SendGrid has no idempotency key. If it asks for patience, it
says at which time its limit begins anew, by its own clock.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from shared.domain.errors import Invalid
from shared.domain.messages.answers import Answer, CallRefused, LoginRefused, NotNow, Reason
from shared.domain.messages.channels import Channel
from shared.outgoing import Outgoing, PostedAnswer
from shared.providers import BeforeBytes, Content, Provider, ProviderKind
from shared.providers.callbacks import Callback, CallbackRequest
from shared.providers.details import tell
from shared.providers.fields import read_fields
from shared.providers.mailing import OUR_HEADER, MailContent, check_sender, check_template, in_ascii, read_mail
from shared.providers.posts import Posts, judge_status, read_answer
from shared.providers.sendgrid_events import check_event_key, read_sendgrid_events

ARGUMENT = "carillon_message"
"""The name of Carillon's key in `custom_args`."""

KEY = re.compile(r"[\x21-\x7e]+")
_OF_THE_RECIPIENT = re.compile(r"personalizations\.\d+\.to(\.|$)")
_OWN_FIELDS = {"from": "from", "reply_to": "replyTo"}
_MOST_SECONDS = 3_600.0


class SendGridFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account's own fields. `api_url` may name the European region, or a server that speaks like SendGrid."""

    sender: str = field(name="from")
    from_name: str = ""
    reply_to: str | None = None
    api_url: str = "https://api.sendgrid.com"


class SendGridSecret(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`event_key` is the public key that verifies events."""

    api_key: str
    event_key: str | None = None

    def __repr__(self) -> str:
        return "SendGridSecret()"


class SendGridFault(Struct, frozen=True):
    """An error in an answer; `field` is a path into the request."""

    message: str = ""
    field: str | None = None


class SendGridFaults(Struct, frozen=True):
    """The body of SendGrid's answer when it did not take a mail."""

    errors: list[SendGridFault] = field(default_factory=list)


class SendGridKind(ProviderKind):
    """See the module."""

    name = "sendgrid"
    channel = Channel.MAIL

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, SendGridFields)
        check_sender(chosen.sender, chosen.from_name, chosen.reply_to)
        self._rules.check_url(chosen.api_url, "apiUrl")
        hidden = read_fields(secret, SendGridSecret, "secret")
        if not KEY.fullmatch(hidden.api_key):
            raise Invalid("a key is made of printable ASCII characters", field="secret.apiKey")
        if hidden.event_key is not None:
            check_event_key(hidden.event_key, "secret.eventKey")

    def check_content(self, body: Mapping[str, Any]) -> None:
        check_template(body)

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        posts = Posts(outgoing, self._rules.call_seconds)
        return SendGridProvider(read_fields(fields, SendGridFields), read_fields(secret, SendGridSecret), posts)

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        return read_sendgrid_events(request, read_fields(secret, SendGridSecret).event_key)


class SendGridProvider:
    """One account."""

    def __init__(self, fields: SendGridFields, secret: SendGridSecret, posts: Posts) -> None:
        self._url = f"{fields.api_url.rstrip('/')}/v3/mail/send"
        self._headers = {"authorization": f"Bearer {secret.api_key}"}
        self._hidden = (secret.api_key,)
        self._fields = fields
        self._posts = posts

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        address = in_ascii(to)
        if address is None:
            return CallRefused(Reason.MALFORMED, "the address cannot be told in ASCII")
        mail = read_mail(content)
        ours = replace(mail, headers={**mail.headers, OUR_HEADER: key})
        return await self.deliver(ours, (address,), before_bytes, custom_args={ARGUMENT: key})

    async def deliver(
        self,
        mail: MailContent,
        to: tuple[str, ...],
        before_bytes: BeforeBytes,
        *,
        custom_args: Mapping[str, str] | None = None,
        sandbox: bool = False,
    ) -> Answer:
        """Send one mail to these addresses, which are ASCII. In its sandbox, SendGrid judges a mail like any other, and
        does not send it."""
        bodies = {"text/plain": mail.text, "text/html": mail.html}
        recipients: dict[str, Any] = {"to": [{"email": address} for address in to]}
        body: dict[str, Any] = {
            "personalizations": [recipients | ({"custom_args": custom_args} if custom_args else {})],
            "from": {"email": self._fields.sender, "name": self._fields.from_name},
            "subject": mail.subject,
            "content": [{"type": kind, "value": text} for kind, text in bodies.items() if text],
            "headers": mail.headers,
        }
        if self._fields.reply_to is not None:
            body["reply_to"] = {"email": self._fields.reply_to}
        if sandbox:
            body["mail_settings"] = {"sandbox_mode": {"enable": True}}
        judge = partial(_judge, to=to[0], hidden=(*to[1:], *self._hidden))
        return await self._posts.post(self._url, self._headers, msgspec.json.encode(body), before_bytes, judge)

    async def verify(self) -> Answer:
        """Have a mail judged, and send nothing."""
        mail = MailContent(subject="doctor", text="doctor")
        return await self.deliver(mail, (self._fields.sender,), lambda: True, sandbox=True)

    async def close(self) -> None: ...


def _judge(answer: PostedAnswer, to: str, hidden: tuple[str, ...]) -> Answer:
    judged = judge_status(answer, to, hidden, answer.headers.get("x-message-id", ""))
    match judged:
        case CallRefused():
            return _refusal(answer, to, hidden) or judged
        case LoginRefused():
            return replace(judged, field=_own_field(read_answer(answer, SendGridFaults).errors))
        case NotNow(retry_after=None):
            return replace(judged, retry_after=_until_reset(answer))
        case _:
            return judged


def _refusal(answer: PostedAnswer, to: str, hidden: tuple[str, ...]) -> CallRefused | None:
    errors = read_answer(answer, SendGridFaults).errors
    if not errors:
        return None
    at_fault = any(_OF_THE_RECIPIENT.match(error.field or "") for error in errors)
    detail = tell(f"HTTP {answer.status}: {'; '.join(error.message.rstrip('.') for error in errors)}", to, hidden)
    return CallRefused(Reason.MALFORMED if at_fault else Reason.REFUSED, detail, _own_field(errors))


def _own_field(errors: Sequence[SendGridFault]) -> str:
    """The account's field that one of the errors means; `""` if none does."""
    parts = {(error.field or "").partition(".")[0] for error in errors}
    return next((name for part, name in _OWN_FIELDS.items() if part in parts), "")


def _until_reset(answer: PostedAnswer) -> timedelta | None:
    try:
        now = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        seconds = float(answer.headers.get("x-ratelimit-reset", "")) - now
    except (ValueError, TypeError):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), _MOST_SECONDS))
