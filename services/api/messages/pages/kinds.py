"""What a form asks for an account of each kind. A test holds this against the kinds that there are."""

from enum import StrEnum

from msgspec import Struct


class FieldShape(StrEnum):
    """How a field is typed."""

    LINE = "line"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    LINES = "lines"  # several, a line each
    PAIRS = "pairs"  # several, `name: value` on a line each
    TEXT = "text"  # many lines that are one value


class KindField(Struct, frozen=True, kw_only=True):
    """A field of a kind, or a part of its secret. `name` is the API's."""

    name: str
    label: str
    shape: FieldShape = FieldShape.LINE
    hint: str = ""
    needed: bool = False
    choices: tuple[str, ...] = ()


class KindForm(Struct, frozen=True, kw_only=True):
    """A kind of account: what people call it, what its recipients are, and what it asks for."""

    name: str
    label: str
    recipient: str
    says: str
    fields: tuple[KindField, ...] = ()
    secret: tuple[KindField, ...] = ()


_API_URL = KindField(name="apiUrl", label="API URL", hint="For another region, or a private endpoint.")
_FROM = KindField(name="from", label="From", hint="The mailbox that mails come from.", needed=True)
_MAIL = (
    KindField(name="fromName", label="Name beside it"),
    KindField(name="replyTo", label="Answers go to"),
)
_SMTP = (
    KindField(name="host", label="Host", hint="smtp.example.com", needed=True),
    KindField(name="port", label="Port", shape=FieldShape.NUMBER, hint="587 unless you say."),
    KindField(
        name="tls",
        label="TLS",
        shape=FieldShape.CHOICE,
        choices=("required", "implicit", "offered", "never"),
        hint="Required is STARTTLS. Implicit is TLS from the first byte.",
    ),
    KindField(name="user", label="User"),
    _FROM,
    *_MAIL,
)
_PASSWORD = KindField(name="password", label="Password")

KINDS: dict[str, KindForm] = {
    kind.name: kind
    for kind in (
        KindForm(
            name="smtp",
            label="SMTP",
            recipient="a mail address",
            says="Mail by any server",
            fields=_SMTP,
            secret=(_PASSWORD,),
        ),
        KindForm(
            name="ses",
            label="Amazon SES",
            recipient="a mail address",
            says="Mail by SMTP, with events",
            fields=(
                *_SMTP,
                KindField(name="configurationSet", label="Configuration set"),
                KindField(
                    name="topicArns",
                    label="SNS topics",
                    shape=FieldShape.LINES,
                    hint="One ARN a line: events come from these only.",
                ),
            ),
            secret=(KindField(name="password", label="SMTP password", hint="Not the secret access key."),),
        ),
        KindForm(
            name="sendgrid",
            label="SendGrid",
            recipient="a mail address",
            says="Mail by its API, with events",
            fields=(_FROM, *_MAIL, _API_URL),
            secret=(
                KindField(name="apiKey", label="API key", needed=True),
                KindField(name="eventKey", label="Public key of its events"),
            ),
        ),
        KindForm(
            name="twilio",
            label="Twilio",
            recipient="a phone number with its country code",
            says="SMS and WhatsApp",
            fields=(
                KindField(name="accountSid", label="Account SID", hint="AC and 32 digits.", needed=True),
                KindField(
                    name="from", label="From", hint="A number, a short code, a name or whatsapp:+…; or the next field."
                ),
                KindField(name="messagingServiceSid", label="Messaging service", hint="MG and 32 digits."),
                _API_URL,
            ),
            secret=(KindField(name="authToken", label="Auth token", needed=True),),
        ),
        KindForm(
            name="apns",
            label="APNs",
            recipient="a device token",
            says="Pushes to Apple's devices",
            fields=(
                KindField(name="teamId", label="Team id", needed=True),
                KindField(name="keyId", label="Key id", needed=True),
                KindField(name="topic", label="Topic", hint="The id of the app: com.example.app.", needed=True),
                KindField(name="sandbox", label="Apple's sandbox", shape=FieldShape.FLAG),
                KindField(name="pushType", label="Push type", hint="alert, background, voip …"),
                KindField(name="priority", label="Priority", shape=FieldShape.NUMBER, hint="1, 5 or 10."),
                KindField(
                    name="expirationSeconds", label="Kept for", shape=FieldShape.NUMBER, hint="Seconds at Apple."
                ),
                _API_URL,
            ),
            secret=(
                KindField(
                    name="key", label="Key", shape=FieldShape.TEXT, hint="The text of the .p8 file.", needed=True
                ),
            ),
        ),
        KindForm(
            name="fcm",
            label="FCM",
            recipient="a registration token",
            says="Pushes by Firebase",
            fields=(_API_URL,),
            secret=(
                KindField(
                    name="serviceAccount",
                    label="Service account",
                    shape=FieldShape.TEXT,
                    hint="The text of its JSON file.",
                    needed=True,
                ),
            ),
        ),
        KindForm(
            name="http",
            label="HTTP",
            recipient="any text that your server knows",
            says="Your own server, called with JSON",
            fields=(
                KindField(name="url", label="URL", hint="https://messages.example.com/send", needed=True),
                KindField(name="headers", label="Headers", shape=FieldShape.PAIRS, hint="Name: value, one a line."),
                KindField(
                    name="idempotencyHeader",
                    label="Idempotency header",
                    hint="The header by which your server drops repeats.",
                ),
            ),
            secret=(
                KindField(name="signingSecret", label="Signing secret", hint="whsec_…", needed=True),
                KindField(name="oldSigningSecret", label="Old signing secret", hint="While one replaces another."),
                KindField(name="authorization", label="Authorization", hint="The value of this header."),
            ),
        ),
        KindForm(
            name="sandbox",
            label="Sandbox",
            recipient="any text; +bounce, +slow and +lost in it choose the answer",
            says="Sends to nobody: for trials",
        ),
    )
}
