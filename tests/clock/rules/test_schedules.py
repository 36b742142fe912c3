"""Schedules as values: what is due when, what is to be done with it, and which contents are the same."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import HttpCallback, RabbitCallback
from shared.clock.rules.following import (
    Verdict,
    allowed_lateness,
    judge,
    next_occurrence,
    occurrences,
    verdict_of,
)
from shared.clock.rules.instants import due_instants, find_upcoming, last_due, spread
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, once, series
from shared.clock.rules.recurrence import Cron, Every
from shared.clock.rules.schedules import (
    TIMESTAMPS,
    Definition,
    Misfire,
    MisfireMode,
    Schedule,
    ScheduleState,
    carillon_headers,
    check_key,
    digest,
    schedule_id,
)
from shared.clock.schedules import skipped_of
from shared.core.errors import Invalid

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
CALLBACK = HttpCallback(payload="1", url="https://example.com", headers={"a": "1", "b": "2"})
LIST = Definition(callback=CALLBACK, instants=(NOON, NOON + HOUR, NOON + 2 * HOUR))
HOURLY = Definition(callback=CALLBACK, recurrence=Every(3600, NOON))
FIRE, SKIP = Misfire(), Misfire(MisfireMode.SKIP)


def made(definition: Definition = LIST, *, accepted_at: datetime = NOON - HOUR, key: str = "a") -> Schedule:
    return Schedule(
        id=schedule_id("ns", key),
        namespace="ns",
        key=key,
        generation="g",
        digest=digest(definition),
        definition=definition,
        created_at=accepted_at,
        accepted_at=accepted_at,
    )


def test_what_is_stored_and_shown_of_a_schedule_has_the_same_words_in_every_release() -> None:
    assert [*ScheduleState] == ["active", "paused", "finished"]
    assert [*MisfireMode] == ["fire", "skip", "fire_within_seconds"]


def test_callers_are_told_how_many_instants_a_list_may_have() -> None:
    assert TIMESTAMPS == 10_000


def test_a_schedule_is_active_paused_or_finished() -> None:
    told = [
        (each.is_active, each.is_paused, each.is_finished) for each in (replace(made(), state=s) for s in ScheduleState)
    ]
    assert told == [(True, False, False), (False, True, False), (False, False, True)]


def test_who_says_nothing_of_it_gets_ten_attempts_and_what_is_found_late_fires() -> None:
    plain = Definition(callback=CALLBACK)
    assert plain.retry == Retry(attempts=10, first_delay_seconds=5.0, factor=3.0, cap_seconds=3_600.0)
    assert plain.misfire == Misfire(MisfireMode.FIRE, 0.0)
    assert spread(plain, "a") == timedelta(0)


@pytest.mark.parametrize(
    ("namespace", "id"),
    [
        ("ns", "ns/a"),
        ("me@example.com", "me@example.com/a"),
        ("urn:x", "urn:x/a"),
        ("a/b", "a%2Fb/a"),
        ("ä%", "%C3%A4%25/a"),
    ],
)
def test_an_id_begins_with_one_word_for_its_namespace(namespace: str, id: str) -> None:
    assert schedule_id(namespace, "a") == id


def due(schedule: Schedule, *, kind: OccurrenceKind = OccurrenceKind.ONCE, attempts: int = 0) -> Occurrence:
    entry = once(schedule.owner, schedule.generation, NOON, accepted_at=schedule.accepted_at, kind=kind)
    return replace(entry, attempts=attempts)


def verdict(schedule: Schedule | None, occurrence: Occurrence, late: timedelta = HOUR) -> Verdict:
    """The occurrence was accepted an hour before it was due."""
    return judge(schedule, occurrence, occurrence.due + late, tick=SECOND, misfire_after=MINUTE)


def test_what_belongs_to_nobody_waits_a_while_and_is_void() -> None:
    schedule = made()
    replaced = replace(schedule, generation="h", state=ScheduleState.PAUSED)
    for there, kind in itertools.product((None, replaced), (OccurrenceKind.ONCE, OccurrenceKind.ASKED)):
        assert verdict(there, due(schedule, kind=kind), -MINUTE) is Verdict.WAIT
        assert verdict(there, due(schedule, kind=kind), timedelta()) is Verdict.VOID


def test_a_pause_holds_all_but_what_is_asked_for() -> None:
    schedule = replace(made(replace(LIST, misfire=SKIP)), state=ScheduleState.PAUSED)
    assert verdict(schedule, due(schedule)) is Verdict.HOLD
    assert verdict(schedule, due(schedule, attempts=3)) is Verdict.HOLD
    assert verdict(schedule, due(schedule, kind=OccurrenceKind.SERIES)) is Verdict.HOLD
    assert verdict(schedule, due(schedule, kind=OccurrenceKind.ASKED)) is Verdict.FIRE


def test_the_misfire_rule_is_for_first_attempts_that_are_late() -> None:
    schedule = made(replace(LIST, misfire=SKIP))
    assert verdict(schedule, due(schedule)) is Verdict.SKIP
    assert verdict(schedule, due(schedule), MINUTE) is Verdict.FIRE
    assert verdict(schedule, due(schedule, attempts=1)) is Verdict.FIRE
    assert verdict(schedule, due(schedule, kind=OccurrenceKind.ASKED)) is Verdict.FIRE
    assert verdict(made(), due(schedule)) is Verdict.FIRE


@pytest.mark.parametrize(
    ("rule", "late", "gone"),
    [
        (FIRE, timedelta(days=1000), False),
        (SKIP, MINUTE, False),
        (SKIP, MINUTE + timedelta(milliseconds=1), True),
        (Misfire(MisfireMode.WITHIN, 2.5), timedelta(seconds=2.5), False),
        (Misfire(MisfireMode.WITHIN, 2.5), timedelta(seconds=2.501), True),
        (Misfire(MisfireMode.WITHIN, 7200), HOUR, False),
        (Misfire(MisfireMode.WITHIN, 0), timedelta(0), False),
    ],
)
def test_a_rule_lets_go_what_is_later_than_it_says(rule: Misfire, late: timedelta, gone: bool) -> None:
    definition = replace(LIST, misfire=rule)
    assert verdict(made(definition), due(made(definition)), late) is (Verdict.SKIP if gone else Verdict.FIRE)


def test_what_stands_is_not_asked_how_late_it_is() -> None:
    """The worker makes a call that was in time when it was handed over."""
    schedule = made(replace(LIST, misfire=Misfire(MisfireMode.WITHIN, 5)))
    entry = due(schedule)
    assert verdict(schedule, entry) is Verdict.SKIP
    assert verdict_of(schedule, entry, NOON + HOUR) is Verdict.FIRE
    assert verdict_of(replace(schedule, state=ScheduleState.PAUSED), entry, NOON) is Verdict.HOLD
    assert verdict_of(None, entry, NOON) is Verdict.VOID


def test_a_series_that_was_held_up_passes_over_what_its_rule_lets_go() -> None:
    late = series("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    now = NOON + timedelta(days=100)
    allowed = allowed_lateness(SKIP, MINUTE)
    assert allowed is not None
    moved = next_occurrence(HOURLY, "a", late, passed_over=now - allowed)
    assert moved is not None
    assert (moved.due, moved.runs, moved.accepted_at) == (now, 1, NOON - HOUR)
    within = allowed_lateness(Misfire(MisfireMode.WITHIN, 7200), MINUTE)
    assert within is not None
    moved = next_occurrence(HOURLY, "a", late, passed_over=now - within)
    assert moved is not None
    assert moved.due == now - HOUR
    counted = next_occurrence(replace(HOURLY, max_occurrences=9), "a", late, passed_over=now - allowed)
    assert counted is not None
    assert counted.due == NOON + HOUR
    assert allowed_lateness(FIRE, MINUTE) is None


def test_a_list_is_divided_at_the_present() -> None:
    for accepted_at, past in ((NOON - SECOND, 0), (NOON, 1), (NOON + 2 * HOUR, 3)):
        schedule = made(accepted_at=accepted_at)
        assert [each.due for each in occurrences(schedule)] == list(LIST.instants[past:])
        assert skipped_of(schedule) == LIST.instants[:past]
    assert skipped_of(made(HOURLY)) == ()


def test_a_list_has_an_entry_for_each_instant_ahead() -> None:
    schedule = made(accepted_at=NOON)
    assert occurrences(schedule) == [
        once("schedule/ns/a", "g", NOON + hours * HOUR, accepted_at=NOON, size=1) for hours in (1, 2)
    ]
    assert occurrences(made(accepted_at=NOON + 2 * HOUR)) == []
    assert last_due(LIST, "a") == NOON + 2 * HOUR


def test_a_recurrence_has_one_entry_at_its_first_instant_ahead() -> None:
    accepted = NOON + 90 * MINUTE
    assert occurrences(made(HOURLY, accepted_at=accepted)) == [
        series("schedule/ns/a", "g", NOON + 2 * HOUR, accepted_at=accepted, size=1)
    ]
    over = replace(HOURLY, recurrence=Every(3600, NOON, ends_at=NOON))
    assert occurrences(made(over, accepted_at=accepted)) == []
    assert last_due(HOURLY, "a") is None


def test_a_series_goes_on_from_its_instant_and_forgets_its_attempts() -> None:
    first = series("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    worn = replace(first, token="t", attempts=4, claims=22, begun=2, fires_at=NOON + MINUTE, runs=3)
    then = NOON + HOUR
    assert next_occurrence(HOURLY, "a", worn) == replace(first, due=then, fires_at=then, visible_at=then, runs=4)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_series_ends_after_its_occurrences(limit: int) -> None:
    definition = replace(HOURLY, max_occurrences=limit)
    current: Occurrence | None = series("schedule/ns/a", "g", NOON, accepted_at=NOON - HOUR)
    instants = []
    while current is not None:
        instants.append(current.due)
        current = next_occurrence(definition, "a", current)
    assert instants == [NOON + n * HOUR for n in range(limit)]
    assert list(due_instants(definition, "a", NOON - SECOND)) == instants
    assert list(due_instants(definition, "a", NOON, runs=1)) == instants[1:]


def test_a_series_ends_at_its_bound() -> None:
    definition = replace(HOURLY, recurrence=Every(3600, NOON, ends_at=NOON + HOUR))
    last = series("schedule/ns/a", "g", NOON + HOUR, accepted_at=NOON)
    assert next_occurrence(definition, "a", replace(last, due=NOON)) is not None
    assert next_occurrence(definition, "a", last) is None
    assert find_upcoming(definition, "a", NOON + HOUR) is None
    assert find_upcoming(LIST, "a", NOON - HOUR) is None


def test_nothing_is_upcoming_behind_the_last_instant() -> None:
    over = replace(HOURLY, recurrence=Every(3600, NOON, ends_at=NOON + HOUR))
    assert list(due_instants(over, "a", NOON)) == [NOON + HOUR]
    assert list(due_instants(LIST, "a", NOON + 2 * HOUR)) == []


def test_upcoming_of_a_list_and_of_an_endless_recurrence() -> None:
    assert list(due_instants(LIST, "a", NOON)) == [NOON + HOUR, NOON + 2 * HOUR]
    assert list(itertools.islice(due_instants(HOURLY, "a", NOON), 3)) == [NOON + n * HOUR for n in (1, 2, 3)]


KEYS = [f"key-{n}" for n in range(300)]


def test_a_window_spreads_keys_below_its_length() -> None:
    windowed = replace(LIST, window_seconds=60.0)
    delays = [spread(windowed, key) for key in KEYS]
    assert all(timedelta(0) <= delay < MINUTE for delay in delays)
    assert len(set(delays)) > 250
    assert min(delays) < 5 * SECOND
    assert max(delays) > 55 * SECOND
    assert [spread(windowed, key) for key in KEYS] == delays
    assert spread(LIST, "a") == timedelta(0)


@pytest.mark.parametrize("key", KEYS[:5])
def test_a_window_delays_every_instant_by_the_same(key: str) -> None:
    windowed = replace(LIST, window_seconds=60.0)
    delay = spread(windowed, key)
    later = [instant + delay for instant in LIST.instants]
    assert [each.due for each in occurrences(made(windowed, key=key))] == later
    assert list(due_instants(windowed, key, NOON - HOUR)) == later
    assert list(due_instants(windowed, key, later[0])) == later[1:]
    assert list(due_instants(windowed, key, later[0] - timedelta(milliseconds=1))) == later
    assert last_due(windowed, key) == later[-1]
    # An instant that is past is not fired although its delay ends ahead.
    assert [each.due for each in occurrences(made(windowed, key=key, accepted_at=NOON))] == later[1:]


@pytest.mark.parametrize("key", KEYS[:5])
def test_a_window_delays_a_series_without_leaving_an_instant_out(key: str) -> None:
    windowed = replace(HOURLY, window_seconds=3600.0)
    delay = spread(windowed, key)
    assert delay > timedelta(0)
    [first] = occurrences(made(windowed, key=key, accepted_at=NOON - SECOND))
    assert first.due in {NOON + delay, NOON + delay - HOUR}
    found = list(itertools.islice(due_instants(windowed, key, NOON + delay - HOUR), 3))
    assert found == [NOON + delay + n * HOUR for n in range(3)]
    moved = next_occurrence(windowed, key, replace(first, due=NOON + delay))
    assert moved is not None
    assert moved.due == NOON + delay + HOUR


OTHERS = [
    replace(LIST, callback=replace(CALLBACK, payload="2")),
    replace(LIST, callback=replace(CALLBACK, payload="1 ")),
    replace(LIST, callback=replace(CALLBACK, headers={"a": "2", "b": "1"})),
    replace(LIST, callback=RabbitCallback(payload="1", queue="q")),
    replace(LIST, instants=LIST.instants[:2]),
    replace(LIST, window_seconds=1.0),
    replace(LIST, misfire=SKIP),
    replace(LIST, retry=Retry(attempts=3)),
    replace(LIST, labels={"a": "b"}),
    replace(LIST, labels={"b": "a"}),
    replace(LIST, max_occurrences=3),
    HOURLY,
    replace(HOURLY, recurrence=Every(3600, NOON + SECOND)),
    replace(HOURLY, recurrence=Cron("0 * * * *")),
    replace(HOURLY, recurrence=Cron("0 * * * *", "Europe/Berlin")),
]


def test_a_digest_tells_contents_apart() -> None:
    assert len({digest(each) for each in [LIST, *OTHERS]}) == 1 + len(OTHERS)


def test_a_digest_does_not_regard_the_order_of_keys() -> None:
    turned = replace(CALLBACK, headers={"b": "2", "a": "1"})
    assert list(turned.headers) != list(CALLBACK.headers)
    one, other = replace(LIST, labels={"x": "1", "y": "2"}), replace(LIST, labels={"y": "2", "x": "1"})
    assert digest(one) == digest(replace(other, callback=turned))


def test_a_digest_is_the_same_in_every_release() -> None:
    # A repeated request after an upgrade must not become a conflict.
    assert digest(LIST) == "c655e80a00a05a7e3e30c2da63d58cb72cdca903a1189c3a63948fbf2ff19e03"


@given(st.from_regex(r"[A-Za-z0-9\-_.~:]{1,255}", fullmatch=True))
def test_a_key_that_can_be_one_is_taken(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize("key", ["", "a" * 256, "a/b", "a b", "ä", "a\n", "\x7f", "a%2F"])
def test_a_key_that_cannot_be_one_is_refused(key: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_key(key)
    assert refused.value.field == "key"


def test_a_message_tells_its_key_its_instant_and_its_attempt() -> None:
    schedule = made()
    assert carillon_headers(due(schedule, attempts=2), schedule) == {
        "carillon-key": "a",
        "carillon-due": "2030-01-01T12:00:00Z",
        "carillon-attempt": "3",
    }
