"""How long a message has waited: whoever publishes it says when, by their clock, in a header that others ignore."""

import time
from typing import Any

PUBLISHED = "x-published-ms"


def published_now() -> int:
    """The value of the header for a message that is published now."""
    return int(time.time() * 1000)


def wait_of(published: Any, *, redelivered: bool) -> float | None:
    """The seconds since then, never less than none: clocks differ. `None` for a message that says nothing, or whose
    wait ended at an earlier delivery."""
    if redelivered or not isinstance(published, int):
        return None
    return max(time.time() - published / 1000, 0.0)
