"""What people write in headers, tags and cells, without what nobody sees of it."""

from unicodedata import normalize

ZERO_WIDTH = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Characters that nobody sees, and that spreadsheets and web pages leave behind."""

_FREE_OF_ZERO_WIDTH = str.maketrans("", "", ZERO_WIDTH)


def column_name(written: str) -> str:
    """The name in lower case, without blanks around it and without zero-width characters."""
    if written.isascii():
        return written.strip().lower()
    return normalize("NFC", written.translate(_FREE_OF_ZERO_WIDTH).strip().lower())


def strip_unseen(text: str) -> str:
    """The text without blanks and zero-width characters around it."""
    stripped = text.strip()
    if stripped.isascii():
        return stripped
    while (closer := stripped.strip(ZERO_WIDTH).strip()) != stripped:
        stripped = closer
    return stripped
