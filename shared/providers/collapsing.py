"""By what Apple's devices know that one push takes the place of another."""

import hashlib

COLLAPSE_BYTES = 64


def collapse_id(message_id: str) -> str:
    """The message's id, or a hash of one that is too long."""
    if len(message_id.encode()) <= COLLAPSE_BYTES:
        return message_id
    return hashlib.sha256(message_id.encode()).hexdigest()
