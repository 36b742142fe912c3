"""A mail as bytes, and the domains of its addresses.

The standard library's generator takes 1.4 ms for a mail, most of it for parsing its own output; `build_mail` takes
a twentieth, and the standard parser reads the same (`tests/core/test_mime.py`).
"""

import binascii
import re
from collections.abc import Mapping

import idna

# Mail hosts inside a network may have underscores in their names.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_PLAIN = re.compile(rf"(?!.*\bxn--)(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.IGNORECASE | re.ASCII)


def normal_domain(domain: str) -> str | None:
    """The domain in readable form and lower case; `None` if it is invalid. Equal domains have one such form."""
    encoded = domain_in_ascii(domain)
    if encoded is None or _PLAIN.fullmatch(encoded):
        return encoded and encoded.lower()
    return idna.decode(encoded)


def domain_in_ascii(domain: str) -> str | None:
    """The domain in DNS's form (`xn--…`); `None` if it is invalid. A domain in plain ASCII stays unchanged."""
    if _PLAIN.fullmatch(domain):
        return domain
    try:
        encoded = idna.encode(domain, uts46=True, transitional=False, std3_rules=True).decode()
    except idna.IDNAError:
        return None
    return None if encoded.endswith(".") else encoded


def address_in_ascii(address: str) -> str | None:
    """The address with its domain in DNS's form; `None` if its name or its domain has no form in ASCII."""
    name, _, domain = address.rpartition("@")
    encoded = domain_in_ascii(domain) if name.isascii() else None
    return None if encoded is None else f"{name}@{encoded}"


BOUNDARY = "=_carillon"  # no encoded text contains it: neither base64 nor quoted-printable has a bare "=_"
LOGIN_REPLIES = frozenset({530, 534, 535, 538})
"""SMTP's replies that ask for a login, another way of it, the right one, or TLS before it (RFC 4954)."""
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_LINE_ENDS_OF_BYTES = re.compile(rb"\r?\n")
_LINE_CHARACTERS = 76  # of a line with encoded words (RFC 2047, 2)
_WORD_CHARACTERS = len("=?utf-8?b??=")
_PLAIN_CHARACTERS = 60
_ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_ENCODED_WORD = re.compile(r"=\?")


def build_mail(headers: Mapping[str, str], *, text: str, html: str) -> bytes:
    """The mail with these headers, whose values are ASCII on one line (`encode_words`, `mailbox`)."""
    head = [f"{name}: {value}" for name, value in headers.items()]
    parts = [_part("plain", text)] if text or not html else []
    parts += [_part("html", html)] if html else []
    if len(parts) == 1:
        return _lines([*head, "MIME-Version: 1.0"]) + parts[0]
    kind = f'Content-Type: multipart/alternative; boundary="{BOUNDARY}"'
    opening, closing = f"\r\n--{BOUNDARY}\r\n".encode(), f"\r\n--{BOUNDARY}--\r\n".encode()
    return _lines([*head, "MIME-Version: 1.0", kind]) + b"".join(opening + part for part in parts) + closing


def encode_words(text: str, header: str) -> str:
    """A text for this header: unchanged if it is short and plain, otherwise as encoded words (RFC 2047), folded."""
    if text.isascii() and len(text) <= _PLAIN_CHARACTERS and not _ENCODED_WORD.search(text) and text.strip() == text:
        return text
    words = (binascii.b2a_base64(word, newline=False).decode() for word in _split(text, len(f"{header}: ")))
    return "\r\n ".join(f"=?utf-8?b?{word}?=" for word in words)


def mailbox(header: str, address: str, name: str = "") -> str:
    """An address for this header, with a name before it if given. The address is ASCII."""
    name = " ".join(name.split())
    local, _, domain = address.rpartition("@")
    if not _ATOM.fullmatch(local):
        local = _quote(local)
    if not name:
        return f"<{local}@{domain}>"
    words = encode_words(name, header)
    if words == name:
        return f"{name if _ATOM.fullmatch(name) else _quote(name)} <{local}@{domain}>"
    return f"{words}\r\n <{local}@{domain}>"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _part(subtype: str, text: str) -> bytes:
    data = _LINE_ENDS.sub("\r\n", text).encode(errors="replace")
    # Base64 is smaller if more than a sixth of the bytes would be quoted.
    if sum(byte > 126 for byte in data) * 6 > len(data):
        lines = (binascii.b2a_base64(data[at : at + 57], newline=False) for at in range(0, len(data), 57))
        encoding, body = "base64", b"".join(line + b"\r\n" for line in lines)
    else:
        # It breaks long lines by a bare \n if the text itself has no line end.
        encoding, body = "quoted-printable", _LINE_ENDS_OF_BYTES.sub(b"\r\n", binascii.b2a_qp(data))
    head = [f"Content-Type: text/{subtype}; charset=utf-8", f"Content-Transfer-Encoding: {encoding}", ""]
    return _lines(head) + body


def _split(text: str, taken: int) -> list[bytes]:
    """The text in pieces of whole characters, each for a line. `taken` characters of the first line are used, and a
    blank of each other line."""
    pieces, most = [b""], _bytes_behind(taken)
    for character in text:
        encoded = character.encode(errors="replace")
        if len(pieces[-1]) + len(encoded) > most:
            pieces.append(b"")
            most = _bytes_behind(1)
        pieces[-1] += encoded
    return pieces


def _bytes_behind(taken: int) -> int:
    return (_LINE_CHARACTERS - taken - _WORD_CHARACTERS) // 4 * 3


def _lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("ascii", "replace")
