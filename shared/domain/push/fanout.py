"""Fan-out: choices that look random and can be made again.

Whatever is decided per device (which of several templates, which message id, which made-up token) follows from the
job and the device's `seq_id` alone. So a batch that is tried again, by another worker or another release, comes out the
same.

A job has one 64-bit key per purpose (a hash of its own key), so that two choices for one device are independent, and so
are two jobs' choices. Key and `seq_id` are mixed by the finaliser of splitmix64 (Steele, Lea and Flood, 2014), a
bijection of 64 bits: cheaper than any digest, and even neighbouring ids are spread uniformly.
"""

from collections.abc import Sequence
from hashlib import blake2b

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15
_MULTIPLY_1 = 0xBF58_476D_1CE4_E5B9
_MULTIPLY_2 = 0x94D0_49BB_1331_11EB


def choice_key(job_key: str, purpose: str) -> int:
    """64 bits that belong to this job and this kind of choice."""
    return int.from_bytes(blake2b(job_key.encode(), digest_size=8, person=purpose.encode()).digest())


def mix(key: int, seq_id: int) -> int:
    """64 uniform bits; no two `seq_id` of 64 bits, signed or not, give the same under one key."""
    x = (key + seq_id * _STEP) & _MASK
    x = ((x ^ (x >> 30)) * _MULTIPLY_1) & _MASK
    x = ((x ^ (x >> 27)) * _MULTIPLY_2) & _MASK
    return x ^ (x >> 31)


def pick(names: Sequence[str], key: int, seq_id: int) -> str:
    """One of the names, each with probability 1/len(names) to within 2**-64; a name listed twice counts twice."""
    return names[mix(key, seq_id) % len(names)]


def picks(names: Sequence[str], key: int, seq_ids: Sequence[int]) -> list[str]:
    """`pick` for many devices. It looks at none of them where there is nothing to choose."""
    if len(names) == 1:
        return [names[0]] * len(seq_ids)
    return [pick(names, key, seq_id) for seq_id in seq_ids]
