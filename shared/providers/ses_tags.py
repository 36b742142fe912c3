"""The message tag that bears our key at Amazon SES, whose values are made of letters, digits, `_` and `-` alone."""

import re

TAG = "carillon_message"
"""The tag's name."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")


def tag_of(key: str) -> str:
    """Our key as the value of a tag."""
    return _NOT_IN_TAGS.sub(lambda found: f"_{ord(found[0]):02x}", key)


def key_of_tag(tag: str) -> str:
    """The key that was made a tag's value."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), tag)
