"""What is no cron line or no time zone is refused, with its field and the rule."""

import pytest

from shared.clock.rules.recurrence import check_cron
from shared.core.errors import Invalid

BAD_LINES = {
    "": "five fields",
    "* * * *": "five fields",
    "0 * * * * *": "five fields",
    "@daily": "five fields",
    "60 * * * *": "60 is no minute: 0 to 59",
    "-1 * * * *": "'-1' is no minute: 0 to 59",
    "*/0 * * * *": "0 is no step: 1 or more",
    "1,,2 * * * *": "'' is no minute: 0 to 59",
    "* 24 * * *": "24 is no hour: 0 to 23",
    "0 25 * * 1-5": "25 is no hour: 0 to 23",
    "* 9-24 * * *": "24 is no hour: 0 to 23",
    "* 1,30/2 * * *": "30 is no hour: 0 to 23",
    "* */x * * *": "X is no step: 1 or more",
    "* 9- * * *": "'9-' is no hour: 0 to 23",
    "a * * * *": "A is no minute: 0 to 59",
    "* * * JAN-XYZ *": "XYZ is no month: 1 to 12, or JAN to DEC",
    "* * * * MON-FRY": "FRY is no weekday: 0 to 7, or SUN to SAT",
    "* * * * 9L": "9L is no weekday: 0 to 7, or SUN to SAT",
    "* * * * #2": "'#2' is no weekday: 0 to 7, or SUN to SAT",
    "* 5-3 * * *": "5-3 is no range: it must not end before it begins",
    "* * 0 * *": "0 is no day: 1 to 31, or L for the last",
    "* * 32 * *": "32 is no day: 1 to 31, or L for the last",
    "* * * 13 *": "13 is no month: 1 to 12, or JAN to DEC",
    "* * * FOO *": "FOO is no month: 1 to 12, or JAN to DEC",
    "* * * * 8": "8 is no weekday: 0 to 7, or SUN to SAT",
    "* * * * MON#6": "6 is no week of a month: # takes 1 to 5",
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
