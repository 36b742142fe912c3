"""Idempotency: which requests are one and the same."""

from msgspec import Struct


class Idempotency(Struct, frozen=True):
    """What makes a repeated POST the same POST: `key` holds the caller's namespace, `digest` the request."""

    key: str
    digest: str
