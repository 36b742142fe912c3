"""The callbacks of SendGrid: posts of many events, signed by ECDSA over a timestamp and the body.

https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event
"""

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key
from msgspec import Struct

from shared.domain.errors import Invalid
from shared.domain.messages.answers import Reason
from shared.domain.messages.ledger import MessageState
from shared.domain.messages.suppressions import SuppressionCause
from shared.providers.callbacks import (
    Callback,
    CallbackNews,
    CallbackRequest,
    CallbackSuppression,
    NotSigned,
    Unreadable,
    read_epoch,
    read_json,
    tell_refusal,
)
from shared.providers.details import tell
from shared.providers.mailing import is_dead_address

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
    """An event of a post."""

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
        """Carillon's key; `""` if the mail has none."""
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


def check_event_key(text: str, field: str) -> None:
    """Raise `Invalid` unless this key can verify events."""
    try:
        _read_public_key(text)
    except ValueError:
        raise Invalid(_KEY_RULE, field=field) from None


def read_sendgrid_events(request: CallbackRequest, event_key: str | None) -> Callback:
    """Read a signed post.

    Raises:
        NotSigned: the signature is missing or wrong, or the account has no key to verify it.
        Unreadable: it is no list of events.
    """
    if event_key is None:
        raise NotSigned("secret.eventKey of this credential is needed to verify events")
    timestamp = request.headers.get(_TIMESTAMP, "")
    _verify(event_key, request.headers.get(_SIGNATURE, ""), timestamp.encode() + request.body)
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


def _verify(event_key: str, signature: str, signed: bytes) -> None:
    try:
        _read_public_key(event_key).verify(base64.b64decode(signature, validate=True), signed, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotSigned(f"{_SIGNATURE} is not that of this body under the account's key") from None


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
