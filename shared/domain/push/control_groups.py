"""Control groups: the share of a job's users who get nothing, for comparison.

The job and the user alone decide whether a user is held out, so all devices of a user are treated alike, and a repeated
batch is the same. Each user has a place in [0, 1), uniform over the users of a job. If all devices of a user are in one
batch, the users with the lowest places are held out, by the share rounded up. If they may be in several, those whose
place is below the share are.
"""

from collections.abc import Collection
from fractions import Fraction
from hashlib import blake2b
from math import ceil

_PLACES = 1 << 64


def held_out(users: Collection[str], job_id: str, share: float, *, by_rank: bool) -> frozenset[str]:
    """The held-out users; `by_rank` if none of them has devices in another batch."""
    key = blake2b(job_id.encode(), digest_size=16, person=b"control group").digest()
    hashes = {user: blake2b(user.encode(), digest_size=8, key=key) for user in users}
    places = {user: int.from_bytes(hashed.digest()) for user, hashed in hashes.items()}
    if by_rank:
        return frozenset(sorted(places, key=lambda user: (places[user], user))[: rounded_up(share, len(places))])
    limit = int(Fraction(share) * _PLACES)
    return frozenset(user for user, place in places.items() if place < limit)


def rounded_up(share: float, count: int) -> int:
    """The number of held-out users among `count`. The share counts as written: 0.07 of 100 are 7, though the nearest
    float is a little more."""
    return ceil(Fraction(repr(share)) * count)
