"""Masking of secrets in texts for people and logs."""

import re

# Neither pattern scans a text twice, so both take time in proportion to its length.
_URL_PASSWORD = re.compile(r"(\w://[^/\s:@]*:)([^\s'\"]*)")
_QUERY_SECRET = re.compile(
    r"([?&][\w.-]{0,40}(?:password|passwd|pwd|secret|token|signature|credential|key)=)[^&\s'\"#]+", re.IGNORECASE
)
_ASSIGNED_SECRET = re.compile(
    r"((?:secret|password|access_key|root_key)\w{0,40} ?= ?)(['\"])(?:\\.|(?!\2)[^\\])++\2", re.DOTALL
)


def may_hold_secrets(text: str) -> bool:
    """Whether `without_secrets` might change the text."""
    return "=" in text or "://" in text


def without_secrets(text: str) -> str:
    """Mask the password of every URL, the values of a URL's query with names such as `password` or `token`, and values
    assigned to names that contain `secret`, `password`, `access_key` or `root_key`."""
    if not may_hold_secrets(text):
        return text
    text = _URL_PASSWORD.sub(_without_password, text)
    text = _QUERY_SECRET.sub(r"\1***", text)
    return _ASSIGNED_SECRET.sub(r"\1\2***\2", text)


def _without_password(found: re.Match[str]) -> str:
    # A password may contain an @: the last one is before the host.
    password, at, rest = found[2].rpartition("@")
    return f"{found[1]}***@{rest}" if at and password else found[0]
