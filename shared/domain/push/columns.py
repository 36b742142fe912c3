"""The different parts of a batch's records: the device's token, message id and user id, as columns."""

from binascii import hexlify
from collections.abc import Sequence
from hashlib import shake_128

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.domain.audience.devices import Devices, Keys
from shared.domain.jobs.templates import dumps

_LAST_BYTES = 6


class MessageIds(Struct, frozen=True):
    """Message ids in two columns: the last group of each, of 12 characters, and the text before it."""

    firsts: Sequence[bytes]
    lasts: Sequence[bytes]


def message_ids(key: int, devices: Devices) -> MessageIds:
    """A UUID (version 8) for each device: always the same, and unique within the job, for every `seq_id` of 64 bits.

    The last group is the low 48 bits of `seq_id`; its high 16 are folded into the second group; the rest is the job's.
    `seq_id` has no unique index, and a receiver may drop a repeated id. So the id of a device that shares its `seq_id`
    also depends on its token and user, and not on its place, because these rows come in any order.
    """
    keys = devices.keys
    firsts = [_first_groups(key, 0)] * len(keys)
    for place in np.flatnonzero(keys >> 48).tolist():
        firsts[place] = _first_groups(key, int(keys[place]) >> 48)
    for place in np.flatnonzero(_are_shared(keys)).tolist():
        own = int.from_bytes(shake_128(devices.tokens[place] + b"\0" + devices.users[place]).digest(8))
        firsts[place] = _first_groups(key ^ own, int(keys[place]) >> 48)
    low = keys.astype(">i8").view(np.uint8).reshape(-1, 8)[:, -_LAST_BYTES:]
    return MessageIds(firsts, hexlify(low.tobytes(), "-", _LAST_BYTES).split(b"-"))


def escape_texts(texts: Sequence[bytes]) -> Sequence[bytes]:
    """Each text in the form for a JSON string, without quotes.

    One look at all texts together finds those with characters to escape, which are nearly always none.
    """
    joined = np.frombuffer(b"".join(texts), np.uint8)
    found = np.flatnonzero((joined < ord(" ")) | (joined == ord('"')) | (joined == ord("\\")))
    if not found.size:
        return texts
    ends = np.cumsum([len(text) for text in texts])
    escaped = list(texts)
    for place in np.unique(np.searchsorted(ends, found, side="right")).tolist():
        escaped[place] = dumps(texts[place].decode())[1:-1].encode()
    return escaped


def _are_shared(keys: Keys) -> NDArray[np.bool_]:
    """A flag for each device whose key another device has. In ascending keys the neighbours show it."""
    if not np.all(keys[1:] >= keys[:-1]):
        _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        repeated: NDArray[np.bool_] = counts[inverse] > 1
        return repeated
    same = keys[1:] == keys[:-1]
    shared = np.zeros(len(keys), np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return shared


def _first_groups(key: int, high: int) -> bytes:
    second = (key >> 16 ^ high) & 0xFFFF
    return b"%08x-%04x-8%03x-%04x-" % (key >> 32, second, key >> 4 & 0xFFF, 0x8000 | key & 0x3FFF)
