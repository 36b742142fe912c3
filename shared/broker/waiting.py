"""How long a message waited: its publisher writes the time, by its own clock, into a header."""

import time
from typing import Any

PUBLISHED = "x-published-ms"


def published_now() -> int:
    """The header's value for a message that is published now."""
    return int(time.time() * 1000)


def wait_of(published: Any, *, redelivered: bool) -> float | None:
    """The seconds since publishing, at least 0 because clocks differ. `None` without the header, or for a repeated
    delivery."""
    if redelivered or not isinstance(published, int):
        return None
    return max(time.time() - published / 1000, 0.0)
