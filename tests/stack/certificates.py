"""Certificates of the stack: an authority of its own, the servers' certificate for 127.0.0.1 alone, and a client's.

They lie in the stack's folder and are made with the first server that asks for them. `renew` puts others of another
authority in their place, as an operator would.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.stack import places

CLIENT = "carillon"
"""The name in the client's certificate, by which RabbitMQ and Kafka know the user."""
_FILES = ("ca.pem", "server.pem", "client.pem")
_YEARS = 10
_making = Lock()
"""Servers start side by side, and each asks for them."""


class Authority:
    """Signs certificates, and vouches for itself."""

    def __init__(self, name: str = "Carillon's tests") -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        extension = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = _sign(self._name, self._name, self._key, self._key, extension)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, address: str = "127.0.0.1", days: float = 365 * _YEARS) -> bytes:
        """A key and its certificate, in one PEM; with negative days it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
        certificate = _sign(_named(name), self._name, key, self._key, names, days)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return secret + certificate.public_bytes(serialization.Encoding.PEM)


class Files(NamedTuple):
    """Who signed them, and two certificates with their keys."""

    ca: Path
    server: Path
    client: Path


def ensure() -> Files:
    """The files of this stack, made if they are not there."""
    files = _files()
    with _making:
        if not all(file.exists() for file in files):
            renew()
    return files


def renew() -> None:
    """Put new ones in their place, of an authority that was not there before."""
    authority = Authority()
    contents = (authority.pem, authority.issue("localhost"), authority.issue(CLIENT))
    _files().ca.parent.mkdir(exist_ok=True)
    for file, content in zip(_files(), contents, strict=True):
        draft = file.with_suffix(".new")
        draft.write_bytes(content)
        draft.replace(file)


def _files() -> Files:
    folder = places.home() / "certificates"
    return Files(*(folder / name for name in _FILES))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
    days: float = 365 * _YEARS,
) -> x509.Certificate:
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    begins = min(now, ends) - timedelta(days=1)
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, begins, ends)
    return builder.add_extension(extension, critical=False).sign(by, hashes.SHA256())
