"""Tokens of a dry run: made up, so that no real device is reached."""

from hashlib import shake_128
from typing import Any

from shared.domain.audience.devices import Keys
from shared.domain.push.records import SERVICES

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_CHARACTERS = bytes(ALPHABET[byte % len(ALPHABET)] for byte in range(256))


def fake_tokens(service: str, key: int, keys: Keys) -> list[bytes]:
    """A token for each device that no real device has, as long as a real one after `FAKE-`."""
    length = SERVICES[service].token_characters
    seed = shake_128(key.to_bytes(8))
    return [_fake_token(seed, seq_id, length) for seq_id in keys.tolist()]


def _fake_token(seed: Any, seq_id: int, length: int) -> bytes:
    stream = seed.copy()
    stream.update(seq_id.to_bytes(8, signed=True))
    digest: bytes = stream.digest(length)
    return b"FAKE-" + digest.translate(_CHARACTERS)
