"""Keys of devices: packed and unpacked, and divided among zones."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.audiences import DeviceList, PushTable
from shared.audience.rules.devices import Keys
from shared.audience.rules.zones import REST, ZoneRules, zone_of
from shared.jobs.rules.dividing import FoundDevices, find_devices, next_step, pack_keys, unpack_keys
from shared.jobs.rules.groups import Division, Step

OFFSETS = ("-0300", "+0000", "+0100")
RULES = ZoneRules(OFFSETS, 1_924_365_600 * 10**9)
SIZE = 4

every_key = st.integers(-(2**63) + 1, 2**63 - 1)
texts = st.sampled_from([*OFFSETS, "-0000", "+0200", "CET", "", None])


@given(st.lists(every_key).map(sorted))
def test_keys_come_back_as_they_were_packed(keys: list[int]) -> None:
    assert unpack_keys(pack_keys(np.array(keys, np.int64))).tolist() == keys


def test_keys_that_lie_close_together_take_little_space() -> None:
    chance = np.random.default_rng(1)
    keys = np.sort(chance.choice(225_000, 5_000, replace=False)) + 10**12
    assert len(pack_keys(keys.astype(np.int64))) < 7_500


@given(st.lists(st.tuples(st.one_of(st.integers(1, 9), every_key), texts)))
def test_a_key_belongs_to_the_first_of_its_zones(rows: list[tuple[int, str | None]]) -> None:
    by_text = [
        (text, np.array(sorted(key for key, its in rows if its == text), np.int64))
        for text in {text for _, text in rows}
    ]
    found = find_devices(0, by_text, RULES).keys
    order = [*OFFSETS, REST]
    for key in {key for key, _ in rows}:
        zones = sorted((zone_of(text, RULES) for its, text in rows if its == key), key=order.index)
        assert {zone: keys.tolist().count(key) for zone, keys in found.items() if key in keys} == {zones[0]: len(zones)}
    assert all(keys.tolist() == sorted(keys.tolist()) for keys in found.values())


@given(st.lists(st.lists(st.integers(0, 6), max_size=20), min_size=1, max_size=5))
def test_lists_have_the_same_size_but_for_keys_that_are_shared(found: list[list[int]]) -> None:
    """And all that is left over in the end is one more list."""
    division, step, cut = Division(id="d", source=PushTable(9), size=SIZE), None, []
    steps = [np.sort(np.array(keys, np.int64)) + 10 * number for number, keys in enumerate(found)]
    for number, keys in enumerate(steps):
        last = number == len(steps) - 1
        step, lists = next_step(division, step, FoundDevices(number, {REST: keys}, unknown=2, last=last), attempt="a")
        assert [keys.size for keys in lists.values()] == step.sizes.get(REST, [])
        cut += [keys.tolist() for keys in lists.values()]
    assert step is not None
    assert (step.left, step.unknown, step.edge) == ({}, 2 * len(steps), len(steps) - 1)
    assert [key for keys in cut for key in keys] == np.concatenate(steps).tolist()
    assert all(len({*early} & {*late}) == 0 for early, late in pairwise(cut))
    assert all(len(keys) >= SIZE and keys.index(keys[-1]) < SIZE for keys in cut[:-1])


def keys_of(*keys: int) -> Keys:
    return np.array(keys, np.int64)


def test_a_key_that_stands_alone_in_two_zones_belongs_to_the_first() -> None:
    found = find_devices(0, [("+0100", keys_of(7)), ("+0000", keys_of(7))], RULES)
    assert {zone: keys.tolist() for zone, keys in found.keys.items()} == {"+0000": [7, 7]}


def test_what_is_left_over_for_a_zone_waits_until_more_is_found_for_it() -> None:
    division = Division(id="d", source=PushTable(9), size=3)
    first, lists = next_step(division, None, FoundDevices(10, {"+0100": keys_of(1, 2), REST: keys_of(3)}), attempt="a")
    assert lists == {}
    assert first.sizes == {}
    second, lists = next_step(division, first, FoundDevices(20, {REST: keys_of(11, 12)}), attempt="b")
    assert [keys.tolist() for keys in lists.values()] == [[3, 11, 12]]
    assert second.left.keys() == {"+0100"}
    third, lists = next_step(division, second, FoundDevices(30, {"+0100": keys_of(21, 22)}, last=True), attempt="c")
    assert [keys.tolist() for keys in lists.values()] == [[1, 2, 21], [22]]
    assert [(step.number, step.last) for step in (first, second, third)] == [(0, False), (1, False), (2, True)]
    assert third.left == {}


def test_where_nothing_is_left_over_the_last_step_makes_no_list_of_nobody() -> None:
    division = Division(id="d", source=PushTable(9), size=2)
    step, lists = next_step(division, None, FoundDevices(5, {REST: keys_of(4, 5)}, last=True), attempt="a")
    assert (step.sizes, len(lists)) == ({REST: [2]}, 1)


def test_steps_and_lists_are_found_again_in_every_release() -> None:
    division = Division(id="d", source=PushTable(9), size=1)
    before = Step(division="d", number=11, attempt="a", edge=3)
    assert (before.unknown, before.last, before.sizes, before.left) == (0, False, {}, {})
    step, lists = next_step(division, before, FoundDevices(5, {"+0100": keys_of(4, 4, 5)}), attempt="b")
    assert step.id == "d/00000012"
    assert step.lists("+0100") == [(DeviceList("d/00000012/b/+0100/0"), 2), (DeviceList("d/00000012/b/+0100/1"), 1)]
    assert [*lists] == [found for found, _ in step.lists("+0100")]
    assert step.lists(REST) == []
    assert step.unknown == 0


def test_a_division_keeps_three_values_of_the_rest_the_most_frequent_of_a_step_first() -> None:
    division = Division(id="d", source=PushTable(9), size=2)
    found = find_devices(9, [("x", keys_of(1)), ("+0100", keys_of(2)), (None, keys_of(3, 4))], RULES)
    step, _ = next_step(division, None, found, attempt="a")
    assert step.rest_values == (None, "x")
    more = find_devices(19, [("y", keys_of(11)), ("x", keys_of(12)), ("z", keys_of(13))], RULES, last=True)
    step, _ = next_step(division, step, more, attempt="b")
    assert step.rest_values == (None, "x", "y")
