"""Control groups: the share of a job's users who get nothing, so that one can compare.

Whether a user is held out follows from the job and the user alone, so all devices of one are treated alike, and a batch
that is tried again comes out the same. Each user has a place in [0, 1), uniform over the users of a job. If all devices
of a user stand in one batch, the users with the lowest places are held out, as many as the share asks for, rounded up.
If they may stand in several, those whose place is below the share are.
"""

from collections.abc import Collection
from fractions import Fraction
from hashlib import blake2b
from math import ceil

_PLACES = 1 << 64


def held_out(users: Collection[str], job_id: str, share: float, *, by_rank: bool) -> frozenset[str]:
    """Which of these users are held out; `by_rank` where none of them has devices in another batch."""
    key = blake2b(job_id.encode(), digest_size=16, person=b"control group").digest()
    places = {user: _place(user, key) for user in users}
    if by_rank:
        return frozenset(sorted(places, key=lambda user: (places[user], user))[: rounded_up(share, len(places))])
    limit = int(Fraction(share) * _PLACES)
    return frozenset(user for user, place in places.items() if place < limit)


def _place(user: str, key: bytes) -> int:
    return int.from_bytes(blake2b(user.encode(), digest_size=8, key=key).digest())


def rounded_up(share: float, count: int) -> int:
    """How many of so many users are held out. The share counts as it is written: 0.07 of 100 are 7, though the nearest
    float is a little more."""
    return ceil(Fraction(repr(share)) * count)
