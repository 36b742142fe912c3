"""The only place that makes TLS contexts: version 1.2 or later, chains and names always verified.

The ends of all certificates are metrics: of files when they are read, of servers when they greet.
"""

import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import structlog

from shared.core.errors import Invalid
from shared.runtime.metrics import CERTIFICATE_EXPIRY
from shared.runtime.server_settings import TlsSettings

log = structlog.get_logger(__name__)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _SHORT_TIME = 0xA0, 0x17


def note_file(path: str, of: str) -> None:
    """Note the end of the first certificate in a setting's file, which is the file's own. A file without a readable
    certificate is left to the code that uses it."""
    found = _PEM.search(Path(path).read_text("utf-8", errors="replace"))
    if found is not None:
        CERTIFICATE_EXPIRY.labels(of).set(read_end(ssl.PEM_cert_to_DER_cert(found[0])).timestamp())


def note_shown(shown: Any, of: str | None) -> None:
    """Note the end of the certificate that this server showed, in the form of `getpeercert`."""
    if shown and of:
        CERTIFICATE_EXPIRY.labels(of).set(ssl.cert_time_to_seconds(shown["notAfter"]))


def read_end(certificate: bytes) -> datetime:
    """The last moment at which a certificate in DER is valid."""
    [(_, whole)] = _entries(certificate)
    _, content = next(_entries(whole))
    entries = [entry for entry in _entries(content) if entry[0] != _VERSION]
    _, (kind, text) = _entries(entries[3][1])
    # A short year is 1950 to 2049; strptime would read 50 to 68 as 2050 to 2068.
    century = b"" if kind != _SHORT_TIME else b"19" if text >= b"50" else b"20"
    return datetime.strptime((century + text).decode(), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _entries(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(content):
        tag, length, place = content[place], content[place + 1], place + 2
        if length > 0x7F:
            size = length & 0x7F
            length, place = int.from_bytes(content[place : place + size]), place + size
        yield tag, content[place : place + length]
        place += length


# OpenSSL's numbers for the refusal of a certificate.
_EXPIRED = 10
_UNKNOWN_SIGNER = frozenset({18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
# Otherwise OpenSSL would ask for the passphrase of an encrypted key on the terminal.
_NO_PASSPHRASE = ""


class RenewedContext(ssl.SSLContext):
    """A context that begins each connection with the files as they are then.

    It holds no certificates itself: a connection that bypasses `wrap_bio` and `wrap_socket` trusts no server.
    """

    def __new__(cls, protocol: int, _files: Sequence[str], _load: Callable[[], ssl.SSLContext]) -> Self:
        return super().__new__(cls, protocol)

    def __init__(self, protocol: int, files: Sequence[str], load: Callable[[], ssl.SSLContext]) -> None:
        self._files = [Path(file) for file in files]
        self._load = load
        self._stamps = self._read_stamps()
        self._current = load()

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self._renew()
        return self._current.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        self._renew()
        wrapped = self._current.wrap_socket(*arguments, **options)
        if wrapped.version() is not None and not wrapped.server_side:
            note_shown(wrapped.getpeercert(), wrapped.server_hostname)
        return wrapped

    def _renew(self) -> None:
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        files = [str(file) for file in self._files]
        try:
            self._current = self._load()
        except Invalid as error:
            # One of two files may be written and the other not yet. Their next change is another chance.
            log.warning("renewed certificates cannot be used, the earlier ones stay", files=files, error=str(error))
        else:
            log.info("certificates read again", files=files)

    def _read_stamps(self) -> list[tuple[int, ...]]:
        return [_stamp(file) for file in self._files]


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    def load() -> ssl.SSLContext:
        context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
        with _name_field("tls.ca_file"):
            if tls.ca_file:
                context.load_verify_locations(tls.ca_file)
            else:
                context.load_default_certs()
        if tls.certificate_file:
            with _name_field("tls.certificate_file"):
                context.load_cert_chain(tls.certificate_file, tls.key_file or None, _NO_PASSPHRASE)
                note_file(tls.certificate_file, "tls.certificate_file")
        return context

    files = [file for file in (tls.ca_file, tls.certificate_file, tls.key_file) if file]
    return RenewedContext(ssl.PROTOCOL_TLS_CLIENT, files, load)


def server_context(certificate_file: str, key_file: str, *, section: str) -> ssl.SSLContext | None:
    """`None` without a certificate. `section` is that of the settings."""
    if not certificate_file:
        return None

    def load() -> ssl.SSLContext:
        context = _new_context(ssl.PROTOCOL_TLS_SERVER)
        with _name_field(f"{section}.certificate_file"):
            context.load_cert_chain(certificate_file, key_file or None, _NO_PASSPHRASE)
            note_file(certificate_file, f"{section}.certificate_file")
        return context

    return RenewedContext(ssl.PROTOCOL_TLS_SERVER, [certificate_file, key_file or certificate_file], load)


class _ExplainedObject(ssl.SSLObject):
    """Explains in plain words why a certificate is refused, for every driver."""

    def do_handshake(self) -> None:
        with _explained_handshake(self):
            super().do_handshake()


class _ExplainedSocket(ssl.SSLSocket):
    """The same for a driver that blocks."""

    def do_handshake(self, block: bool = False) -> None:
        with _explained_handshake(self):
            super().do_handshake(block)


@contextmanager
def _explained_handshake(connection: ssl.SSLObject | ssl.SSLSocket) -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        error.strerror = error.verify_message = _explain(error)
        error.args = (error.errno, error.strerror)
        raise
    if not connection.server_side:
        note_shown(connection.getpeercert(), connection.server_hostname)


def _explain(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        reason = "the server's certificate has expired"
    elif error.verify_code in _UNKNOWN_SIGNER:
        reason = "the server's certificate is signed by an authority that we do not know (tls.ca_file)"
    elif error.verify_code in _OTHER_NAME:
        reason = "the server's certificate is for another name"
    else:
        reason = "the server's certificate is refused"
    return f"{reason}: {error.verify_message}"


@contextmanager
def _name_field(field: str) -> Iterator[None]:
    """Raise `Invalid` that names the setting if its file cannot be used."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot be used: {error}", field=field) from error


def _new_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslobject_class = _ExplainedObject
    context.sslsocket_class = _ExplainedSocket
    return context


def _stamp(file: Path) -> tuple[int, ...]:
    """A stamp that changes with a file, or with its permissions. It follows links, because Kubernetes changes the
    link, not the file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ctime_ns, found.st_size, found.st_ino
