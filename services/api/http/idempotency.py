"""The header `Idempotency-Key`: by it a caller tells us which requests are one and the same."""

import hashlib

from shared.domain.errors import Invalid
from shared.domain.idempotency import Idempotency

KEY_CHARACTERS = 255


def read_key(keys: list[str], *, namespace: str, request: tuple[str, str, bytes]) -> Idempotency | None:
    """What makes this request the same as an earlier one, if its caller wants that to be known.

    `request` is what must be the same: the app, the query and the body.

    Raises:
        Invalid: the key is empty, too long, not printable, or one of several.
    """
    if not keys:
        return None
    key = keys[0]
    printable = key.isascii() and key.isprintable()
    if len(keys) > 1 or not printable or not 1 <= len(key) <= KEY_CHARACTERS:
        rule = f"one value of 1 to {KEY_CHARACTERS} printable ASCII characters"
        raise Invalid(f"Idempotency-Key must be {rule}", field="Idempotency-Key", value=key)
    app_id, query, body = request
    digest = hashlib.sha256(b"\0".join([app_id.encode(), query.encode("utf-8", "replace"), body])).hexdigest()
    return Idempotency(f"{namespace}/{key}", digest)
