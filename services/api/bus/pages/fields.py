"""Conditions of a subscription, as they are typed and as the API takes them."""

from typing import Any

import msgspec

from services.api.http.pages.routes import Values


def read_condition(line: str) -> Values:
    """`/total gt 10`. The value is JSON; what is none is a text."""
    path, _, rest = line.strip().partition(" ")
    op, _, text = rest.strip().partition(" ")
    return {"path": path, "op": op, "value": _read_value(text.strip()) if text.strip() else True}


def _read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
