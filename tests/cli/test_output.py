"""How answers are drawn: tables that fit, times, and texts that do nothing to the terminal."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import msgspec
import pytest

from services.cli import output
from services.cli.job_options import read_start
from services.cli.names import matches
from services.cli.options import Instant, Past, Start, read_documents
from services.cli.output import (
    TableColumn,
    as_json,
    draw_record,
    draw_table,
    format_ahead,
    format_span,
    format_when,
    read_given,
    read_past,
    read_span,
    read_wire,
    shorten,
    shorten_id,
    visible,
    width_of,
)
from shared.core.instants import ns

ID = "01a2067d-4597-7b47-9fed-eebfbbc1d068"
ROWS = [
    {"id": ID, "name": "a name that is rather long, and goes on", "count": 1_234_567},
    {"id": ID[::-1], "name": "b", "count": 7},
]
COLUMNS = (
    TableColumn("ID", lambda row: row["id"], "id"),
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("COUNT", lambda row: row["count"], "number"),
)


def drawn(width: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    return draw_table(COLUMNS, ROWS, wide=False)


@pytest.mark.parametrize("width", range(40, 130))
def test_a_table_is_never_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, left_out = drawn(width, monkeypatch)
    assert max(map(width_of, lines)) <= width
    assert left_out == 0
    assert "1,234,567" in lines[1]


def test_where_nothing_can_be_shortened_any_more_columns_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, left_out = drawn(20, monkeypatch)
    assert left_out == 2
    assert lines[0] == "ID"


def test_ids_that_begin_and_end_alike_stay_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 40)
    rows = [{"id": f"01a2067d-4597-7b47-9fed-eebf{n}bc1d068", "name": "x" * 50, "count": n} for n in range(9)]
    lines, _ = draw_table(COLUMNS, rows, wide=False)
    shown = [line.split()[0] for line in lines[1:]]
    assert len({*shown}) == len(rows)
    assert max(map(len, shown)) < 36


def test_numbers_stand_right_with_their_thousands_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = drawn(200, monkeypatch)
    assert lines[1].endswith("  1,234,567")
    assert lines[2].endswith("          7")


def test_a_wide_table_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 20)
    lines, left_out = draw_table(COLUMNS, ROWS, wide=True)
    assert left_out == 0
    assert all(str(text) in lines[1] for text in (ID, ROWS[0]["name"]))


@pytest.mark.parametrize("width", [13, 20, 35, 36])
def test_an_id_as_it_is_shown_means_that_id(width: int) -> None:
    shown = shorten_id(ID, width)
    assert len(shown) == min(width, len(ID))
    assert matches(shown, ID)
    assert matches(shown.upper(), ID)
    assert matches(shown.replace("…", "..."), ID)
    assert not matches(shown, ID[:-1] + "0") or width == 36


def test_texts_of_wide_characters_are_measured_in_columns() -> None:
    assert width_of("鐘楼") == 4
    assert shorten("鐘楼の音", 5) == "鐘楼…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\nc\x07", "a\\rb\\nc\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("Ana 鐘 é", "Ana 鐘 é"),
    ],
)
def test_what_is_not_printable_is_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["\x1b[2J", "\x7f\x9b31m", "\u202e", "\U000e0001", "Ana"])
def test_json_holds_the_same_and_is_printable(text: str) -> None:
    shown = as_json({"name": text})
    assert shown.isprintable()
    assert msgspec.json.decode(shown) == {"name": text}


def test_a_record_has_a_line_a_field_and_none_for_what_is_empty() -> None:
    fields = [("id", "1"), ("empty", ""), ("events", ["a", "b\x1b"]), ("more", {"x": 1})]
    assert draw_record(fields) == ["id      1", "events  a", "        b\\x1b", 'more    {"x":1}']


def test_an_instant_of_any_of_the_apis_kinds_is_read() -> None:
    noon = datetime(2030, 12, 24, 12, tzinfo=UTC)
    assert read_wire(int(noon.timestamp()) * 10**9) == noon
    assert read_wire("2030-12-24T12:00:00Z") == noon
    assert [read_wire(nothing) for nothing in (0, "", None, "soon", 10**30)] == [None] * 5
    assert format_when("2030-12-24T12:00:00Z", utc=True) == "2030-12-24 12:00:00Z"
    assert format_when(0, utc=True) == "-"


def test_an_instant_is_typed_in_several_ways() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert read_given("+10m", now) == now + timedelta(minutes=10)
    assert read_given("2030-12-24T14:00Z", now) == datetime(2030, 12, 24, 14, tzinfo=UTC)
    assert read_given("2030-12-24 14:00", now).tzinfo is not None
    for text in ("tomorrow", "+soon", ""):
        with pytest.raises(ValueError):
            read_given(text, now)


@pytest.fixture
def machine_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of this machine's clocks."""

    def put(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "text", "instant"),
    [
        ("UTC", "today", "2027-03-28T00:00Z"),
        ("UTC", "Yesterday", "2027-03-27T00:00Z"),
        ("Europe/Paris", "today", "2027-03-28T22:00Z"),
        ("Europe/Paris", "yesterday", "2027-03-27T23:00Z"),
        ("America/New_York", "yesterday", "2027-03-27T04:00Z"),
    ],
)
def test_today_and_yesterday_begin_by_the_readers_clock(
    zone: str, text: str, instant: str, machine_zone: Callable[[str], None]
) -> None:
    machine_zone(zone)
    assert read_past(text, datetime(2027, 3, 28, 22, 30, tzinfo=UTC)) == datetime.fromisoformat(instant)


@pytest.mark.parametrize(
    ("zone", "text", "instant"),
    [
        ("Europe/Paris", "2027-03-28 01:59", "2027-03-28T00:59Z"),
        ("Europe/Paris", "2027-03-28 02:00", "2027-03-28T01:00Z"),
        ("Europe/Paris", "2027-03-28 02:30", "2027-03-28T01:00Z"),
        ("Europe/Paris", "2027-03-28 03:00", "2027-03-28T01:00Z"),
        ("Europe/Paris", "2027-10-31 02:30", "2027-10-31T00:30Z"),
        ("America/New_York", "2027-03-14 02:30", "2027-03-14T07:00Z"),
        ("America/Santiago", "2027-09-05", "2027-09-05T04:00Z"),
    ],
)
def test_a_skipped_local_time_is_the_end_of_the_gap_and_a_repeated_one_the_first(
    zone: str, text: str, instant: str, machine_zone: Callable[[str], None]
) -> None:
    machine_zone(zone)
    assert read_past(text, datetime.now(UTC)) == datetime.fromisoformat(instant)
    assert Instant().convert(text, None, None) == datetime.fromisoformat(instant)
    start = Start().convert(text, None, None)
    made = {localized: read_start(start, localized=localized) for localized in (False, True)}
    assert made[False] == ns(datetime.fromisoformat(instant))
    assert made[True] == ns(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31 23:59", "+99999999999999d"])
@pytest.mark.parametrize("kind", [Instant, Start, Past])
def test_a_time_at_the_ends_of_the_calendar_is_refused(kind: type[click.ParamType[datetime]], text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        kind().convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7_200), ("7d", 604_800)])
def test_a_duration_is_typed_with_its_unit(text: str, seconds: int) -> None:
    assert read_span(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("zone", "utc", "shown"),
    [
        ("Europe/Paris", False, "Mon 2026-11-30 09:00 Europe/Paris  08:00 UTC  in 2 d"),
        ("Europe/Paris", True, "Mon 2026-11-30 08:00 UTC  in 2 d"),
        ("UTC", False, "Mon 2026-11-30 08:00 UTC  in 2 d"),
    ],
)
def test_a_coming_instant_has_its_weekday_its_zone_and_its_distance(zone: str, utc: bool, shown: str) -> None:
    now = datetime(2026, 11, 28, 8, tzinfo=UTC)
    assert format_ahead("2026-11-30T08:00:00Z", now, zone=zone, utc=utc) == shown
    assert format_ahead("", now) == "-"


def test_a_duration_is_shown_in_two_units() -> None:
    assert [format_span(seconds) for seconds in (0, 59, 303, 90_000)] == ["0 s", "59 s", "5 min 3 s", "1 d 1 h"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b" \r\n", "is empty"),
        (
            b'{\n  "key": "a"\n  "every": 60\n}',
            "is not JSON: at line 3, column 3, a comma or a closing bracket is missing",
        ),
        (b'{"key": "a"}\r\n{"key": }\r\n', "is not JSON: at line 2, column 9, a value is missing"),
        (b'{"key": "\xff"}', "is not text in UTF-8"),
    ],
)
def test_a_file_without_json_is_told_with_the_place(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(content)
    with pytest.raises(click.UsageError) as refused:
        read_documents(str(file))
    assert refused.value.message == f"{file} {told}"


def test_a_file_has_a_document_an_array_or_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    for content in (b'[{"a": 1}, {"a": 2}]', b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}'):
        file.write_bytes(content)
        assert read_documents(str(file)) == [{"a": 1}, {"a": 2}]
