"""Mail by SendGrid's API, version 3, or a server that speaks like it: one POST per mail, and posts of many events.

Carillon's key is in `custom_args`, which events repeat. SendGrid has no idempotency key. If it asks for patience,
it says at which time its limit begins anew, by its own clock. Events are signed by ECDSA over a timestamp and the
body. https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key
from msgspec import Struct, field
from msgspec.structs import replace

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.messages.rules.answers import Answer, CallRefused, Channel, LoginRefused, NotNow, Reason
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.suppressions import SuppressionCause
from shared.providers import BeforeBytes, Content, Provider, ProviderKind
from shared.providers.base import (
    Callback,
    CallbackNews,
    CallbackRequest,
    CallbackSuppression,
    Concealed,
    NotSigned,
    Unreadable,
    read_epoch,
    read_fields,
    read_json,
    tell,
    tell_refusal,
)
from shared.providers.calls import Posts, judge_status, read_answer
from shared.providers.mailing import (
    OUR_HEADER,
    MailContent,
    check_sender,
    check_template,
    in_ascii,
    is_dead_address,
    read_mail,
)

_SIGNATURE = "x-twilio-email-event-webhook-signature"
_TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
_KEY_RULE = "the verification key of the account's event webhook: base64 of a public key on P-256"
_BEHIND_THE_ID = re.compile(r"\.(filter|recv).*", re.DOTALL)
_REACHED = {
    "processed": MessageState.SENT,
    "delivered": MessageState.DELIVERED,
    "open": MessageState.READ,
    "click": MessageState.READ,
}
_UNSUBSCRIPTIONS = frozenset({"unsubscribe", "group_unsubscribe"})
_OF_THE_ADDRESS = "invalid address"
_OF_ANYTHING = frozenset({"", "unclassified"})
"""SendGrid's classifications of bounces that may mean a dead address; the others are about the sender or the moment.
https://www.twilio.com/docs/sendgrid/ui/analytics-and-reporting/bounce-and-block-classifications"""
_DROPPED = {
    "bounced address": Reason.SUPPRESSED,
    "spam reporting address": Reason.SUPPRESSED,
    "unsubscribed address": Reason.UNSUBSCRIBED,
    "invalid": Reason.MALFORMED,
}
_CAUSES = {"bounced address": SuppressionCause.BOUNCE, "spam reporting address": SuppressionCause.COMPLAINT}


class SendGridEvent(Struct, frozen=True):
    event: str | None = None
    email: str | None = None
    timestamp: float | str | None = None
    sg_message_id: str | None = None
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    response: str | None = None
    bounce_classification: str | None = None
    carillon_message: str | None = None

    @property
    def key(self) -> str:
        return self.carillon_message or ""

    @property
    def provider_id(self) -> str:
        """SendGrid's id as in its answer to the mail; `""` if the event has none."""
        return _BEHIND_THE_ID.sub("", self.sg_message_id or "")

    @property
    def why(self) -> str:
        return (self.reason or "").strip().lower()


_events = msgspec.json.Decoder(list[SendGridEvent])
_event = msgspec.json.Decoder(SendGridEvent)
_apart = msgspec.json.Decoder(list[msgspec.Raw])


def read_sendgrid_events(request: CallbackRequest, event_key: str | None) -> Callback:
    """Read a signed post. Raises `NotSigned`, also if the account has no key to verify it."""
    if event_key is None:
        raise NotSigned("secret.eventKey of this credential is needed to verify events")
    timestamp = request.headers.get(_TIMESTAMP, "")
    try:
        signature = base64.b64decode(request.headers.get(_SIGNATURE, ""), validate=True)
        _read_public_key(event_key).verify(signature, timestamp.encode() + request.body, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotSigned(f"{_SIGNATURE} is not that of this body under the account's key") from None
    events = [*_read(request.body)]
    return Callback(
        news=tuple(filter(None, map(_news, events))),
        suppressions=tuple(filter(None, map(_suppression, events))),
        at=read_epoch(timestamp),
    )


def _read(body: bytes) -> Iterator[SendGridEvent]:
    """The events. An event of unknown form is skipped."""
    try:
        yield from read_json(body, _events)
    except Unreadable as error:
        if not error.is_json:
            raise
        for raw in read_json(body, _apart):
            with suppress(Unreadable):
                yield read_json(bytes(raw), _event)


@lru_cache
def _read_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Raises `ValueError` for another kind of key."""
    key = load_der_public_key(base64.b64decode(text, validate=True))
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError(_KEY_RULE)


def _news(event: SendGridEvent) -> CallbackNews | None:
    """`None` if the event does not change a message's state, as when it was deferred."""
    key, provider_id, at = event.key, event.provider_id, read_epoch(event.timestamp)
    if event.event in _REACHED:
        return CallbackNews(key=key, provider_id=provider_id, state=_REACHED[event.event], at=at)
    reason = _reason(event)
    if reason is None:
        return None
    words = " ".join(filter(None, (event.event, event.status, event.reason or event.response)))
    recipient = event.email or ""
    detail = tell(words, recipient)
    return tell_refusal(reason, detail, key=key, provider_id=provider_id, at=at, recipient=recipient)


def _suppression(event: SendGridEvent) -> CallbackSuppression | None:
    """The suppression of an unsubscription, or of a drop because of an earlier bounce or complaint; `None` for other
    events. A drop because of an unsubscription is news that suppresses by itself."""
    drop = _CAUSES.get(event.why) if event.event == "dropped" else None
    cause = SuppressionCause.UNSUBSCRIBE if event.event in _UNSUBSCRIPTIONS else drop
    if cause is None:
        return None
    return CallbackSuppression(
        key=event.key,
        provider_id=event.provider_id,
        at=read_epoch(event.timestamp),
        recipient=event.email or "",
        cause=cause,
    )


def _reason(event: SendGridEvent) -> Reason | None:
    match event.event:
        case "bounce":
            return Reason.HARD_BOUNCE if _is_dead(event) else Reason.SOFT_BOUNCE
        case "dropped":
            return _DROPPED.get(event.why, Reason.REFUSED)
        case "spamreport":
            return Reason.COMPLAINT
        case _:
            return None


def _is_dead(event: SendGridEvent) -> bool:
    kind = (event.bounce_classification or "").strip().lower()
    if event.type == "blocked" or kind not in {_OF_THE_ADDRESS, *_OF_ANYTHING}:
        return False
    words = f"{event.status or ''} {event.reason or event.response or ''}"
    return is_dead_address(words, otherwise=kind == _OF_THE_ADDRESS)


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


class SendGridSecret(Concealed, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`event_key` is the public key that verifies events."""

    api_key: str
    event_key: str | None = None


class SendGridFault(Struct, frozen=True):
    """An error in an answer; `field` is a path into the request."""

    message: str = ""
    field: str | None = None


class SendGridFaults(Struct, frozen=True):
    errors: list[SendGridFault] = field(default_factory=list)


class SendGridKind(ProviderKind):
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
            try:
                _read_public_key(hidden.event_key)
            except ValueError:
                raise Invalid(_KEY_RULE, field="secret.eventKey") from None

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
    parts = {(error.field or "").partition(".")[0] for error in errors}
    return next((name for part, name in _OWN_FIELDS.items() if part in parts), "")


def _until_reset(answer: PostedAnswer) -> timedelta | None:
    try:
        now = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        seconds = float(answer.headers.get("x-ratelimit-reset", "")) - now
    except (ValueError, TypeError):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), _MOST_SECONDS))
