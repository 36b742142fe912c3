"""The id by which Apple's devices replace one push by another."""

import hashlib

COLLAPSE_BYTES = 64


def collapse_id(message_id: str) -> str:
    """The message's id, or its hash if it is longer than `COLLAPSE_BYTES`."""
    if len(message_id.encode()) <= COLLAPSE_BYTES:
        return message_id
    return hashlib.sha256(message_id.encode()).hexdigest()
