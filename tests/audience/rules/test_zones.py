"""The zones of a localized push hold every offset there is; each user is in one; starts are right to the minute."""

import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.zones import (
    NEXT_DAY,
    REST,
    SKIP,
    ZoneRules,
    describe_rest,
    offsets,
    starts,
    zone_of,
    zone_starts,
    zones,
)
from shared.core.errors import Invalid
from shared.core.time_zones import time_zone

HOUR_NS = 3_600 * 1_000_000_000
MINUTE_NS = HOUR_NS // 60
DAY_NS = 24 * HOUR_NS
NOON = 1_800_000_000 * 1_000_000_000
WINTER = int(datetime(2030, 12, 24, 18, tzinfo=UTC).timestamp()) * 1_000_000_000
SUMMER = int(datetime(2030, 7, 24, 18, tzinfo=UTC).timestamp()) * 1_000_000_000
RULES = ZoneRules(offsets(), WINTER)
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
    assert zone_of(offset, RULES) == offset


def test_zones_go_from_west_to_east_and_end_with_everybody_else() -> None:
    assert (zones()[0], zones()[-2], zones()[-1]) == ("-1200", "+1400", REST)
    assert all(re.fullmatch(r"[+-][01][0-9][0-5][0-9]", offset) for offset in offsets())
    assert [starts(0, zone, published_sign=True) for zone in offsets()] == sorted(
        starts(0, zone, published_sign=True) for zone in set(offsets())
    )


@given(st.one_of(grid, st.sampled_from(offsets()), st.none(), st.text(max_size=8)))
def test_a_user_belongs_to_exactly_one_zone(tz: str | None) -> None:
    assert zone_of(tz, RULES) in zones()


def test_the_words_for_zones_and_strategies_are_the_same_in_every_release() -> None:
    # The first is stored with jobs, the others are what callers write.
    assert [REST, SKIP, NEXT_DAY] == ["rest", "skip", "nextDay"]


@pytest.mark.parametrize(
    "tz", ["+0000", "-0000", "+00:00", "+00", "Z", "z", "UTC", "utc", "UT", "GMT", "GMT+0", "UTC-00:00", "Etc/UTC"]
)
def test_all_ways_to_write_zero_are_utc(tz: str) -> None:
    assert zone_of(tz, RULES) == "+0000"
    assert "-0000" not in zones()


@pytest.mark.parametrize(
    ("tz", "zone"),
    [
        ("+05:45", "+0545"), ("+0545 ", "+0545"), ("\u200b+0545\u00a0", "+0545"), ("+12", "+1200"), ("UTC+12", "+1200"),
        ("GMT+5:30", "+0530"), ("gmt-3:30", "-0330"), ("UTC -8", "-0800"), ("-5", "-0500"), ("\u221205:00", "-0500"),
        ("\u201305:00", "-0500"), ("UTC\u22129:30", "-0930"),
    ],
)  # fmt: skip
def test_an_offset_means_the_same_in_each_of_its_forms(tz: str, zone: str) -> None:
    assert zone_of(tz, RULES) == zone


@pytest.mark.parametrize(
    ("tz", "zone"),
    [
        ("+1215", "+1200"), ("+12:15", "+1200"), ("+0546", "+0545"), ("+0015", "+0000"), ("-0015", "-0100"),
        ("-0345", "-0400"), ("-0315", "-0330"), ("+1350", "+1345"), ("+1415", "+1400"), ("+1559", "+1400"),
        ("-1130", "-1200"), ("-1215", "-1200"), ("-1559", "-1200"),
    ],
)  # fmt: skip
def test_an_offset_between_zones_goes_with_the_zone_to_the_west(tz: str, zone: str) -> None:
    assert zone_of(tz, RULES) == zone


@given(grid)
def test_no_offset_between_zones_is_sent_to_before_its_clocks_show_the_time(tz: str) -> None:
    minutes = (int(tz[1:3]) * 60 + int(tz[3:])) * (-1 if tz[0] == "-" else 1)
    late = starts(NOON, zone_of(tz, RULES), published_sign=False) - (NOON - minutes * MINUTE_NS)
    assert 0 <= late < HOUR_NS or not -720 <= minutes <= 840


@pytest.mark.parametrize(
    ("tz", "at", "zone"),
    [
        ("Asia/Tokyo", WINTER, "+0900"), ("asia/tokyo", WINTER, "+0900"), ("ASIA/KOLKATA", SUMMER, "+0530"),
        ("America/New_York", WINTER, "-0500"), ("America/New_York", SUMMER, "-0400"),
        ("america/new york", SUMMER, "-0400"), ("Europe/Paris", WINTER, "+0100"), ("Europe/Paris", SUMMER, "+0200"),
        ("Australia/Lord_Howe", WINTER, "+1100"), ("Australia/Lord_Howe", SUMMER, "+1030"),
        ("Etc/GMT+5", WINTER, "-0500"), ("Japan", WINTER, "+0900"), ("EST5EDT", SUMMER, "-0400"),
        ("Asia/Calcutta", WINTER, "+0530"), ("Pacific/Chatham", WINTER, "+1345"),
    ],
)  # fmt: skip
def test_a_place_goes_by_its_offset_at_the_start(tz: str, at: int, zone: str) -> None:
    assert zone_of(tz, ZoneRules(offsets(), at)) == zone


@given(places, st.datetimes(datetime(2024, 1, 1), datetime(2037, 1, 1)))  # noqa: DTZ001
def test_the_clocks_of_a_place_show_the_time_of_the_start(place: ZoneInfo, wall: datetime) -> None:
    wall = wall.replace(microsecond=0)
    told = int(wall.replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    zone = zone_of(place.key, ZoneRules(offsets(), told))
    shown = datetime.fromtimestamp(starts(told, zone, published_sign=False) // 1_000_000_000, place)
    skipped = wall.replace(tzinfo=place).astimezone(UTC).astimezone(place).replace(tzinfo=None) != wall
    assert skipped or place.key == "Factory" or shown.replace(tzinfo=None) == wall


def test_a_place_whose_zone_starts_a_day_later_goes_by_the_rules_of_that_day() -> None:
    before = int(datetime(2027, 3, 27, 18, tzinfo=UTC).timestamp()) * 1_000_000_000
    assert zone_of("Europe/Paris", ZoneRules(offsets(), before)) == "+0100"
    assert zone_of("Europe/Paris", ZoneRules(offsets(), before, ("+0100", "+0200"))) == "+0200"


@pytest.mark.parametrize(
    "tz",
    [
        None, "", " ", "0545", "+9999", "+25:99", "+1600", "+0575", "+530", "-330", "+", "UTC+", "+5:3", "+05:45:00",
        "PST", "Mars/Phobos", "Factory", "Europe/", "../etc/passwd", "+\u0665", "rest", "null", "\u200b",
    ],
)  # fmt: skip
def test_a_missing_or_unreadable_zone_belongs_to_the_rest(tz: str | None) -> None:
    assert zone_of(tz, RULES) == REST


def test_a_group_with_other_offsets_takes_the_next_one_to_the_west() -> None:
    rules = ZoneRules(("-0300", "+0000"), WINTER)
    assert [zone_of(tz, rules) for tz in ("Asia/Tokyo", "-0100", "-0800")] == ["+0000", "-0300", "-0300"]


def test_the_rest_is_named_with_three_values() -> None:
    assert describe_rest(1, [None]) == (
        "1 device is in the zone rest, which starts with UTC, because tz names no time zone: none."
    )
    assert describe_rest(1200, ["x", None, "", "y"]).endswith("names no time zone: 'x', none, ''.")
    assert describe_rest(1200, ["x"]).startswith("1,200 devices are in")


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
