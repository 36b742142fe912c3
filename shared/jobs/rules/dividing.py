"""The steps of a division, computed over all keys at once (`shared.jobs.rules.groups`)."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from shared.audience.rules.audiences import DeviceList
from shared.audience.rules.devices import NO_KEYS, Keys
from shared.audience.rules.zones import REST, SHOWN_VALUES, ZoneRules, zone_of
from shared.jobs.rules.groups import Division, Step


class FoundDevices(Struct, frozen=True):
    """The devices of a part of the audience, up to its `edge`, by zone, its `unknown` users, and the values of `tz` in
    the zone `REST`, the most frequent first. `last`: no part follows."""

    edge: int
    keys: Mapping[str, Keys]
    unknown: int = 0
    rest_values: Sequence[str | None] = ()
    last: bool = False


def next_step(
    division: Division, before: Step | None, found: FoundDevices, *, attempt: str
) -> tuple[Step, dict[DeviceList, Keys]]:
    """The step after `before`, and its lists."""
    cut = {zone: _cut(keys, division.size, to_the_end=found.last) for zone, keys in _with_left(before, found).items()}
    values = dict.fromkeys([*(() if before is None else before.rest_values), *found.rest_values])
    step = Step(
        division=division.id,
        number=0 if before is None else before.number + 1,
        attempt=attempt,
        edge=found.edge,
        sizes={zone: [keys.size for keys in lists] for zone, (lists, _) in cut.items() if lists},
        left={zone: pack_keys(left) for zone, (_, left) in cut.items() if left.size},
        unknown=found.unknown + (0 if before is None else before.unknown),
        rest_values=tuple(values)[:SHOWN_VALUES],
        last=found.last,
    )
    lists: dict[DeviceList, Keys] = {}
    for zone, (parts, _) in cut.items():
        lists |= zip((list_ for list_, _ in step.lists(zone)), parts, strict=True)
    return step, lists


def _with_left(before: Step | None, found: FoundDevices) -> dict[str, Keys]:
    left = {} if before is None else {zone: unpack_keys(content) for zone, content in before.left.items()}
    zones = sorted({*left, *found.keys})
    both = ((left.get(zone, NO_KEYS), found.keys.get(zone, NO_KEYS)) for zone in zones)
    return {zone: np.sort(np.concatenate(keys), kind="stable") for zone, keys in zip(zones, both, strict=True)}


def find_devices(
    edge: int, keys: Iterable[tuple[str | None, Keys]], rules: ZoneRules, *, unknown: int = 0, last: bool = False
) -> FoundDevices:
    """The keys with each text, by zone. Rows that share a key belong together, even with different texts: to the first
    of their zones."""
    parts: defaultdict[str, list[Keys]] = defaultdict(list)
    rest: Counter[str | None] = Counter()
    for text, keys_of_text in keys:
        zone = zone_of(text, rules)
        parts[zone].append(keys_of_text)
        if zone == REST:
            rest[text] += keys_of_text.size
    found = {zone: np.sort(np.concatenate(parts[zone])) for zone in (*rules.offsets, REST) if zone in parts}
    every = np.sort(np.concatenate([NO_KEYS, *found.values()]))
    by_zone = found if (every[1:] != every[:-1]).all() else _put_together(found)
    values = [text for text, _ in rest.most_common(SHOWN_VALUES)]
    return FoundDevices(edge, by_zone, unknown, values, last)


def _put_together(found: Mapping[str, Keys]) -> dict[str, Keys]:
    """The same keys, each as often as before, in the first of the zones that have it."""
    zones = list(found)
    places = np.repeat(np.arange(len(zones)), [keys.size for keys in found.values()])
    every = np.concatenate(list(found.values()))
    order = every.argsort(kind="stable")  # of equal keys, that of the first zone comes first
    every, places = every[order], places[order]
    first = np.flatnonzero(np.append(True, every[1:] != every[:-1]))
    places = np.repeat(places[first], np.diff(first, append=every.size))
    return {zones[place]: every[places == place] for place in np.unique(places)}


def pack_keys(keys: Keys) -> bytes:
    """Ascending keys, packed: about a byte each if they are close together.

    The differences are packed: all their first bytes, then all their second bytes, and so on.
    """
    steps = np.diff(keys, prepend=np.int64(0))
    return zlib.compress(steps.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes(), 1)


def unpack_keys(content: bytes) -> Keys:
    columns = np.frombuffer(zlib.decompress(content), np.uint8).reshape(8, -1)
    return np.cumsum(np.ascontiguousarray(columns.T).view("<i8").ravel(), dtype=np.int64)


def _cut(keys: Keys, size: int, *, to_the_end: bool) -> tuple[list[Keys], Keys]:
    """Lists of `size` keys, and the rest. Equal keys stay together, so a list may be longer by them."""
    lists = []
    while keys.size >= size:
        bound = int(keys.searchsorted(keys[size - 1], side="right"))
        lists.append(keys[:bound])
        keys = keys[bound:]
    if to_the_end and keys.size:
        return [*lists, keys], NO_KEYS
    return lists, keys
