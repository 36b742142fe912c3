"""Callbacks as providers make them: signed here by what the providers' own documents say, and not by our code."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from shared.providers.base import CallbackRequest

PUBLIC_URL = "https://carillon.example.com/push"
CREDENTIAL = "0190b5a2-0000-7000-8000-000000000001"
URL = f"{PUBLIC_URL}/callbacks/{CREDENTIAL}"
AT = datetime(2026, 12, 24, 14, tzinfo=UTC)

TOKEN = "12345678901234567890123456789012"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:mails"
SNS = "https://sns.eu-west-1.amazonaws.com"
CERTIFICATE_URL = f"{SNS}/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"


def twilio(form: Mapping[str, str], *, key: str = "", token: str = TOKEN, url: str = "") -> CallbackRequest:
    """A form of Twilio's, signed for `url`, by default the one that is called."""
    called = f"{URL}/{key}" if key else URL
    signed = (url or called) + "".join(f"{name}{form[name]}" for name in sorted(form))
    signature = base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return CallbackRequest(called, headers, urlencode(form).encode(), key)


class SendGridSigner:
    """A key pair as SendGrid makes one for an event webhook."""

    def __init__(self, curve: ec.EllipticCurve | None = None) -> None:
        self._key = ec.generate_private_key(curve or ec.SECP256R1())

    @property
    def event_key(self) -> str:
        public = self._key.public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return base64.b64encode(public.public_bytes(serialization.Encoding.DER, form)).decode()

    def post(self, events: Any, *, at: datetime = AT) -> CallbackRequest:
        body = events if isinstance(events, bytes) else json.dumps(events, indent=1).encode()
        timestamp = str(int(at.timestamp()))
        signature = self._key.sign(timestamp.encode() + body, ec.ECDSA(hashes.SHA256()))
        headers = {
            "x-twilio-email-event-webhook-signature": base64.b64encode(signature).decode(),
            "x-twilio-email-event-webhook-timestamp": timestamp,
        }
        return CallbackRequest(URL, headers, body)


def webhook(told: Any, secret: str, *, key: str = "", at: datetime = AT, id_: str = "evt_1") -> CallbackRequest:
    """A request as Standard Webhooks has it."""
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    timestamp = str(int(at.timestamp()))
    secret_bytes = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(secret_bytes, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "webhook-id": id_,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
    return CallbackRequest(f"{URL}/{key}" if key else URL, headers, body, key)


class SnsSigner:
    """A certificate as SNS has one, and posts that are signed by it."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65_537, 2_048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(AT - timedelta(days=1))
            .not_valid_after(AT + timedelta(days=365))
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    def notification(self, message: Any, *, version: str = "2", **changes: Any) -> CallbackRequest:
        text = message if isinstance(message, str) else json.dumps(message)
        return self._post(version, **({"Type": "Notification", "Message": text} | changes))

    def confirmation(self, *, version: str = "2", url: str = "", topic: str = TOPIC, **changes: Any) -> CallbackRequest:
        named = url or f"{SNS}/?Action=ConfirmSubscription&TopicArn={topic}&Token=2336412f37"
        fixed = {"Type": "SubscriptionConfirmation", "Message": "You have chosen …", "Token": "2336412f37"}
        return self._post(version, **(fixed | {"SubscribeURL": named, "TopicArn": topic} | changes))

    def _post(self, version: str, **fields: Any) -> CallbackRequest:
        standard = {
            "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
            "TopicArn": TOPIC,
            "Timestamp": AT.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "SignatureVersion": version,
            "SigningCertURL": CERTIFICATE_URL,
        }
        post = standard | fields
        if "Signature" not in post:
            post["Signature"] = base64.b64encode(self._sign(post)).decode()
        return CallbackRequest(URL, {"x-amz-sns-message-type": post["Type"]}, json.dumps(post).encode())

    def _sign(self, post: Mapping[str, Any]) -> bytes:
        not_signed = {"SignatureVersion", "SigningCertURL", "Signature", "UnsubscribeURL"}
        names = sorted(name for name in post if name not in not_signed)
        text = "".join(f"{name}\n{post[name]}\n" for name in names)
        digest = hashes.SHA1() if post["SignatureVersion"] == "1" else hashes.SHA256()
        return self._key.sign(text.encode(), padding.PKCS1v15(), digest)
