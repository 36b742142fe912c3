"""The header `Idempotency-Key`: by it a caller tells us which requests are one and the same.

A job and a group keep their key in themselves, under a unique index: one write makes both, so no crash leaves a key
without its job. A request for schedules makes many documents, or one that others may replace; their keys have a
collection of their own (`shared.store.idempotency`).
"""

import hashlib
from typing import Any

from litestar import Request

from services.api.http.identity import caller_of
from shared.domain.errors import Invalid
from shared.domain.idempotency import Idempotency, identify

KEY_CHARACTERS = 255
_READ_BYTES = 2**20  # larger bodies are compared as they came: reading one holds the loop


Sameness = tuple[str, str, bytes]
"""The things that must be the same in a repeated request: what it is about, its query, and its body."""


def idempotency_of(request: Request[Any, Any, Any], same: Sameness) -> Idempotency | None:
    """The request's idempotency key, if any. It is used after the request was read, so that a mistake can be corrected
    under the same key. Raises `Invalid` for a malformed key."""
    keys = request.headers.getall("idempotency-key", [])
    return read_key(keys, namespace=caller_of(request).namespace, same=same)


def read_key(keys: list[str], *, namespace: str, same: Sameness) -> Idempotency | None:
    """The key and digest that identify this request with an earlier one, if its caller gives a key. Raises `Invalid` if
    the key is empty, too long, not printable, or one of several."""
    if not keys:
        return None
    key = keys[0]
    printable = key.isascii() and key.isprintable()
    if len(keys) > 1 or not printable or not 1 <= len(key) <= KEY_CHARACTERS:
        rule = f"one value of 1 to {KEY_CHARACTERS} printable ASCII characters"
        raise Invalid(f"Idempotency-Key must be {rule}", field="Idempotency-Key", value=key)
    about, query, body = same
    digest = hashlib.sha256(b"\0".join([about.encode(), query.encode("utf-8", "replace"), body])).hexdigest()
    if len(body) > _READ_BYTES:
        return Idempotency(f"{namespace}/{key}", digest)
    return identify(f"{namespace}/{key}", digest, f"{about}?{query}", body)
