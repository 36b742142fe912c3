"""Routes that Routemaster's clients know: they have clients of their own, and ours leave them to these."""

import re

_PATH = re.compile(r"/(topics|subscribers?|subscriptions?|api_tokens|pulse|health)(/.*)?")


def is_published(path: str) -> bool:
    """Whether a path is one of Routemaster's API."""
    return _PATH.fullmatch(path) is not None
