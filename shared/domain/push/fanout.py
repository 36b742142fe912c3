"""Fan-out: choices that look random and can be made again.

Whatever is decided per device (which of several templates, which message id, which made-up token) follows from the
job and the device's `seq_id` alone. So a batch that is tried again, by another worker or another release, comes out the
same.

A job has one 64-bit key per purpose (a hash of its own key), so that two choices for one device are independent, and so
are two jobs' choices. Key and `seq_id` are mixed by the finaliser of splitmix64 (Steele, Lea and Flood, 2014), a
bijection of 64 bits: cheaper than any digest, and even neighbouring ids are spread uniformly.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E37_79B9_7F4A_7C15
_MULTIPLY_1 = 0xBF58_476D_1CE4_E5B9
_MULTIPLY_2 = 0x94D0_49BB_1331_11EB


def choice_key(job_key: str, purpose: str) -> int:
    """64 bits that belong to this job and this kind of choice."""
    return int.from_bytes(blake2b(job_key.encode(), digest_size=8, person=purpose.encode()).digest())


def picks(choices: int, key: int, seq_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each device's choice among so many, each with probability 1/`choices` to within 2**-64, without a look at any
    device where there is only one."""
    if choices == 1:
        return np.zeros(len(seq_ids), np.int64)
    x = np.uint64(key) + seq_ids.view(np.uint64) * np.uint64(_STEP)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MULTIPLY_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MULTIPLY_2)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(choices)).astype(np.int64)
