"""Masking: texts that people and logs see are free of secrets."""

import re

# Neither begins again inside what it has looked through, so that both take time in proportion to a text's length.
_URL_PASSWORD = re.compile(r"(\w://[^/\s:@]*:)([^\s'\"]*)")
_QUERY_SECRET = re.compile(
    r"([?&][\w.-]{0,40}(?:password|passwd|pwd|secret|token|signature|credential|key)=)[^&\s'\"#]+", re.IGNORECASE
)
_ASSIGNED_SECRET = re.compile(
    r"((?:secret|password|access_key|root_key)\w{0,40} ?= ?)(['\"])(?:\\.|(?!\2)[^\\])++\2", re.DOTALL
)


def may_hold_secrets(text: str) -> bool:
    """Whether `without_secrets` might change it."""
    return "=" in text or "://" in text


def without_secrets(text: str) -> str:
    """The text with what is secret in it masked: the password of every URL, what a URL's query gives to a name such as
    `password` or `token`, and what is assigned to a name with `secret`, `password`, `access_key`
    or `root_key` in it."""
    if not may_hold_secrets(text):
        return text
    text = _URL_PASSWORD.sub(_without_password, text)
    text = _QUERY_SECRET.sub(r"\1***", text)
    return _ASSIGNED_SECRET.sub(r"\1\2***\2", text)


def _without_password(found: re.Match[str]) -> str:
    # A password may hold an @ as well: the last one stands before the host.
    password, at, rest = found[2].rpartition("@")
    return f"{found[1]}***@{rest}" if at and password else found[0]
