"""Mail by Amazon SES, over its SMTP interface: the kind `smtp` with SES's own headers, replies and events.

Carillon's key is in a header and in a message tag, so that any event of SES names it. SES says some things only in
words: an account that may not send at all counts as a refused login, because no message passes until an operator
acts. Events come through SNS, as event destinations and feedback topics write them.
https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html
"""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import Answer, CallRefused, LoginRefused, Reason
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.suppressions import SuppressionCause
from shared.providers import ProviderRules
from shared.providers.base import (
    Callback,
    CallbackNews,
    CallbackRequest,
    CallbackSuppression,
    Unreadable,
    read_fields,
    read_json,
    tell,
    tell_refusal,
)
from shared.providers.mailing import OUR_HEADER, is_dead_address
from shared.providers.smtp import SmtpFields, SmtpKind, SmtpManner, SmtpReply, judge_reply, name_message
from shared.providers.sns import (
    DOMAINS,
    NOTIFICATION,
    SUBSCRIPTION,
    Fetch,
    SnsCertificates,
    SnsEnvelope,
    sns_fetch,
    verify_notification,
)

TAG = "carillon_message"
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")


def tag_of(key: str) -> str:
    return _NOT_IN_TAGS.sub(lambda found: f"_{ord(found[0]):02x}", key)


def key_of_tag(tag: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), tag)


_REACHED = {
    "Send": MessageState.SENT,
    "Delivery": MessageState.DELIVERED,
    "Open": MessageState.READ,
    "Click": MessageState.READ,
}
# Feedback types of RFC 5965 that are not a complaint of the recipient.
_NO_COMPLAINT = frozenset({"not-spam", "auth-failure"})
# SES itself had suppressed the address, and did not try this time.
_SUPPRESSED = frozenset({"Suppressed", "OnAccountSuppressionList", "OnTenantSuppressionList"})


class SesRecipient(Struct, frozen=True, rename="camel"):
    email_address: str = ""
    status: str | None = None
    diagnostic_code: str | None = None


class SesMail(Struct, frozen=True, rename="camel"):
    message_id: str = ""
    destination: list[str] = field(default_factory=list)
    tags: dict[str, list[str]] = field(default_factory=dict)
    headers: list[dict[str, Any]] = field(default_factory=list)


class SesDetails(Struct, frozen=True, rename="camel"):
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    bounce_type: str = ""
    bounce_sub_type: str | None = None
    complaint_sub_type: str | None = None
    complaint_feedback_type: str | None = None
    bounced_recipients: list[SesRecipient] = field(default_factory=list)
    reason: str = ""


class SesEvent(Struct, frozen=True, rename="camel"):
    """An event; its details are in the field of its type."""

    event_type: str = ""
    notification_type: str = ""
    mail: SesMail = SesMail()
    delivery: SesDetails = SesDetails()
    open: SesDetails = SesDetails()
    click: SesDetails = SesDetails()
    bounce: SesDetails = SesDetails()
    complaint: SesDetails = SesDetails()
    reject: SesDetails = SesDetails()

    @property
    def type(self) -> str:
        """The kind of event; event destinations and feedback topics name it differently."""
        return self.event_type or self.notification_type

    @property
    def details(self) -> SesDetails:
        found = getattr(self, self.type.lower(), None)
        return found if isinstance(found, SesDetails) else SesDetails()


_event = msgspec.json.Decoder(SesEvent)


async def read_ses_callback(
    request: CallbackRequest, topics: Collection[str], certificates: SnsCertificates, fetch: Fetch
) -> Callback:
    """Read a callback of SES from one of these topics. Raises `NotSigned`, or `Unreadable` if it is no event of SES."""
    envelope = await verify_notification(request, topics, certificates, fetch)
    if envelope.type == SUBSCRIPTION:
        return Callback(at=envelope.timestamp, confirm_url=envelope.subscribe_url)
    event = _read_event(envelope) if envelope.type == NOTIFICATION else None
    news = None if event is None else _read_news(event, envelope)
    if event is None or news is None:
        return Callback(at=envelope.timestamp)
    suppressions = (_suppression(event, news),) if news.reason == Reason.SUPPRESSED else ()
    return Callback(news=(news,), suppressions=suppressions, at=envelope.timestamp)


def _read_event(envelope: SnsEnvelope) -> SesEvent | None:
    try:
        return read_json(envelope.message, _event)
    except Unreadable as error:
        if error.is_json:
            raise
        return None  # SES greets a new topic in prose


def _read_news(event: SesEvent, envelope: SnsEnvelope) -> CallbackNews | None:
    """`None` if the event does not change a mail's state, as when it is delayed."""
    key, provider_id, at = _key(event.mail), event.mail.message_id, event.details.timestamp or envelope.timestamp
    if event.type in _REACHED:
        return CallbackNews(key=key, provider_id=provider_id, state=_REACHED[event.type], at=at)
    reason = _reason(event)
    if reason is None:
        return None
    bounced = [each.email_address for each in event.details.bounced_recipients]
    to = next(filter(None, (*bounced, *event.mail.destination)), "")
    return tell_refusal(reason, _detail(event, to), key=key, provider_id=provider_id, at=at, recipient=to)


def _suppression(event: SesEvent, news: CallbackNews) -> CallbackSuppression:
    """SES keeps the address on its own list because of a past bounce or complaint."""
    cause = SuppressionCause.COMPLAINT if event.type == "Complaint" else SuppressionCause.BOUNCE
    return CallbackSuppression(
        key=news.key, provider_id=news.provider_id, at=news.at, recipient=news.recipient, cause=cause
    )


def _key(mail: SesMail) -> str:
    for tag in mail.tags.get(TAG, ()):
        return key_of_tag(tag)
    named = {str(header.get("name", "")).lower(): str(header.get("value", "")) for header in mail.headers}
    return named.get(OUR_HEADER.lower(), "")


def _reason(event: SesEvent) -> Reason | None:
    details = event.details
    match event.type:
        case "Bounce":
            return _reason_of_bounce(details)
        case "Complaint":
            return _reason_of_complaint(details)
        case "Reject" | "Rendering Failure":
            return Reason.REFUSED
        case _:
            return None


def _reason_of_complaint(details: SesDetails) -> Reason | None:
    if details.complaint_feedback_type in _NO_COMPLAINT:
        return None
    return Reason.SUPPRESSED if details.complaint_sub_type in _SUPPRESSED else Reason.COMPLAINT


def _reason_of_bounce(details: SesDetails) -> Reason:
    if details.bounce_sub_type in _SUPPRESSED:
        return Reason.SUPPRESSED
    match details.bounce_type:
        case "Permanent":
            told = " ".join(f"{each.status or ''} {each.diagnostic_code or ''}" for each in details.bounced_recipients)
            return Reason.HARD_BOUNCE if is_dead_address(told, otherwise=True) else Reason.SOFT_BOUNCE
        case "Transient":
            return Reason.SOFT_BOUNCE
        case _:
            return Reason.UNDELIVERED


def _detail(event: SesEvent, to: str) -> str:
    details = event.details
    recipient = details.bounced_recipients[0] if details.bounced_recipients else SesRecipient()
    kind = "/".join(filter(None, (details.bounce_type, details.bounce_sub_type or details.complaint_sub_type)))
    words = (event.type, kind, recipient.diagnostic_code or recipient.status or details.reason)
    return tell(" ".join(filter(None, words)), to)


_TAGS_HEADER = "X-SES-MESSAGE-TAGS"
_SET_HEADER = "X-SES-CONFIGURATION-SET"
_SET_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOPIC = re.compile(rf"arn:({'|'.join(DOMAINS)}):sns:[a-z0-9-]+:[0-9]{{12}}:[A-Za-z0-9_-]{{1,256}}(\.fifo)?")
_BARRED = re.compile(
    r"access denied|sending (suspended|paused)|sending is (suspended|paused)|account is (suspended|paused|not active)",
    re.IGNORECASE,
)
_NO_ADDRESS = re.compile(
    r"invalid (rcpt to|address)|illegal address|missing final|domain (contains|starts)", re.IGNORECASE
)


class SesFields(SmtpFields, frozen=True):
    """An account's own fields. `host` is the SMTP endpoint of a region; events come only from `topic_arns`."""

    configuration_set: str | None = None
    topic_arns: tuple[str, ...] = ()


class SesKind(SmtpKind):
    name: ClassVar[str] = "ses"
    shape: ClassVar[type[SmtpFields]] = SesFields

    def __init__(self, rules: ProviderRules) -> None:
        super().__init__(rules)
        self._certificates = SnsCertificates()

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        super().check(fields, secret)
        chosen = read_fields(fields, SesFields)
        if not chosen.user:
            raise Invalid("SES takes no mail without a login", field="user")
        if chosen.configuration_set is not None and not _SET_NAME.fullmatch(chosen.configuration_set):
            rule = "the name of a configuration set is 1 to 64 letters, digits, _ and -"
            raise Invalid(rule, field="configurationSet")
        for index, topic in enumerate(chosen.topic_arns):
            if not _TOPIC.fullmatch(topic):
                rule = "a topic is named as in arn:aws:sns:eu-west-1:123456789012:mails"
                raise Invalid(rule, field=f"topicArns[{index}]")

    def manner(self, fields: Mapping[str, Any]) -> SmtpManner:
        chosen = read_fields(fields, SesFields)
        fixed = {_SET_HEADER: chosen.configuration_set} if chosen.configuration_set is not None else {}

        def headers(key: str) -> dict[str, str]:
            return {**name_message(key), _TAGS_HEADER: f"{TAG}={tag_of(key)}", **fixed}

        return SmtpManner(headers=headers, judge=_judge)

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        topics = read_fields(fields, SesFields).topic_arns
        return await read_ses_callback(request, topics, self._certificates, sns_fetch(outgoing))


def _judge(reply: SmtpReply) -> Answer:
    judged = judge_reply(reply)
    if not isinstance(judged, CallRefused):
        return judged
    if _BARRED.search(reply.words):
        return LoginRefused(reply.detail)
    # SES asks no server before it takes a mail, so it judges only how an address is written.
    return CallRefused(Reason.MALFORMED if _NO_ADDRESS.search(reply.words) else Reason.REFUSED, reply.detail)
