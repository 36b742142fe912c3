"""Which events a subscription wants: held to a reader of its own that knows nothing of how ours works."""

import json
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from shared.bus.rules.events import BusEvent
from shared.bus.rules.filters import Comparison, DataCondition, EventFilter, check_filter, matches
from shared.core.errors import Invalid

NAMES = st.sampled_from(["a", "b", "a/b", "m~n", "0", "1", "01", "-", ""])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e300, 2**53, 2**53 + 1, 2.0**53])
    | st.sampled_from(["", "a", "b", "10", "9", "é", "\0"])
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
STEPS = st.lists(NAMES, max_size=3)


def pointer(steps: list[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


@st.composite
def conditions(draw: st.DrawFn) -> DataCondition:
    op = draw(st.sampled_from(Comparison))
    values = {
        Comparison.IN: st.lists(JSON, min_size=1, max_size=3),
        Comparison.EXISTS: st.booleans(),
        Comparison.LT: SCALARS.filter(lambda value: value is not None and not isinstance(value, bool)),
        Comparison.GT: SCALARS.filter(lambda value: value is not None and not isinstance(value, bool)),
    }
    return DataCondition(pointer(draw(STEPS)), op, json.dumps(draw(values.get(op, JSON))))


FILTERS = st.builds(
    EventFilter,
    types=st.lists(st.sampled_from(["create", "update"]), max_size=2).map(tuple),
    url_prefix=st.sampled_from(["", "https://a/", "https://b/"]),
    data=st.lists(conditions(), max_size=3).map(tuple),
)


def event(data: Raw | UnsetType = UNSET, *, kind: str = "create", url: str = "https://a/1") -> BusEvent:
    return BusEvent(id="1", at=1, topic="t", type=kind, url=url, t=Raw(b"1"), data=data)


def with_data(value: Any) -> BusEvent:
    return event(Raw(json.dumps(value).encode()))


def normal(value: Any) -> Any:
    """A form in which two values are equal if they are the same JSON."""
    match value:
        case bool() | None:
            return ("constant", value)
        case int() | float():
            return ("number", Fraction(value))
        case str():
            return ("text", value)
        case list():
            return ("array", tuple(map(normal, value)))
        case _:
            return ("object", frozenset((name, normal(each)) for name, each in value.items()))


def places(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every place in a value by its steps."""
    inner: dict[str, Any] = {}
    if isinstance(value, dict):
        inner = value
    elif isinstance(value, list):
        inner = {str(number): each for number, each in enumerate(value)}
    found = {at: value}
    for step, each in inner.items():
        found |= places(each, (*at, step))
    return found


def naively(filter: EventFilter, kind: str, url: str, data: dict[tuple[str, ...], Any]) -> bool:
    def holds(condition: DataCondition) -> bool:
        steps = next(steps for steps in [*data, tuple(spell(condition.path))] if pointer(list(steps)) == condition.path)
        value, there = json.loads(condition.value), steps in data
        same = [there and normal(data[steps]) == normal(each) for each in (value if condition.op == "in" else [value])]
        if condition.op in {"eq", "in"}:
            return any(same)
        if condition.op == "ne":
            return not any(same)
        if condition.op == "exists":
            return bool(there == value)
        if not there or normal(data[steps])[0] != normal(value)[0]:
            return False
        mine, other = normal(data[steps])[1], normal(value)[1]
        return bool(mine < other if condition.op == "lt" else mine > other)

    wanted = not filter.types or kind in filter.types
    return wanted and url[: len(filter.url_prefix)] == filter.url_prefix and all(map(holds, filter.data))


def spell(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


@given(FILTERS, JSON, st.sampled_from(["create", "delete"]), st.sampled_from(["https://a/1", "https://b"]))
def test_a_filter_wants_what_a_naive_reading_of_it_wants(filter: EventFilter, data: Any, kind: str, url: str) -> None:
    check_filter(filter, field="filter")
    shown = event(Raw(json.dumps(data).encode()), kind=kind, url=url)
    assert matches(filter, shown) is naively(filter, kind, url, places(data))


@given(FILTERS)
def test_an_event_without_data_has_nothing_at_any_place(filter: EventFilter) -> None:
    assert matches(filter, event()) is naively(filter, "create", "https://a/1", {})


@given(FILTERS, st.sampled_from([b"[" * 100_000, b"{", b"\xff", b'"\\ud800"', b"1e999", b"-", b"9" * 5_000, b"NaN"]))
def test_whatever_data_is_nothing_is_raised(filter: EventFilter, data: bytes) -> None:
    assert matches(filter, event(Raw(data))) in {True, False}


@pytest.mark.parametrize(
    ("path", "op", "value", "data", "wanted"),
    [
        ("/price", "gt", "10", {"price": 10.5}, True),
        ("/price", "gt", "10", {"price": "11"}, False),
        ("/price", "gt", '"10"', {"price": "9"}, True),
        ("/price", "lt", "10", {"price": True}, False),
        ("/flag", "eq", "1", {"flag": True}, False),
        ("/n", "eq", "1.0", {"n": 1}, True),
        ("/n", "ne", "1", {}, True),
        ("/n", "eq", "null", {}, False),
        ("/n", "exists", "true", {"n": None}, True),
        ("/tags/1", "in", '["b", "c"]', {"tags": ["a", "b"]}, True),
        ("/tags/01", "exists", "true", {"tags": ["a", "b"]}, False),
        ("/tags/-", "exists", "true", {"tags": ["a", "b"]}, False),
        ("/a~1b/m~0n", "eq", "1", {"a/b": {"m~n": 1}}, True),
        ("/~01", "eq", "1", {"~1": 1}, True),
        ("", "eq", '{"a": [1, {}]}', {"a": [1, {}]}, True),
        ("/n", "eq", "9007199254740993", {"n": 9007199254740992}, False),
    ],
)
def test_single_conditions(path: str, op: str, value: str, data: Any, wanted: bool) -> None:
    condition = DataCondition(path, Comparison(op), value)
    check_filter(EventFilter(data=(condition,)), field="filter")
    assert matches(EventFilter(data=(condition,)), with_data(data)) is wanted


GOOD = DataCondition("/a", Comparison.EQ, "1")


@pytest.mark.parametrize(
    ("filter", "field"),
    [
        (EventFilter(types=("create", "No")), "filter.types"),
        (EventFilter(types=("a",) * 101), "filter.types"),
        (EventFilter(url_prefix="x" * 2_049), "filter.url_prefix"),
        (EventFilter(data=(GOOD,) * 11), "filter.data"),
        (EventFilter(data=(GOOD, replace(GOOD, path="a"))), "filter.data[1].path"),
        (EventFilter(data=(replace(GOOD, path="/~2"),)), "filter.data[0].path"),
        (EventFilter(data=(replace(GOOD, path="/a~"),)), "filter.data[0].path"),
        (EventFilter(data=(replace(GOOD, path="/" + "a" * 256),)), "filter.data[0].path"),
        (EventFilter(data=(replace(GOOD, value="{"),)), "filter.data[0].value"),
        (EventFilter(data=(replace(GOOD, value=""),)), "filter.data[0].value"),
        (EventFilter(data=(replace(GOOD, value="\ud800"),)), "filter.data[0].value"),
        (EventFilter(data=(replace(GOOD, value=f'"{"x" * 1_000}"'),)), "filter.data[0].value"),
        (EventFilter(data=(replace(GOOD, value=f'"{"x" * 700}"'),) * 3), "filter.data"),
        (EventFilter(data=(replace(GOOD, value="[" * 18 + "]" * 18),)), "filter.data[0].value"),
        (EventFilter(data=(replace(GOOD, value="[" * 490 + "]" * 490),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.IN, "1"),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.IN, "[]"),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.IN, f"[{'1,' * 100}1]"),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.EXISTS, "1"),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.LT, "true"),)), "filter.data[0].value"),
        (EventFilter(data=(DataCondition("/a", Comparison.GT, "null"),)), "filter.data[0].value"),
    ],
)
def test_a_filter_that_cannot_be_one_is_refused_by_the_name_of_its_part(filter: EventFilter, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_filter(filter, field="filter")
    assert refused.value.field == field


def test_a_filter_at_its_limits_is_taken() -> None:
    nested = "[" * 16 + "]" * 16
    filter = EventFilter(("a",) * 100, "x" * 2_048, (replace(GOOD, path="/" + "a" * 255, value=nested),) * 10)
    check_filter(filter, field="filter")
    assert not filter.is_empty
    assert EventFilter().is_empty
    assert matches(EventFilter(), event())


def test_what_users_write_is_kept_as_they_wrote_it() -> None:
    filter = EventFilter(data=(DataCondition("/a", Comparison.EQ, "1.50"),))
    assert msgspec.json.decode(msgspec.json.encode(filter), type=EventFilter) == filter
