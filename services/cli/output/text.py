"""Text from the API for a terminal. Characters that would move the cursor, change colours or turn the direction of
writing become escape sequences."""

import json
import os
import sys
from functools import cache
from typing import Any, TextIO

ELLIPSIS = "…"


def visible(value: Any) -> str:
    """The value as one line of printable characters."""
    text = value if isinstance(value, str) else as_json(value)
    return text if text.isprintable() else "".join(map(_escape, text))


def as_json(value: Any) -> str:
    """The value as JSON of printable characters; others are escaped, as JSON allows."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    compact = msgspec.json.format(text, indent=-1)  # so a line end can only be a part of a string
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in compact)


def width_of(text: str) -> int:
    """The columns of a terminal that the text needs."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """The beginning of the text, in `width` columns."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return text + ELLIPSIS


def shorten_id(text: str, width: int) -> str:
    """The head and the tail of an id, in `width` columns. A person may type it so, or only its tail (`names.pick`)."""
    if len(text) <= width:
        return text
    tail = max((width - 1) // 3, 1)
    return text[: width - 1 - tail] + ELLIPSIS + text[-tail:]


@cache
def has_colour(stream: TextIO) -> bool:
    """Whether the stream may have colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """The text in one of click's colours, if colours are shown."""
    import click

    return click.style(text, fg=colour) if colour and has_colour(stream or sys.stdout) else text


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
