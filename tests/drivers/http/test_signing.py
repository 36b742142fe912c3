"""Signatures agree with the reference implementation of Standard Webhooks, byte for byte."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from shared.drivers.http.signing import check_secret, webhook_headers

KEYS = st.binary(min_size=24, max_size=64)
IDS = st.text("0123456789abcdef", min_size=1)


@given(KEYS, IDS, st.integers(0, 4_000_000_000), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_signature_is_that_of_the_reference(key: bytes, message_id: str, timestamp: int, body: str) -> None:
    secret = f"whsec_{base64.b64encode(key).decode()}"
    check_secret(secret, "secret")
    headers = webhook_headers(message_id, timestamp, body.encode(), secret)
    expected = Webhook(secret).sign(message_id, datetime.fromtimestamp(timestamp, UTC), body)
    assert headers == {
        "webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": expected
    }  # fmt: skip


def test_the_reference_verifies_a_call_and_refuses_a_forged_one() -> None:
    secret = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
    now = int(datetime.now(UTC).timestamp())
    body = json.dumps({"id": 42}).encode()
    headers = webhook_headers("m1", now, body, secret)
    assert Webhook(secret).verify(body, headers) == {"id": 42}
    for forged, changed in ((body + b" ", headers), (body, headers | {"webhook-id": "m2"})):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(forged, changed)


def test_bytes_are_signed_as_they_are() -> None:
    secret = f"whsec_{base64.b64encode(bytes(24)).decode()}"
    assert webhook_headers("m", 1, b"\xff", secret) != webhook_headers("m", 1, "\xff".encode(), secret)
