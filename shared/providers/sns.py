"""Amazon SNS: posts of topics, and the proof that SNS sent them.

Everything is checked before anything is fetched: the credential must list the topic, and the certificate must lie on
the SNS host of the topic's region, under SNS's name for certificates. A certificate never changes under its URL, so it
is fetched once; failures are remembered for a while, and few are fetched at once. So a forger cannot make Carillon call
another host, or call Amazon often.
https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
"""

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from http import HTTPStatus
from time import monotonic
from typing import Annotated, Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec
from cachetools import LRUCache
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from msgspec import Meta, Struct

from shared.core.errors import Unavailable
from shared.drivers.http import Blocked, Outgoing, Posting, Unreachable
from shared.providers.base import CallbackRequest, NotSigned, Unreadable, read_json

Fetch = Callable[[str], Awaitable[bytes]]
"""Reads a public file by its URL."""

NOTIFICATION = "Notification"
SUBSCRIPTION = "SubscriptionConfirmation"

_CONFIRMATION_PARTS = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_PARTS: dict[str, Sequence[str]] = {
    NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    SUBSCRIPTION: _CONFIRMATION_PARTS,
    "UnsubscribeConfirmation": _CONFIRMATION_PARTS,
}
_HASHES = {"1": SHA1, "2": SHA256}
DOMAINS = {
    "aws": "amazonaws.com",
    "aws-us-gov": "amazonaws.com",
    "aws-cn": "amazonaws.com.cn",
    "aws-eusc": "amazonaws.eu",
}
"""The domain of each AWS partition whose topics can be verified."""

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}")
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9a-f]{32}\.pem")

_COLONS_OF_A_TOPIC = 5
_CERTIFICATES = 64
_FETCHED_AT_ONCE = 4
_FAILED_SECONDS = 30.0
_FETCH_SECONDS = 5.0


class SnsEnvelope(Struct, frozen=True, rename="pascal"):
    """A post of SNS. Fields that a type does not have are empty."""

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: Annotated[datetime, Meta(tz=True)]
    signature: str
    signature_version: str
    signing_cert_url: str = msgspec.field(name="SigningCertURL")
    subscribe_url: str = msgspec.field(default="", name="SubscribeURL")
    subject: str | None = None
    token: str = ""


_envelope = msgspec.json.Decoder(SnsEnvelope)
_fields = msgspec.json.Decoder(dict[str, Any])


class SnsCertificates:
    """The certificates that SNS signs with; each is fetched once."""

    def __init__(self, *, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._keys: LRUCache[str, rsa.RSAPublicKey] = LRUCache(_CERTIFICATES)
        self._failed_at: LRUCache[str, float] = LRUCache(_CERTIFICATES)
        self._fetching: dict[str, asyncio.Task[rsa.RSAPublicKey]] = {}

    async def get(self, url: str, fetch: Fetch) -> rsa.RSAPublicKey:
        """The public key of the certificate at this URL, whose host the caller has checked."""
        if (key := self._keys.get(url)) is not None:
            return key
        if self._monotonic() - self._failed_at.get(url, float("-inf")) < _FAILED_SECONDS:
            raise Unavailable("a certificate of SNS could not be fetched a moment ago")
        if url not in self._fetching:
            if len(self._fetching) >= _FETCHED_AT_ONCE:
                raise Unavailable("other certificates of SNS are being fetched")
            self._fetching[url] = asyncio.create_task(self._fetch(url, fetch))
        # The fetch goes on for other callers if one gives up waiting.
        return await asyncio.shield(self._fetching[url])

    async def _fetch(self, url: str, fetch: Fetch) -> rsa.RSAPublicKey:
        try:
            key = self._keys[url] = _read_certificate(await fetch(url))
            return key
        except Unavailable:
            self._failed_at[url] = self._monotonic()
            raise
        finally:
            del self._fetching[url]


async def verify_notification(
    request: CallbackRequest, topics: Collection[str], certificates: SnsCertificates, fetch: Fetch
) -> SnsEnvelope:
    """Verify and read a post of one of these topics. Raises `NotSigned`."""
    envelope, fields = _read(request.body)
    if envelope.topic_arn not in topics:
        raise NotSigned("the topic is none of those that topicArns of this credential lists")
    _check_certificate_url(envelope)
    key = await certificates.get(envelope.signing_cert_url, fetch)
    signed = "".join(f"{part}\n{fields[part]}\n" for part in _PARTS[envelope.type] if fields.get(part) is not None)
    try:
        signature = base64.b64decode(envelope.signature, validate=True)
        key.verify(signature, signed.encode(), PKCS1v15(), _HASHES[envelope.signature_version]())
    except (InvalidSignature, ValueError):
        raise NotSigned("the signature of SNS does not match") from None
    if envelope.type == SUBSCRIPTION:
        _check_subscribe_url(envelope)
    return envelope


def sns_fetch(outgoing: Outgoing) -> Fetch:
    async def fetch(url: str) -> bytes:
        try:
            answer = await outgoing.post(Posting(url, {}, b"", _FETCH_SECONDS, lambda: True, method="GET"))
        except (Unreachable, Blocked) as error:
            raise Unavailable(f"SNS: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise Unavailable(f"SNS answers {answer.status}")
        return answer.body

    return fetch


def is_sns_host(host: str, topic: str) -> bool:
    if topic.count(":") != _COLONS_OF_A_TOPIC:
        return False
    _, partition, _, region, *_ = topic.split(":")
    domain = DOMAINS.get(partition)
    return domain is not None and bool(_REGION.fullmatch(region)) and host == f"sns.{region}.{domain}"


def _read(body: bytes) -> tuple[SnsEnvelope, dict[str, Any]]:
    """The post, and its fields as SNS signs them."""
    try:
        envelope, fields = read_json(body, _envelope), read_json(body, _fields)
    except Unreadable:
        raise NotSigned("the body is no signed post of SNS") from None
    if envelope.type not in _PARTS or envelope.signature_version not in _HASHES:
        raise NotSigned("SNS has no such type of post, or of signature")
    return envelope, fields


def _check_certificate_url(envelope: SnsEnvelope) -> None:
    parts = _split(envelope.signing_cert_url, envelope.topic_arn)
    if parts is None or parts.query or not _CERTIFICATE.fullmatch(parts.path):
        raise NotSigned("the certificate does not lie where SNS has the certificates of the topic's region")


def _check_subscribe_url(envelope: SnsEnvelope) -> None:
    """SNS has signed the URL, but only its own host may be called."""
    parts = _split(envelope.subscribe_url, envelope.topic_arn)
    asked = parse_qs(parts.query) if parts else {}
    if asked.get("Action") != ["ConfirmSubscription"] or asked.get("TopicArn") != [envelope.topic_arn]:
        raise NotSigned("this is not how SNS has a subscription to the topic confirmed")


def _split(url: str, topic: str) -> SplitResult | None:
    """The parts of a URL on the topic's SNS host; `None` if it leads elsewhere."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    # The whole authority is compared, so it contains no port, no user and no other case.
    leads_there = parts.scheme == "https" and is_sns_host(parts.netloc, topic) and url.isascii() and url.isprintable()
    return parts if leads_there and not parts.fragment else None


def _read_certificate(content: bytes) -> rsa.RSAPublicKey:
    try:
        key = x509.load_pem_x509_certificate(content).public_key()
    except ValueError:
        key = None
    if not isinstance(key, rsa.RSAPublicKey):
        raise Unavailable("SNS gave something that is no certificate with an RSA key")
    return key
