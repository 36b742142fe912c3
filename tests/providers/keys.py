"""Private keys of the accounts in tests. They are made once; the fakes that a test starts find them in the environment,
as Apple and Google know the keys that they have given out."""

import os
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

_P256, _RSA = "CARILLON_TEST_P256_KEY", "CARILLON_TEST_RSA_KEY"


@cache
def p256_pem() -> str:
    """A key for ES256."""
    return _pem(_P256)


@cache
def rsa_pem() -> str:
    """A key for RS256."""
    return _pem(_RSA)


def p256_key() -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(p256_pem().encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def rsa_key() -> rsa.RSAPrivateKey:
    key = load_pem_private_key(rsa_pem().encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def _pem(name: str) -> str:
    if name not in os.environ:
        key = ec.generate_private_key(ec.SECP256R1()) if name == _P256 else rsa.generate_private_key(65_537, 2_048)
        os.environ[name] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return os.environ[name]
