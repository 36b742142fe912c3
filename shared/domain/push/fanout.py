"""Fan-out: choices that look random and can be made again.

Which of several templates a user gets follows from the job and the user alone, so all devices of one user get the same
one. A device that names no user chooses by its `seq_id`, as what is made per device does (message id, made-up token).
So a batch that is tried again, by another worker or another release, comes out the same.

A job has one 64-bit key per purpose (a hash of its own key), so that two choices for one user are independent, and so
are two jobs' choices. The key and a number of the user's are mixed by the finaliser of splitmix64 (Steele, Lea and
Flood, 2014), a bijection of 64 bits: cheaper than any digest, and even neighbouring numbers are spread uniformly. The
user's number is the CRC-32 of the id, which C makes: users who share one get the same template, in every job.
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
    """64 bits that belong to this job and this kind of choice."""
    return int.from_bytes(blake2b(job_key.encode(), digest_size=8, person=purpose.encode()).digest())


def picks(choices: int, key: int, devices: Devices) -> NDArray[np.int64]:
    """The choice of each device's user among so many, each with the same probability, without a look at any device
    where there is only one."""
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
