"""Fan-out: choices that look random and are repeatable.

The job and the user alone decide which of several templates a user gets, so all devices of one user get the same one. A
device without a user chooses by its `seq_id`, as for its message id and made-up token. So a batch that is repeated, by
another worker or another release, is the same.

A job has one 64-bit key for each purpose (a hash of the job's key), so that two choices for one user are independent,
and so are two jobs' choices. The finaliser of splitmix64 (Steele, Lea and Flood, 2014), a bijection of 64 bits, mixes
the key and the user's number: it is cheaper than any digest, and spreads even neighbouring numbers uniformly. The
user's number is the CRC-32 of the id, which C computes: users who share one get the same template, in every job.
"""

from hashlib import blake2b
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shared.domain.audience.devices import Devices

_STEP = 0x9E37_79B9_7F4A_7C15
_MULTIPLY_1 = 0xBF58_476D_1CE4_E5B9
_MULTIPLY_2 = 0x94D0_49BB_1331_11EB


def choice_key(job_key: str, purpose: str) -> int:
    """64 bits for this job and this kind of choice."""
    return int.from_bytes(blake2b(job_key.encode(), digest_size=8, person=purpose.encode()).digest())


def picks(choices: int, key: int, devices: Devices) -> NDArray[np.int64]:
    """The choice of each device's user among `choices` equally probable ones; a single choice needs no look at the
    devices."""
    if choices == 1:
        return np.zeros(len(devices), np.int64)
    x = np.uint64(key) + _numbers(devices).view(np.uint64) * np.uint64(_STEP)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MULTIPLY_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MULTIPLY_2)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(choices)).astype(np.int64)


def _numbers(devices: Devices) -> NDArray[np.int64]:
    numbers = np.fromiter(map(crc32, devices.users), np.int64, len(devices))
    if b"" not in devices.users:
        return numbers
    return np.where([user == b"" for user in devices.users], devices.keys, numbers)
