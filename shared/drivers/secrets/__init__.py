"""Secrets at rest: sealed by AES-256-GCM under the deployment's keys, each bound to its owner.

- A sealed text is `1.<key>.<nonce and ciphertext>`, in base64 for URLs. `<key>` names the key without revealing it.
- The first key of the ring seals, all of them open. Replace a key in three steps: put a new one before it, seal
  everything anew (`carillon credentials reencrypt`), remove the old one.
- A sealed text opens only for its owner: a copy in another document is refused.
- No error and no representation shows a secret, a key, or how much of a text was right.

A fingerprint tells two secrets apart and helps no attacker to guess one: it is made with the key, so the database alone
does not suffice to try words.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shared.core.errors import Conflict, Invalid

KEY_BYTES = 32
KEYS_SETTING = "providers.secret_keys"
FINGERPRINT_CHARACTERS = 12

_FORMAT = "1"
_NONCE_BYTES = 12
_NAME_CHARACTERS = 8

Secret = Mapping[str, str]
"""A secret: its parts by name, such as an account's user and password."""

_secret = msgspec.json.Decoder(dict[str, str])


class KeyRing:
    """The keys of a deployment, base64 of 32 bytes each. An empty ring cannot seal."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = {_name_of(key): key for key in map(_read_key, keys)}

    def __repr__(self) -> str:
        """The names of the keys, not the keys."""
        return f"KeyRing({', '.join(self._keys)})"

    @staticmethod
    def accepts(key: str) -> bool:
        try:
            return bool(_read_key(key))
        except Invalid:
            return False

    def seal(self, secret: Secret, owner: str) -> str:
        name, key = self._first()
        nonce = os.urandom(_NONCE_BYTES)
        content = AESGCM(key).encrypt(nonce, msgspec.json.encode(secret), owner.encode())
        return ".".join((_FORMAT, name, base64.urlsafe_b64encode(nonce + content).decode()))

    def open(self, sealed: str, owner: str) -> dict[str, str]:
        """The secret that was sealed for this owner. Raises `Conflict` if its key is not in the ring, or the text is
        damaged or another owner's."""
        name, content = _read_sealed(sealed)
        key = self._keys.get(name)
        if key is None:
            raise Conflict(
                f"its secret was sealed under a key that {KEYS_SETTING} does not have: put the key back, or give the "
                "secret anew",
                field="secret",
            )
        try:
            return _secret.decode(AESGCM(key).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], owner.encode()))
        except (InvalidTag, ValueError, msgspec.DecodeError):
            _refuse_damaged()

    @property
    def can_seal(self) -> bool:
        return bool(self._keys)

    @property
    def current(self) -> str:
        """The name of the key that seals."""
        return self._first()[0]

    def fingerprint(self, secret: Secret) -> str:
        """A text that tells this secret from others while the first key stays. Raises `Invalid` if there is no key."""
        return self.digest(msgspec.json.encode(secret, order="sorted")).hex()[:FINGERPRINT_CHARACTERS]

    def digest(self, content: bytes) -> bytes:
        """A digest that cannot be made without the first key. Raises `Invalid` if there is no key."""
        _, key = self._first()
        return hmac.digest(key, b"carillon digest\n" + content, hashlib.sha256)

    def derive(self, purpose: str) -> list[bytes]:
        """Derive a key for `purpose` from each key of the ring. A derived key reveals nothing about the others."""
        return [hmac.digest(key, b"carillon " + purpose.encode(), hashlib.sha256) for key in self._keys.values()]

    def _first(self) -> tuple[str, bytes]:
        for name, key in self._keys.items():
            return name, key
        raise Invalid(
            f"secrets cannot be kept here: {KEYS_SETTING} has no key; `openssl rand -base64 {KEY_BYTES}` makes one",
            field="secret",
        )


def read_keys(text: str) -> list[str]:
    """The keys in a setting, separated by commas or blanks."""
    return text.replace(",", " ").split()


def fresh_key() -> str:
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def _read_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        rule = f"a key is base64 of {KEY_BYTES} bytes, as `openssl rand -base64 {KEY_BYTES}` makes it"
        raise Invalid(rule, field=KEYS_SETTING)
    return key


def _name_of(key: bytes) -> str:
    return hmac.digest(key, b"carillon key", hashlib.sha256).hex()[:_NAME_CHARACTERS]


def _read_sealed(sealed: str) -> tuple[str, bytes]:
    """The key's name and the sealed content. Raises `Conflict` for a malformed text."""
    format, _, rest = sealed.partition(".")
    name, _, content = rest.partition(".")
    if format != _FORMAT:
        _refuse_damaged()
    try:
        return name, base64.b64decode(content, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        _refuse_damaged()


def _refuse_damaged() -> NoReturn:
    # From nothing: neither the library's error nor the text itself may show.
    raise Conflict("its secret cannot be read: it was damaged or moved; give the secret anew", field="secret") from None
