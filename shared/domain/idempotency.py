"""Idempotency: which requests are one and the same."""

from msgspec import Struct


class Idempotency(Struct, frozen=True):
    """The identity of a POST, by which a repeat is known: `key` holds the caller's namespace, `digest` the request."""

    key: str
    digest: str
