"""Occurrences as values: ids that are the same for ever, copies of a series' instant, owners as text."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.clock.rules.occurrences import (
    HELD_BACK,
    SHARDS,
    OccurrenceKind,
    Owner,
    handed_over,
    lateness,
    occurrence_id,
    once,
    owner_group,
    read_owner,
    retry_entry,
    series,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def test_an_id_is_the_same_in_every_release() -> None:
    # Stored ids and receivers' memories of message ids depend on it.
    assert occurrence_id("schedule/ns/a", "g", NOON) == "fe3500e22db66b93e167836548948e1a"
    assert series("schedule/ns/a", "g", NOON, accepted_at=NOON).id == "aec97d8e689fae659744f8120db149cb"


def test_what_is_stored_of_an_occurrence_is_the_same_in_every_release() -> None:
    # Schedulers of two releases claim the same shards, and each leaves alone what the other one holds back.
    assert [once("a", "g", NOON + n * SECOND, accepted_at=NOON).shard for n in range(9)] == [
        7,
        2,
        20,
        26,
        18,
        31,
        16,
        30,
        14,
    ]
    assert datetime(9999, 1, 1, tzinfo=UTC) == HELD_BACK
    assert [*OccurrenceKind] == ["once", "series", "offset", "asked"]


def test_a_fresh_entry_has_no_past_and_the_size_of_its_message() -> None:
    for entry in (once("a", "g", NOON, accepted_at=NOON), series("a", "g", NOON, accepted_at=NOON)):
        assert (entry.token, entry.attempts, entry.claims, entry.begun, entry.runs, entry.size) == ("", 0, 0, 0, 0, 0)
        assert (entry.fires_at, entry.visible_at) == (NOON, NOON)


def test_a_copy_of_a_series_instant_is_as_large_as_the_series() -> None:
    moving = series("a", "g", NOON, accepted_at=NOON, size=70)
    assert retry_entry(moving, fires_at=NOON, attempts=1).size == 70
    assert handed_over(moving, "new", leased_until=NOON).size == 70


def test_an_id_tells_owner_generation_and_instant() -> None:
    ids = {
        occurrence_id(owner, generation, due)
        for owner in ("schedule/ns/a", "schedule/ns/ag", "schedule/ns/")
        for generation in ("g", "", "gg")
        for due in (NOON, NOON + MILLISECOND)
    }
    assert len(ids) == 18


def test_a_series_message_is_that_of_its_instant() -> None:
    moving = series("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    single = once("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    moved = replace(moving, due=NOON + HOUR)
    assert moving.id != single.id
    assert moving.message_id == single.message_id == single.id
    assert moved.id == moving.id
    assert moved.message_id == occurrence_id("schedule/ns/a", "g", NOON + HOUR)
    assert (moving.kind, single.kind) == (OccurrenceKind.SERIES, OccurrenceKind.ONCE)


def test_entries_spread_over_all_shards() -> None:
    shards = [once("a", "g", NOON + n * SECOND, accepted_at=NOON).shard for n in range(1000)]
    assert set(shards) == set(range(SHARDS))
    assert max(shards.count(shard) for shard in range(SHARDS)) < 100


def test_a_series_instant_is_tried_again_on_its_own() -> None:
    moving = replace(
        series("a", "g", NOON, accepted_at=NOON - HOUR), token="t", claims=33, begun=2, runs=7, visible_at=NOON + HOUR
    )
    copy = retry_entry(moving, fires_at=NOON + SECOND, attempts=2)
    assert copy == replace(
        once("a", "g", NOON, accepted_at=NOON - HOUR), fires_at=NOON + SECOND, visible_at=NOON + SECOND, attempts=2
    )
    assert copy.message_id == moving.message_id


def test_a_series_instant_is_handed_over_under_a_token_of_its_own() -> None:
    moving = replace(series("a", "g", NOON, accepted_at=NOON - HOUR), token="t", claims=31, begun=2)
    copy = handed_over(moving, "new", leased_until=NOON + HOUR)
    assert copy == replace(once("a", "g", NOON, accepted_at=NOON - HOUR), visible_at=NOON + HOUR, token="new")


@pytest.mark.parametrize(
    ("claims", "begun", "suspect", "poisonous"),
    [
        (20, 0, False, False),
        (21, 0, True, False),
        (10_000, 4, True, False),
        (0, 1, True, False),
        (0, 5, True, True),
    ],
)
def test_claims_make_a_suspect_and_attempts_without_an_end_bury_it(
    claims: int, begun: int, suspect: bool, poisonous: bool
) -> None:
    entry = replace(once("a", "g", NOON, accepted_at=NOON), claims=claims, begun=begun)
    assert (entry.is_suspect, entry.is_poisonous) == (suspect, poisonous)


def test_only_first_attempts_of_schedules_may_be_early() -> None:
    entry = once("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    assert entry.may_be_early
    assert not retry_entry(entry, fires_at=NOON + SECOND, attempts=0).may_be_early
    assert not replace(entry, attempts=1).may_be_early
    assert not once("batch/j/1", "g", NOON, accepted_at=NOON).may_be_early


@pytest.mark.parametrize(
    ("accepted", "now", "late"),
    [
        (-HOUR, -SECOND, 0 * SECOND),
        (-HOUR, 0 * SECOND, 0 * SECOND),
        (-HOUR, 3 * SECOND, 3 * SECOND),
        (0 * SECOND, 3 * SECOND, 2 * SECOND),  # one tick after it was accepted
        (10 * SECOND, 10 * SECOND, 0 * SECOND),
        (10 * SECOND, 15 * SECOND, 4 * SECOND),
        (-SECOND, 1 * SECOND, 1 * SECOND),
    ],
)
def test_lateness_counts_from_the_instant_or_a_tick_after_acceptance(
    accepted: timedelta, now: timedelta, late: timedelta
) -> None:
    assert lateness(NOON, NOON + accepted, NOON + now, SECOND) == late


keys = st.from_regex(r"[A-Za-z0-9\-_.~:]{1,255}", fullmatch=True)
ids = st.uuids().map(str)
owners = st.builds(Owner, st.sampled_from(["schedule", "job", "anything"]), st.text(max_size=9))


@given(owners)
def test_owners_come_back(owner: Owner) -> None:
    assert read_owner(f"{owner.kind}/{owner.id}") == owner


@pytest.mark.parametrize(
    ("owner", "group"),
    [
        ("schedule/ns/key", "schedule/ns"),
        ("schedule/a%2Fb/key", "schedule/a%2Fb"),
        ("job/j.1/start", "job/j.1"),
        ("batch/j.1/7", "batch/j.1"),
    ],
)
def test_a_namespace_and_a_job_are_groups_of_owners(owner: str, group: str) -> None:
    assert owner_group(owner) == group


@pytest.mark.parametrize("text", ["", "job", "/job"])
def test_other_owners_are_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        read_owner(text)
