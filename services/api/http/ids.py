"""The ids of what the API makes."""

import secrets

from shared.domain.ids import time_ordered_id


def fresh_id(now: int) -> str:
    """A new id, which sorts after those of earlier instants (ns)."""
    return time_ordered_id(now, secrets.randbits(62))
