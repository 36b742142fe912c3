"""Signatures by the specification Standard Webhooks, so that a receiver can tell Carillon's calls from forged ones.

The signature is `v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`. A secret is `whsec_` and the base64 of 24 to
64 random bytes. The id is the same on every attempt; the timestamp is the attempt's, because receivers refuse old ones.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import lru_cache

from shared.accounts.rules.secrets import PREFIX
from shared.core.errors import Invalid

LEAST_KEY_BYTES = 24
MOST_KEY_BYTES = 64
_REMEMBERED_SECRETS = 1_000

_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_SECONDS = re.compile(r"[0-9]{1,12}")


class Forged(Exception):
    """The request was not signed with one of the secrets."""


def check_secret(secret: str, field: str) -> None:
    """Raise `Invalid` unless calls can be signed with the secret. The error never shows the secret."""
    key_of(secret, field)


def key_of(secret: str, field: str = "secret") -> bytes:
    if not LEAST_KEY_BYTES <= len(key := _decode(secret)) <= MOST_KEY_BYTES:
        rule = f"{PREFIX} and the base64 of {LEAST_KEY_BYTES} to {MOST_KEY_BYTES} random bytes"
        raise Invalid(f"a secret is {rule}", field=field)
    return key


@lru_cache(_REMEMBERED_SECRETS)
def _decode(secret: str) -> bytes:
    """The key, or an empty one if the secret is malformed."""
    written = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(written, validate=True)
    except ValueError:
        return b""
    # Python also decodes excess padding; a receiver's library may not.
    exact = secret.startswith(PREFIX) and base64.b64encode(key).decode() == written
    return key if exact else b""


def webhook_headers(message_id: str, timestamp: int, body: bytes, *secrets: str) -> dict[str, str]:
    """The headers with a message's id and time, and one signature per secret; a receiver checks any one of them."""
    headers = {_ID: message_id, _TIMESTAMP: str(timestamp)}
    if secrets:
        signed = f"{message_id}.{timestamp}.".encode() + body
        headers[_SIGNATURE] = " ".join(_signature(secret, signed) for secret in secrets)
    return headers


def verify_webhook(headers: Mapping[str, str], body: bytes, *secrets: str) -> int:
    """The timestamp (epoch seconds) of a request signed with one of these secrets; the caller judges its age. The
    names of `headers` are in lower case. Raises `Forged`."""
    message_id, timestamp = headers.get(_ID, ""), headers.get(_TIMESTAMP, "")
    if not message_id or not _SECONDS.fullmatch(timestamp):
        raise Forged(f"{_ID} and {_TIMESTAMP} are needed")
    signed = f"{message_id}.{timestamp}.".encode() + body
    shown = [text.encode() for text in headers.get(_SIGNATURE, "").split()]
    valid = [_signature(secret, signed).encode() for secret in secrets]
    if not any(hmac.compare_digest(one, other) for one in shown for other in valid):
        raise Forged(f"{_SIGNATURE} is not that of this body")
    return int(timestamp)


def _signature(secret: str, signed: bytes) -> str:
    digest = hmac.digest(key_of(secret), signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
