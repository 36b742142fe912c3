"""The end of certificates for `/metrics`: of files when they are read, of servers when they show theirs.

The standard library decodes a certificate only for the side that verified it, never the process's own. So this module
reads the dates from DER: in an X.509 certificate they are the fifth entry of the first one, or the fourth if that has
no version.
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.runtime.metrics import CERTIFICATE_EXPIRY

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
