"""The zones of a localized push hold every offset there is; each user is in one; starts are right to the minute."""

import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.audience.zones import NEXT_DAY, REST, SKIP, offsets, starts, texts, zone_of, zone_starts, zones
from shared.domain.errors import Invalid
from shared.domain.time_zones import time_zone

HOUR_NS = 3_600 * 1_000_000_000
MINUTE_NS = HOUR_NS // 60
DAY_NS = 24 * HOUR_NS
NOON = 1_800_000_000 * 1_000_000_000
NAMES = files("tzdata").joinpath("zones").read_text().split()

places = st.sampled_from(NAMES).map(time_zone)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
grid = st.builds("{}{:02}{:02}".format, st.sampled_from("+-"), st.integers(0, 15), st.integers(0, 59))
instants = st.integers(0, 2**62)


def offset_of(instant: datetime, place: ZoneInfo) -> str:
    return instant.astimezone(place).strftime("%z")


@given(places, moments)
def test_the_offset_of_every_place_at_any_time_is_a_zone(place: ZoneInfo, moment: datetime) -> None:
    assert offset_of(moment, place) in offsets()


def test_no_offset_of_the_years_around_now_is_forgotten() -> None:
    # No place changes its offset twice within a week, so that nothing hides between two of these instants.
    weeks = [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(weeks=week) for week in range(3 * 53)]
    in_force = {offset_of(week, time_zone(name)) for name in NAMES for week in weeks}
    assert in_force <= set(offsets())


@pytest.mark.parametrize("offset", ["+0545", "+0530", "+1245", "+1345", "+0845", "-0330", "-0230", "-0930", "+1030"])
def test_half_and_quarter_hours_are_zones(offset: str) -> None:
    assert offset in offsets()


@pytest.mark.parametrize("offset", ["-0430", "+0830", "+1130"])
def test_an_offset_that_a_place_gave_up_in_this_century_still_has_its_users(offset: str) -> None:
    assert zone_of(offset) == offset


def test_zones_go_from_west_to_east_and_end_with_everybody_else() -> None:
    assert (zones()[0], zones()[-2], zones()[-1]) == ("-1200", "+1400", REST)
    assert all(re.fullmatch(r"[+-][01][0-9][0-5][0-9]", offset) for offset in offsets())
    assert [starts(0, zone, published_sign=True) for zone in offsets()] == sorted(
        starts(0, zone, published_sign=True) for zone in set(offsets())
    )


@given(st.one_of(grid, st.sampled_from(offsets()), st.none(), st.text(max_size=8)))
def test_a_user_belongs_to_exactly_one_zone(tz: str | None) -> None:
    named = [zone for zone in offsets() if tz in texts(zone)]
    rest = [REST] if tz is None or tz not in texts(REST) else []
    assert [*named, *rest] == [zone_of(tz)]


def test_the_words_for_zones_and_strategies_are_the_same_in_every_release() -> None:
    # The first is stored with jobs, the others are what callers write.
    assert [REST, SKIP, NEXT_DAY] == ["rest", "skip", "nextDay"]


def test_both_ways_to_write_zero_are_utc() -> None:
    assert zone_of("+0000") == zone_of("-0000") == "+0000"
    assert "-0000" not in zones()


@pytest.mark.parametrize("tz", [None, "", "UTC", "+05:45", "+0546", "0545", "+0545 ", "Europe/Paris", "+9999"])
def test_a_missing_or_unreadable_zone_belongs_to_the_rest(tz: str | None) -> None:
    assert zone_of(tz) == REST


@pytest.mark.parametrize(
    ("zone", "minutes"), [("+0545", -345), ("-0330", 210), ("+0000", 0), (REST, 0), ("+1400", -840), ("-1200", 720)]
)
def test_a_zone_east_of_greenwich_starts_earlier_unless_the_published_sign_is_asked_for(
    zone: str, minutes: int
) -> None:
    assert starts(NOON, zone, published_sign=False) == NOON + minutes * MINUTE_NS
    assert starts(NOON, zone, published_sign=True) == NOON - minutes * MINUTE_NS


@given(places, st.datetimes(datetime(2024, 1, 1), datetime(2037, 1, 1)))  # noqa: DTZ001
def test_every_clock_shows_the_time_of_the_start(place: ZoneInfo, wall: datetime) -> None:
    """Whoever's offset is still the one in the table when its zone starts sees the time of day of `startsAt`."""
    told = int(wall.replace(tzinfo=UTC, microsecond=0).timestamp()) * 1_000_000_000
    start = starts(told, offset_of(wall.replace(tzinfo=UTC), place), published_sign=False)
    shown = datetime.fromtimestamp(start // 1_000_000_000, place)
    if offset_of(shown, place) == offset_of(wall.replace(tzinfo=UTC), place):
        assert shown.replace(tzinfo=None) == wall.replace(microsecond=0)


@given(instants, instants, st.sampled_from(["", NEXT_DAY]), st.booleans())
def test_what_has_passed_starts_a_day_later_once(starts_at: int, now: int, strategy: str, sign: bool) -> None:
    found = zone_starts(starts_at, now, strategy, published_sign=sign)
    assert [zone for zone, _ in found] == list(zones())
    for zone, start in found:
        wanted = starts(starts_at, zone, published_sign=sign)
        assert start == (wanted if wanted > now else wanted + DAY_NS)


@given(st.integers(-15 * 60, 15 * 60), st.booleans())
def test_what_has_passed_is_skipped_where_that_is_asked_for(minutes: int, sign: bool) -> None:
    now = NOON + minutes * MINUTE_NS
    ahead = [(zone, starts(NOON, zone, published_sign=sign)) for zone in zones()]
    ahead = [(zone, start) for zone, start in ahead if start > now]
    if ahead:
        assert zone_starts(NOON, now, SKIP, published_sign=sign) == ahead
    else:
        with pytest.raises(Invalid) as caught:
            zone_starts(NOON, now, SKIP, published_sign=sign)
        assert caught.value.field == "startsAt"


def test_seconds_before_the_start_the_eastern_zones_are_skipped() -> None:
    left = dict(zone_starts(NOON, NOON - 3_000_000_000, SKIP, published_sign=False))
    assert "+0000" in left and "-0330" in left and REST in left
    assert "+0100" not in left and "+0545" not in left


@pytest.mark.parametrize("strategy", ["Skip", "nextday", "nextDay ", "later", "null"])
def test_an_unknown_strategy_is_invalid(strategy: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid pastTimeStrategy") as caught:
        zone_starts(NOON, 0, strategy, published_sign=False)
    assert caught.value.field == "pastTimeStrategy"
