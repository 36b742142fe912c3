"""Texts of users in headers, tags and cells, without invisible characters."""

from unicodedata import normalize

ZERO_WIDTH = (
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Invisible characters from spreadsheets, web pages and chats: of no width, or marks of direction."""

_FREE_OF_ZERO_WIDTH = str.maketrans("", "", ZERO_WIDTH)


def column_name(written: str) -> str:
    """The name in lower case, without surrounding blanks and without zero-width characters."""
    if written.isascii():
        return written.strip().lower()
    return normalize("NFC", written.translate(_FREE_OF_ZERO_WIDTH).strip().lower())


def without_zero_width(text: str) -> str:
    return text if text.isascii() else text.translate(_FREE_OF_ZERO_WIDTH).strip()


def strip_unseen(text: str) -> str:
    """The text without blanks and zero-width characters around it."""
    stripped = text.strip()
    if stripped.isascii():
        return stripped
    while (closer := stripped.strip(ZERO_WIDTH).strip()) != stripped:
        stripped = closer
    return stripped
