"""The rules of time zones come from the package, whatever files the machine has."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, reset_tzpath

import pytest

from shared.clock.rules.recurrence import Cron, check_cron, next_after
from shared.core.errors import Invalid
from shared.core.time_zones import RELEASE, time_zone, zone_names


@pytest.fixture
def machine_of_utc(tmp_path: Path) -> Iterator[None]:
    """The machine's files say that Vancouver and Auckland have the time of UTC."""
    for name in ("America/Vancouver", "Pacific/Auckland"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    paths = TZPATH
    reset_tzpath([tmp_path])
    ZoneInfo.clear_cache()
    time_zone.cache_clear()
    yield
    reset_tzpath(paths)
    ZoneInfo.clear_cache()


def test_schedules_follow_the_package(machine_of_utc: None) -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    assert begin.astimezone(ZoneInfo("America/Vancouver")).hour == 0
    assert next_after(Cron("0 9 1 12 *", "America/Vancouver"), begin) == datetime(2026, 12, 1, 16, tzinfo=UTC)
    assert next_after(Cron("0 9 1 12 *", "Pacific/Auckland"), begin) == datetime(2026, 11, 30, 20, tzinfo=UTC)


def test_every_name_has_rules_and_no_other_text_becomes_a_path() -> None:
    assert files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text().split()[2] == RELEASE
    assert {"UTC", "Europe/Paris", "America/Argentina/Buenos_Aires"} < zone_names()
    for name in zone_names():
        assert time_zone(name).key == name
    for other in ("", "../UTC", "Europe", "europe/paris", "UTC\0"):
        with pytest.raises(KeyError):
            time_zone(other)


def test_an_unknown_zone_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Invalid, match="did you mean Europe/Paris") as refused:
        check_cron("0 9 * * *", "Europe/Pariss")
    assert refused.value.field == "timezone"
