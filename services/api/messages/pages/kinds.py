"""The fields of each kind of account, and how they are read. A test compares them with the kinds of the domain."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from services.api.http.pages.typed import Form, read_lines, read_pairs, read_whole
from services.api.http.pages.visits import Visit
from shared.domain.messages.channels import Channel


class KindField(Struct, frozen=True):
    """A field of a kind, or a part of its secret. `name` is the API's. `shape` says how it is typed: as a line, whole
    number, flag or choice, as several lines, as pairs `name: value` on a line each, or as a long text."""

    name: str
    label: str
    hint: str = ""
    shape: str = "line"
    needed: bool = False
    choices: tuple[tuple[str, str], ...] = ()


class KindForm(Struct, frozen=True):
    """A kind of account: what people call it, what its recipients are, and what it asks for."""

    name: str
    label: str
    channel: Channel
    recipient: str
    says: str
    fields: tuple[KindField, ...] = ()
    secret: tuple[KindField, ...] = ()


_TLS = tuple((choice, choice) for choice in ("required", "implicit", "offered", "never"))
_MAIL_ADDRESS = "a mail address"

_API_URL = KindField("apiUrl", "API URL", "For another region, or a private endpoint.")
_FROM = KindField("from", "From", "The mailbox that mails come from.", needed=True)
_MAIL = (_FROM, KindField("fromName", "Sender name"), KindField("replyTo", "Reply to"))
_SMTP = (
    KindField("host", "Host", "smtp.example.com", needed=True),
    KindField("port", "Port", "Default: 587.", "number"),
    KindField("tls", "TLS", "Required is STARTTLS. Implicit is TLS from the first byte.", "choice", choices=_TLS),
    KindField("user", "User"),
    *_MAIL,
)
_SMTP_PASSWORD = KindField("password", "Password")
_SES = (
    *_SMTP,
    KindField("configurationSet", "Configuration set"),
    KindField("topicArns", "SNS topics", "One ARN per line: only their events count.", "lines"),
)
_SES_PASSWORD = KindField("password", "SMTP password", "Not the secret access key.")
_SENDGRID = (*_MAIL, _API_URL)
_SENDGRID_SECRET = (KindField("apiKey", "API key", needed=True), KindField("eventKey", "Public key of its events"))
_TWILIO = (
    KindField("accountSid", "Account SID", "AC and 32 digits.", needed=True),
    KindField("from", "From", "A number, a short code, a name or whatsapp:+…; or the next field."),
    KindField("messagingServiceSid", "Messaging service", "MG and 32 digits."),
    _API_URL,
)
_TWILIO_TOKEN = KindField("authToken", "Auth token", needed=True)
_APNS = (
    KindField("teamId", "Team id", needed=True),
    KindField("keyId", "Key id", needed=True),
    KindField("topic", "Topic", "The id of the app: com.example.app.", needed=True),
    KindField("sandbox", "Apple's sandbox", shape="flag"),
    KindField("pushType", "Push type", "alert, background, voip …"),
    KindField("priority", "Priority", "1, 5 or 10.", "number"),
    KindField("expirationSeconds", "Kept for", "Seconds at Apple.", "number"),
    _API_URL,
)
_APNS_KEY = KindField("key", "Key", "The text of the .p8 file.", "text", needed=True)
_FCM_KEY = KindField("serviceAccount", "Service account", "The text of its JSON file.", "text", needed=True)
_HTTP = (
    KindField("url", "URL", "https://messages.example.com/send", needed=True),
    KindField("headers", "Headers", "Name: value, one per line.", "pairs"),
    KindField("idempotencyHeader", "Idempotency header", "The header by which your server drops repeats."),
)
_HTTP_SECRET = (
    KindField("signingSecret", "Signing secret", "whsec_…", needed=True),
    KindField("oldSigningSecret", "Old signing secret", "While the new one replaces it."),
    KindField("authorization", "Authorization", "The value of this header."),
)
_ANY_TEXT = "any text that your server knows"
_TRIALS = "any text; +bounce, +slow and +lost in it choose the answer"
_PHONE = "a phone number with its country code"

_KINDS = (
    KindForm("smtp", "SMTP", Channel.MAIL, _MAIL_ADDRESS, "Mail by any server", _SMTP, (_SMTP_PASSWORD,)),
    KindForm("ses", "Amazon SES", Channel.MAIL, _MAIL_ADDRESS, "Mail by SMTP, with events", _SES, (_SES_PASSWORD,)),
    KindForm(
        "sendgrid", "SendGrid", Channel.MAIL, _MAIL_ADDRESS, "Mail by its API, with events", _SENDGRID, _SENDGRID_SECRET
    ),
    KindForm("twilio", "Twilio", Channel.SMS, _PHONE, "SMS and WhatsApp", _TWILIO, (_TWILIO_TOKEN,)),
    KindForm("apns", "APNs", Channel.PUSH, "a device token", "Pushes to Apple's devices", _APNS, (_APNS_KEY,)),
    KindForm("fcm", "FCM", Channel.PUSH, "a registration token", "Pushes by Firebase", (_API_URL,), (_FCM_KEY,)),
    KindForm("http", "HTTP", Channel.OTHER, _ANY_TEXT, "Your own server, called with JSON", _HTTP, _HTTP_SECRET),
    KindForm("sandbox", "Sandbox", Channel.OTHER, _TRIALS, "Sends to nobody: for trials"),
)
KINDS: dict[str, KindForm] = {kind.name: kind for kind in _KINDS}
_READERS: dict[str, Callable[[Form, str], Any]] = {
    "number": read_whole,
    "flag": lambda form, name: name in form or None,
    "lines": read_lines,
    "pairs": read_pairs,
}


def read_kind_fields(visit: Visit, fields: tuple[KindField, ...]) -> dict[str, Any]:
    """The fields of a kind that were filled in, as the API takes them. Raises `ApiProblem`."""
    read = {field.name: _READERS.get(field.shape, _read_text)(visit.form, f"fields.{field.name}") for field in fields}
    return {name: value for name, value in read.items() if value not in (None, "", [], {})}


def _read_text(form: Form, name: str) -> str:
    return form.get(name, "").strip()


def read_secret(visit: Visit, parts: tuple[KindField, ...]) -> dict[str, str]:
    """The parts of a secret that were filled in."""
    read = {part.name: visit.read_field(f"secret.{part.name}") for part in parts}
    return {name: text for name, text in read.items() if text}


def show_kind_value(value: Any) -> str:
    match value:
        case None | False:
            return ""
        case dict():
            return "\n".join(f"{name}: {text}" for name, text in value.items())
        case list():
            return "\n".join(str(line) for line in value)
        case _:
            return str(value)
