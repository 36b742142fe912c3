"""The names that an app's name makes, and what filters mean."""

import re

import pytest

from shared.accounts.rules.apps import check_app_name
from shared.audience.rules.audiences import (
    BEGINNING,
    MAX_COLUMN_BYTES,
    MAX_FILTERS,
    MAX_VALUE_BYTES,
    Condition,
    conditions,
    table_name,
)
from shared.core.errors import Invalid
from shared.push.rules.records import APNS, GCM, topic_name, topic_pattern

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
        ("locale", " en ,,pt", "locale", ("en", "", "pt"), False),
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
    wanted = Condition(column, values, negated, f"filters.{key}", folded=column == "locale")
    assert conditions({key: value}) == (wanted,)


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
    assert (MAX_COLUMN_BYTES, MAX_VALUE_BYTES, MAX_FILTERS) == (63, 65_536, 64)
    conditions({str(number): "" for number in range(MAX_FILTERS)})
    with pytest.raises(Invalid) as caught:
        conditions({str(number): "" for number in range(MAX_FILTERS + 1)})
    assert caught.value.field == "filters"


def test_locales_and_regions_are_folded_and_no_other_column() -> None:
    asked = {"locale": "en", "NOTlocale": "FR", "region": "Br", "NOTregion": "Pt", "tz": "Xy", "Locale": "a"}
    assert {one.field: one.folded for one in conditions(asked)} == {
        "filters.locale": True, "filters.NOTlocale": True, "filters.region": True, "filters.NOTregion": True,
        "filters.tz": False, "filters.Locale": False,
    }  # fmt: skip


def test_blanks_around_the_parts_of_a_list_do_not_count() -> None:
    assert [one.values for one in conditions({"locale": " pt, en ,,pt-BR\t", "plan": "a b , c"})] == [
        ("pt", "en", "", "pt-BR"),
        ("a b", "c"),
    ]


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ("he", ("he", "iw")), ("iw", ("he", "iw")), ("iw_IL", ("he-il", "iw-il")),
        ("HE-Hebr-IL", ("he-hebr-il", "iw-hebr-il")), ("in", ("id", "in")), ("ID", ("id", "in")), ("ji", ("yi", "ji")),
        ("mo-MD", ("ro-md", "mo-md")), ("inh", ("inh",)),
        ("de-IN", ("de-IN",)),
    ],
)  # fmt: skip
def test_a_filter_by_a_locale_means_withdrawn_codes_of_its_language_too(value: str, values: tuple[str, ...]) -> None:
    assert [one.values for one in conditions({"locale": value, "NOTlocale": value, "region": "IN"})] == [
        values,
        values,
        ("IN",),
    ]


def test_everybody_lies_behind_the_beginning() -> None:
    assert BEGINNING == -(2**63)  # the least `bigint`; no sequence gives it
