"""When certificates end, for `/metrics`: those in our files as soon as they are read, a server's whenever it shows it.

The standard library decodes a certificate only for the one who has verified it, never one's own. So its dates are read
here from its DER: of an X.509 certificate they are the fifth entry of its first, or the fourth where it names no
version.
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
    """Note when the first certificate in a file ends that some setting names: it is the file's own one. A file without
    a readable certificate is left to the code that uses it."""
    found = _PEM.search(Path(path).read_text("utf-8", errors="replace"))
    if found is not None:
        CERTIFICATE_EXPIRY.labels(of).set(read_end(ssl.PEM_cert_to_DER_cert(found[0])).timestamp())


def note_shown(shown: Any, of: str | None) -> None:
    """Note when the certificate ends that the server of this name has shown, as `getpeercert` tells it."""
    if shown and of:
        CERTIFICATE_EXPIRY.labels(of).set(ssl.cert_time_to_seconds(shown["notAfter"]))


def read_end(certificate: bytes) -> datetime:
    """The last moment at which a certificate in DER is good."""
    [(_, whole)] = _entries(certificate)
    _, content = next(_entries(whole))
    entries = [entry for entry in _entries(content) if entry[0] != _VERSION]
    _, (kind, text) = _entries(entries[3][1])
    # A short year is 1950 to 2049; strptime would take 50 to 68 for the years after 2049.
    century = b"" if kind != _SHORT_TIME else b"19" if text >= b"50" else b"20"
    return datetime.strptime((century + text).decode(), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _entries(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each entry."""
    place = 0
    while place < len(content):
        tag, length, place = content[place], content[place + 1], place + 2
        if length > 0x7F:
            size = length & 0x7F
            length, place = int.from_bytes(content[place : place + size]), place + size
        yield tag, content[place : place + length]
        place += length
