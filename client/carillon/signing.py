"""Signatures of webhooks: `verify`, and `client.signing_secrets`."""

import base64
import binascii
import hmac
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from carillon.attempts import query_of
from carillon.calls import M, Resource, call
from carillon.wire.console import SigningSecret

TOLERANCE_SECONDS = 300.0
_PREFIX, _VERSION = "whsec_", "v1,"
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


class NotVerified(Exception):
    """The bus has not signed the request with this secret, or the request is too old."""


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> str:
    """The id of a delivery, `webhook-id`, which is the same on every attempt: a receiver that has seen it drops the
    repetition.

    `body` is the body as it came, before anything has read it. One of several secrets has to fit. A timestamp that is
    further from `now`, in epoch seconds, than the tolerance is refused: the request may have been kept.

    Raises:
        NotVerified: nothing of it is to be believed.
        ValueError: a secret is none.
    """
    named = {name.lower(): text for name, text in headers.items()}
    id_, timestamp, signatures = (named.get(name, "") for name in (_ID, _TIMESTAMP, _SIGNATURE))
    if not (id_ and signatures and timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise NotVerified(f"the headers {_ID}, {_TIMESTAMP} and {_SIGNATURE} are needed")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance_seconds:
        raise NotVerified(f"{_TIMESTAMP} must be within {tolerance_seconds:g} s of this machine's clock")
    signed = _bytes(f"{id_}.{timestamp}.") + body
    shown = [_bytes(text[len(_VERSION) :]) for text in signatures.split(" ") if text.startswith(_VERSION)]
    wanted = [_sign(signed, each) for each in ([secret] if isinstance(secret, str) else secret)]
    # All pairs are compared, so that how long it takes tells nothing.
    if not sum(hmac.compare_digest(one, other) for one in shown for other in wanted):
        raise NotVerified(f"{_SIGNATURE} must fit the secret and the bytes of the body as they came")
    return id_


def _bytes(text: str) -> bytes:
    """A header's text as bytes. Some servers hand on bytes that are no text, as lone surrogates."""
    return text.encode(errors="backslashreplace")


def _sign(signed: bytes, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(f"a secret must be {_PREFIX} and base64")
    return base64.b64encode(hmac.digest(key, signed, "sha256"))


class SigningSecrets(Resource[M]):
    """The caller's own, or as an admin those of another `namespace`. All methods raise `CarillonError`."""

    @call
    async def create(self, *, namespace: str = "", reason: str = "") -> SigningSecret[datetime]:
        """Take a new secret for the HTTP callbacks that have none of their own.

        An attempt whose answer was lost has made one too, which was never shown; it signs beside this one for a day.
        Raises `Conflict` where the deployment has no signing secret, or where five sign already.
        """
        return await self._post(
            SigningSecret[datetime], "signing-secrets", query=query_of(namespace=namespace), reason=reason
        )
