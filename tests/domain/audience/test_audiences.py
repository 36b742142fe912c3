"""The names that an app's name makes, and what filters mean."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.accounts.apps import check_app_name
from shared.domain.audience.audiences import (
    MAX_COLUMN_BYTES,
    MAX_FILTERS,
    MAX_VALUE_BYTES,
    Condition,
    Cut,
    conditions,
    merge_cuts,
    table_name,
)
from shared.domain.errors import Invalid
from shared.domain.push.records import APNS, GCM
from shared.domain.push.topics import topic_name, topic_pattern

SHIPPED_TEMPLATE = "push-%s_%s-massive"


@pytest.mark.parametrize("name", ["a", "TestApp", "my-app_2", "7", "-", "x" * 50])
def test_an_app_name_of_letters_digits_hyphens_and_underscores_is_fine(name: str) -> None:
    check_app_name(name)


@pytest.mark.parametrize("name", ["", "x" * 51, "my app", "a.b", "a\n", "ä", "\uff11", 'a"b', "a;--", "a\0", "%s"])
def test_any_other_app_name_is_invalid_for_every_use(name: str) -> None:
    for use in (check_app_name, lambda n: table_name(n, GCM), lambda n: topic_name("%s%s", n, GCM)):
        with pytest.raises(Invalid, match=r"^invalid name") as caught:
            use(name)
        assert caught.value.field == "name"


def test_the_table_is_in_lower_case_and_the_topic_as_written() -> None:
    assert table_name("TestApp", APNS) == "testapp_apns"
    assert topic_name(SHIPPED_TEMPLATE, "TestApp", GCM) == "push-TestApp_gcm-massive"


def test_receivers_can_read_the_game_and_the_service_out_of_the_shipped_topic() -> None:
    topic = topic_name(SHIPPED_TEMPLATE, "game", APNS)
    assert re.match(r"^push-[^-_]+_(apns|gcm)[_-](single|massive)", topic)


@pytest.mark.parametrize("template", [SHIPPED_TEMPLATE, "%s-%s-c", "a.b%s%s"])
def test_the_pattern_of_topics_matches_every_name_and_no_other_topic(template: str) -> None:
    pattern = re.compile(topic_pattern(template))
    for service in (APNS, GCM):
        assert pattern.fullmatch(topic_name(template, "my-Game_1", service))
    for other in ("carillon.ledger", "__consumer_offsets", "axb-game-apns", ""):
        assert not pattern.fullmatch(other)


@pytest.mark.parametrize("template", ["", "%s", "%s-%s-%s", "push %s %s", "a/%s_%s", "%d%s%s", "x" * 249 + "%s%s"])
def test_a_template_that_makes_no_topic_name_is_invalid(template: str) -> None:
    with pytest.raises(Invalid) as caught:
        topic_name(template, "game", APNS)
    assert caught.value.field == "topic_template"


@pytest.mark.parametrize(
    ("key", "value", "column", "values", "negated"),
    [
        ("locale", "en", "locale", ("en",), False),
        ("locale", "en,pt", "locale", ("en", "pt"), False),
        ("locale", " en ,,pt", "locale", (" en ", "", "pt"), False),
        ("locale", "", "locale", ("",), False),
        ("NOTlocale", "en", "locale", ("en",), True),
        ("localeNOT", "en,pt", "locale", ("en", "pt"), True),
        ("NOTNOTlocale", "en", "locale", ("en",), True),
        ("NOTNumberTO", "1", "umber", ("1",), True),
        ("isNOTset", "1", "isNOTset", ("1",), True),
        ("Note", "1", "Note", ("1",), False),
        ('we"ird; --', "'", 'we"ird; --', ("'",), False),
    ],
)
def test_a_filter_means_what_it_means_to_marathon(
    key: str, value: str, column: str, values: tuple[str, ...], negated: bool
) -> None:
    assert conditions({key: value}) == (Condition(column, values, negated, f"filters.{key}"),)


def test_several_filters_are_several_conditions_in_one_order() -> None:
    assert conditions({"b": "1", "a": "2"}) == conditions({"a": "2", "b": "1"})
    assert [each.negated for each in conditions({"tz": "1", "NOTtz": "2"})] == [True, False]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "x"),
        ("NOT", "x"),
        ("TONNOT", "x"),
        ("a\0", "x"),
        ("a", "x\0"),
        ("a", "\ud800"),
        ("\udfff", "a"),
        ("a", "x" * (MAX_VALUE_BYTES + 1)),
        ("a", "é" * (MAX_VALUE_BYTES // 2 + 1)),
        ("a" * (MAX_COLUMN_BYTES + 1), "x"),
        ("é" * 32, "x"),
        *(("a", value) for value in (None, 1, 1.5, True, ["x"], {"x": 1})),
    ],
)
def test_what_postgresql_could_not_hold_is_invalid_and_names_its_key(key: str, value: object) -> None:
    with pytest.raises(Invalid) as caught:
        conditions({key: value})
    assert caught.value.field == f"filters.{key}"


def test_limits_are_inclusive() -> None:
    conditions({"a" * MAX_COLUMN_BYTES: "x" * MAX_VALUE_BYTES, "NOT" + "b" * MAX_COLUMN_BYTES: ""})
    conditions({str(number): "" for number in range(MAX_FILTERS)})
    with pytest.raises(Invalid) as caught:
        conditions({str(number): "" for number in range(MAX_FILTERS + 1)})
    assert caught.value.field == "filters"


@given(st.lists(st.integers(1, 20)), st.lists(st.integers(1, 20)), st.integers(1, 20))
def test_joining_cuts_keeps_their_end_and_their_sum(first: list[int], second: list[int], size: int) -> None:
    cuts = [Cut(place, rows) for place, rows in enumerate([*first, *second])]
    whole = merge_cuts(cuts[: len(first)], cuts[len(first) :], size)
    assert sum(cut.size for cut in whole) == sum(first) + sum(second)
    assert [cut.upto for cut in whole[-1:]] == [cut.upto for cut in cuts[-1:]]
    assert len(cuts) - len(whole) <= 1


def test_two_short_cuts_become_one_that_is_no_larger_than_a_page() -> None:
    assert merge_cuts([Cut(3, 2)], [Cut(9, 3), Cut(12, 5)], 5) == [Cut(9, 5), Cut(12, 5)]
    assert merge_cuts([Cut(3, 3)], [Cut(9, 3)], 5) == [Cut(3, 3), Cut(9, 3)]
