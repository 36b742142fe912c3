"""What is no cron line or no time zone is refused, with its field and the rule."""

import pytest

from shared.domain.clock.recurrence import check_cron
from shared.domain.errors import Invalid

BAD_LINES = {
    "": "five fields",
    "* * * *": "five fields",
    "0 * * * * *": "five fields",
    "@daily": "five fields",
    "60 * * * *": "the minute field is wrong",
    "-1 * * * *": "the minute field is wrong",
    "*/0 * * * *": "the minute field is wrong",
    "1,,2 * * * *": "the minute field is wrong",
    "* 24 * * *": "the hour field is wrong",
    "* 5-3 * * *": "the hour field is wrong",
    "* * 0 * *": "the day-of-month field is wrong",
    "* * 32 * *": "the day-of-month field is wrong",
    "* * * 13 *": "the month field is wrong",
    "* * * FOO *": "the month field is wrong",
    "* * * * 8": "the day-of-week field is wrong",
    "* * * * MON#6": "the day-of-week field is wrong",
    "0 0 30 2 *": "never fires",
    "0 0 31 2,4,6,9,11 *": "never fires",
    "0 0 30 FEB */2": "never fires",
    "0 0 */30 2 1#5": "never fires",
    "0 0\n* * *": "one line",
    "0 0 * * \u0660": "ASCII",
    "0 0 * * FR\u0131": "ASCII",
    "0," * 100 + "0 * * * *": "at most 200",
}
BAD_ZONES = (
    "",
    "Europe/Atlantis",
    "europe/paris",
    "Europe",
    "CEST",
    "localtime",
    "posix/Europe/Paris",
    "/etc/passwd",
    "../../etc/passwd",
    "Europe/../Europe/Paris",
    "Europe/Paris\0",
    "zones",
    "\ud800",
    "A" * 10_000,
)


@pytest.mark.parametrize(("line", "rule"), BAD_LINES.items())
def test_a_bad_line_is_refused_with_the_rule(line: str, rule: str) -> None:
    with pytest.raises(Invalid, match=rule) as refused:
        check_cron(line, "Europe/Paris")
    assert refused.value.field == "cron"


@pytest.mark.parametrize("zone", BAD_ZONES)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(Invalid, match="unknown time zone") as refused:
        check_cron("0 9 * * *", zone)
    assert refused.value.field == "timezone"


def test_good_lines_and_zones_pass() -> None:
    for zone in ("UTC", "Europe/Paris", "Australia/Lord_Howe", "Etc/GMT+5", "America/Argentina/Buenos_Aires"):
        check_cron("0\t9 1-31/2  jan-DEC mon-7", zone)


def test_a_rare_line_fires_some_day() -> None:
    for line in ("0 0 29 2 *", "0 0 31 2 1", "0 0 * 2 MON#5", "0 0 */28 2 MON#5", "* * L,1 * *"):
        check_cron(line, "UTC")


def test_a_line_has_two_hundred_characters_at_most() -> None:
    line = "1" + ",1" * 95 + " * * * *"
    check_cron(line + " " * (200 - len(line)), "UTC")
    with pytest.raises(Invalid, match="at most 200"):
        check_cron(line + " " * (201 - len(line)), "UTC")
