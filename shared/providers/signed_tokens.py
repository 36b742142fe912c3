"""Signed login tokens (JSON Web Tokens, RFC 7519): RS256 for Google, ES256 for Apple.

The same claims give the same token, also with ES256 (RFC 6979), so all processes of a deployment can use one.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from shared.domain.errors import Invalid

_RSA_BITS = 2_048
_ES256_BYTES = 32
_SHORTEST_LINE = 16


class SigningKey:
    """A private key in PEM. Raises `Invalid`, which names the field and shows nothing of the key."""

    def __init__(self, pem: str, field: str) -> None:
        self._key = _read_key(pem, field)
        self.hidden = tuple(_texts_of(pem))
        """Texts that would reveal a part of the key."""

    def __repr__(self) -> str:
        return "SigningKey()"

    def sign(self, claims: Mapping[str, Any], **header: str) -> str:
        algorithm = "RS256" if isinstance(self._key, rsa.RSAPrivateKey) else "ES256"
        content = b".".join(
            _base64(msgspec.json.encode(part)) for part in ({"alg": algorithm, "typ": "JWT", **header}, claims)
        )
        return b".".join((content, _base64(self._signature(content)))).decode()

    def _signature(self, content: bytes) -> bytes:
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(content, padding.PKCS1v15(), SHA256())
        r, s = decode_dss_signature(self._key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True)))
        return r.to_bytes(_ES256_BYTES) + s.to_bytes(_ES256_BYTES)


def check_rsa_key(pem: str, field: str) -> None:
    """Raise `Invalid` unless this is a private key for RS256."""
    key = _read_key(pem, field)
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _RSA_BITS:
        raise Invalid(f"an RSA key of {_RSA_BITS:,} bits or more is needed", field=field)


def check_p256_key(pem: str, field: str) -> None:
    """Raise `Invalid` unless this is a private key for ES256."""
    if not isinstance(_read_key(pem, field), ec.EllipticCurvePrivateKey):
        raise Invalid("a key of the curve P-256 is needed, as Apple's .p8 file has it", field=field)


def _read_key(pem: str, field: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    try:
        # Shells and forms may write a line end as two characters.
        key = load_pem_private_key(pem.replace("\\n", "\n").encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, rsa.RSAPrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise Invalid("a private key in PEM without a password is needed", field=field)


def _texts_of(pem: str) -> list[str]:
    lines = pem.replace("\\n", "\n").splitlines()
    return [pem, *(line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-"))]


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
