"""The message tag with Carillon's key at Amazon SES: its values may only contain letters, digits, `_` and `-`."""

import re

TAG = "carillon_message"
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")


def tag_of(key: str) -> str:
    """The key as a tag's value."""
    return _NOT_IN_TAGS.sub(lambda found: f"_{ord(found[0]):02x}", key)


def key_of_tag(tag: str) -> str:
    """The key in a tag's value."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), tag)
