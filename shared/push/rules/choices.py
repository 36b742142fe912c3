"""Choices that look random and are repeatable: a user's template, the users held out, and a dry run's made-up tokens.

The job and the user alone decide which of several templates a user gets, and whether the user is held out, so all
devices of one user get the same. A device without a user chooses by its `seq_id`, as for its message id and made-up
token. So a batch that is repeated, by another worker or another release, is the same.

A job has one 64-bit key for each purpose (a hash of the job's key), so that two choices for one user are
independent, and so are two jobs' choices. The finaliser of splitmix64 (Steele, Lea and Flood, 2014), a bijection of
64 bits, mixes the key and the user's number: it is cheaper than any digest, and spreads even neighbouring numbers
uniformly. The user's number is the CRC-32 of the id, which C computes: users who share one get the same template,
in every job.

For the control group each user has a place in [0, 1), uniform over the users of a job. If all devices of a user are
in one batch, the users with the lowest places are held out, by the share rounded up. If they may be in several,
those whose place is below the share are.
"""

from collections.abc import Collection
from fractions import Fraction
from hashlib import blake2b, shake_128
from math import ceil
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shared.audience.rules.devices import Devices, Keys
from shared.push.rules.records import SERVICES

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


ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_CHARACTERS = bytes(ALPHABET[byte % len(ALPHABET)] for byte in range(256))


def fake_tokens(service: str, key: int, keys: Keys) -> list[bytes]:
    """A token for each device that no real device has, as long as a real one after `FAKE-`."""
    length = SERVICES[service].token_characters
    seed = shake_128(key.to_bytes(8))
    return [_fake_token(seed, seq_id, length) for seq_id in keys.tolist()]


def _fake_token(seed: Any, seq_id: int, length: int) -> bytes:
    stream = seed.copy()
    stream.update(seq_id.to_bytes(8, signed=True))
    digest: bytes = stream.digest(length)
    return b"FAKE-" + digest.translate(_CHARACTERS)
