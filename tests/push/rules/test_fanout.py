"""Fan-out is uniform, independent between jobs and purposes, and never changes."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.devices import Device, Devices
from shared.push.rules import choices
from tests.push.rules import careful

JOB = "1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11"
# Upper 0.1 % points of chi-square: the inputs are fixed, so a test either always passes or always fails.
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 6: 22.46, 7: 24.32, 8: 26.12}

seq_ids = st.integers(-(2**63), 2**63 - 1)
keys = st.integers(0, 2**64 - 1)


def nameless(seq_ids: Iterable[int]) -> Devices:
    return Devices.of([(seq_id, None, "t", "en") for seq_id in seq_ids])


def chi_square(counts: list[int]) -> float:
    """How far the counts are from being equal."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


def of_users(users: Iterable[str]) -> list[Device]:
    return [(number, user, "t", "en") for number, user in enumerate(users)]


def test_golden_choices() -> None:
    """The published way of choosing: a change here would send other templates on a retry across releases."""
    key = choices.choice_key(JOB, "template")
    assert key == 0x3C06EFD40DB7ADB3
    users = of_users(f"u{number}" for number in range(40))
    assert "".join(careful.pick("abc", key, device) for device in users) == "accccacbbacccaacabcabcaababbaabcccbccbbb"
    nameless = of_users([""] * 40)
    assert (
        "".join(careful.pick("abc", key, device) for device in nameless) == "aaabaabbbbacabcaaacabbabbacbacbabacbcabc"
    )


@given(user=st.text(min_size=1), key=keys, ids=st.lists(seq_ids, min_size=1, max_size=20))
def test_all_devices_of_a_user_get_the_same(user: str, key: int, ids: list[int]) -> None:
    """In whichever batches they stand."""
    together = Devices.of([(seq_id, user, f"t{seq_id}", None) for seq_id in ids])
    alone = [choices.picks(5, key, Devices.of([(seq_id, user, "t", "pt")])).tolist() for seq_id in ids]
    assert choices.picks(5, key, together).tolist() == [picked for [picked] in alone]
    assert len({picked for [picked] in alone}) == 1


def ids_of_users(form: str) -> list[str]:
    made: dict[str, Callable[[int], str]] = {
        "numbers": str,
        "every thousandth": lambda number: str(number * 1_000),
        "uuids": lambda number: str(UUID(int=number * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835 % 2**128)),
        "mails": lambda number: f"user{number}@example.com",
        "short": lambda number: chr(0x4E00 + number),
    }
    return [made[form](number) for number in range(20_000)]


@pytest.mark.parametrize("names", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("form", ["numbers", "every thousandth", "uuids", "mails", "short"])
def test_uniform_over_users_whatever_their_ids(names: int, form: str) -> None:
    key = choices.choice_key(JOB, "template")
    counts = Counter(choices.picks(names, key, Devices.of(of_users(ids_of_users(form)))).tolist())
    assert chi_square([counts[place] for place in range(names)]) < CHI_SQUARE[names - 1]


def test_mixing_is_splitmix64() -> None:
    """Seeded with 0, the published generator begins with these numbers."""
    first = [careful.mix(0, position) for position in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("names", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 7, 1000, 2**32])
def test_uniform_over_any_stride_of_devices_without_users(names: int, stride: int) -> None:
    key = choices.choice_key(JOB, "template")
    counts = Counter(choices.picks(names, key, nameless(range(5, 5 + 20_000 * stride, stride))).tolist())
    assert chi_square([counts[place] for place in range(names)]) < CHI_SQUARE[names - 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [((JOB, "template"), (JOB[:-1] + "2", "template")), ((JOB, "template"), (JOB, "fake token"))],
    ids=["two jobs", "two purposes"],
)
def test_choices_are_independent(one: tuple[str, str], other: tuple[str, str]) -> None:
    pairs = Counter(
        (careful.pick("ab", choices.choice_key(*one), device), careful.pick("abc", choices.choice_key(*other), device))
        for device in of_users(map(str, range(30_000)))
    )
    assert chi_square([pairs[pair] for pair in product("ab", "abc")]) < 20.52  # 5 degrees of freedom


@given(key=keys, ids=st.lists(seq_ids, unique=True, max_size=50))
def test_mixing_never_collides(key: int, ids: list[int]) -> None:
    mixed = {careful.mix(key, seq_id) for seq_id in ids}
    assert len(mixed) == len(ids)
    assert all(0 <= number < 2**64 for number in mixed)


@given(
    names=st.lists(st.text(), min_size=1, max_size=5),
    key=keys,
    devices=st.lists(st.tuples(seq_ids, st.none() | st.text(max_size=3), st.just("t"), st.none()), max_size=20),
)
def test_many_are_picked_as_one(names: list[str], key: int, devices: list[Device]) -> None:
    picked = choices.picks(len(names), key, Devices.of(devices))
    assert [names[place] for place in picked.tolist()] == [careful.pick(names, key, device) for device in devices]
