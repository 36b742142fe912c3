"""What was typed becomes what the API takes, or is refused beside its field."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services import api
from services.api.http.pages.routes import (
    check_name,
    read_instant,
    read_json,
    read_lines,
    read_number,
    read_object,
    read_pairs,
)
from services.api.http.pages.visits import ApiProblem

_TOLD = re.compile(r'ui\.(wrong|aria)\((?:problem|wrong), "([\w.]+)"\)')
# Groups of fields, and hidden ones: nothing of theirs can be marked or focused.
_UNMARKED = {"address", "app", "callback.type", "fields", "kind", "misfire", "schedules", "secret"}
_ASKS = re.compile(r"ui\.ask\(.*[ ,(]name=|ui\.name_field\(")


def test_what_can_be_read_is() -> None:
    three = datetime(2030, 12, 24, 15, tzinfo=UTC)
    texts = ("2030-12-24T15:00", "2030-12-24T16:00:00+01:00", "2030-12-24T15:00Z")
    assert [read_instant({"at": text}, "at") for text in texts] == [three] * 3
    assert read_instant({}, "at") is None
    assert bytes(read_object({"o": ' {"a": 1, "a": 2} '}, "o") or b"") == b'{"a": 1, "a": 2}'
    assert (read_json({"j": "3"}, "j"), read_json({"j": ""}, "j")) != (None, None)
    assert read_lines({"l": " a \n\nb"}, "l") == ["a", "b"]
    assert read_pairs({"p": "X-Team: depot\nA:b:c"}, "p") == {"X-Team": "depot", "A": "b:c"}


@pytest.mark.parametrize(
    ("text", "number", "whole"),
    [
        ("7", 7, 7), (" -1 ", -1, -1), ("+5", 5, 5), ("-0", 0, 0), ("1,000", 1_000, 1_000), ("", None, None),
        ("12,345,678", 12_345_678, 12_345_678), ("9007199254740993", 2**53 + 1, 2**53 + 1),
        *((text, number, "refused") for text, number in (
            ("0.5", 0.5), (".5", 0.5), ("12,345.5", 12_345.5), ("0.500", 0.5), ("1.125", 1.125), ("1.0", 1),
            ("1e3", 1_000), ("1e-05", 0.00001), ("0.12345678901234567", 0.12345678901234567),
        )),
        *((text, "refused", "refused") for text in (
            "0,5", "2,5", "1,5", ",5", "1,00", "0,500", "1,0000", "1000,000", "12,34,567", "1.000", "2.500",
            "1.000.000", "1.234,5", "1 000", "1'000",
            "1\u00a0000", "1\u202f000", "1_000", "\u0665", "\uff11\uff10", "\xb2",
            "5.", "1,5e3", "inf", "nan", "1e400", "10%", "5s", "0x10", "--5", "-", ".", "x", "9" * 5_000,
        )),
    ],
)  # fmt: skip
def test_a_number_is_read_as_any_country_writes_it_or_refused(text: str, number: Any, whole: Any) -> None:
    for is_whole, expected in ((False, number), (True, whole)):
        if expected != "refused":
            assert read_number({"n": text}, "n", whole=is_whole) == expected
            continue
        with pytest.raises(ApiProblem) as refused:
            read_number({"n": text}, "n", whole=is_whole)
        assert (refused.value.status, refused.value.field, len(refused.value.detail) < 100) == (422, "n", True)


@pytest.mark.parametrize("text", ["0,5", ",5", "-0,5"])
def test_a_decimal_comma_is_answered_by_the_number_with_a_point(text: str) -> None:
    with pytest.raises(ApiProblem, match=r"write -?0\.5$"):
        read_number({"n": text}, "n")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((read_number, text) for text in ("x", "nan", "inf", "9" * 5_000)),
        *((read_instant, text) for text in ("soon", "0001-01-01T00:00+14:00")),
        *((read_json, text) for text in ("{", "[" * 100_000, "9" * 5_000)),
        *((read_object, text) for text in ("3", '{"a":')),
        (read_pairs, "no pair"),
    ],
)
def test_what_cannot_be_read_is_refused_beside_its_field(read: Callable[..., Any], text: str) -> None:
    with pytest.raises(ApiProblem) as refused:
        read({"field": text}, "field")
    assert (refused.value.status, refused.value.field) == (422, "field")


def test_a_name_is_checked_here_and_not_by_the_browser_alone() -> None:
    check_name({}, "")
    check_name({"named": " game "}, "game")
    for typed in ({}, {"named": ""}, {"named": "gam"}):
        with pytest.raises(ApiProblem):
            check_name(typed, "game")


def test_each_question_that_wants_a_name_has_somebody_who_checks_it() -> None:
    for folder in Path(api.__file__).parent.glob("*/pages"):
        asks = sum(len(_ASKS.findall(file.read_text())) for file in folder.glob("*.html"))
        checks = sum(len(re.findall(r" check_name\(", file.read_text())) for file in folder.glob("*.py"))
        assert checks >= asks, folder


def test_each_field_that_can_be_wrong_is_marked_as_such() -> None:
    unmarked = set()
    for template in Path(api.__file__).parent.glob("*/pages/**/*.html"):
        told = _TOLD.findall(template.read_text("utf-8"))
        marked = {field for macro, field in told if macro == "aria"} | _UNMARKED
        unmarked |= {(template.name, field) for macro, field in told if macro == "wrong" and field not in marked}
    assert unmarked == set()
