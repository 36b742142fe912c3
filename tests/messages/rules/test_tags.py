"""A tag is `{{name}}`; what only looks like one is refused, and what nothing fills is told."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.columns import column_name
from shared.core.errors import Invalid
from shared.messages.rules.rendering import (
    UNSUBSCRIBE_URL,
    check_filled_tags,
    find_tag,
    find_unfilled,
    split_at_tags,
    texts_only,
    values_by_tag,
)


def test_tags_are_matched_without_case_and_blanks() -> None:
    assert split_at_tags("{{ blah }} {{chip}}{{ BLAH}} {{F1sh}}", "body").tags == ("blah", "chip", "blah", "f1sh")
    assert split_at_tags("{{\u200bÉtage_2\n}}", "body").tags == (column_name("e\u0301tage_2\ufeff"),)


@pytest.mark.parametrize("name", ["नाम", "ชื่อ", "isim_2", "名前", "имя"])
def test_a_tag_may_be_of_any_script(name: str) -> None:
    assert split_at_tags(f"{{{{ {name} }}}}", "body").tags == (column_name(name),)


def test_the_literals_stand_around_the_tags() -> None:
    split = split_at_tags("a{{b}}}}c{ {{d}}", "body")
    assert (split.literals, split.tags) == (("a", "}}c{ ", ""), ("b", "d"))
    assert split_at_tags("@media print{p{x:y}}", "body").literals == ("@media print{p{x:y}}",)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{{x}}}", "{{{x}}"),
        ("a {{a.b}}", "{{a.b}}"),
        ("{{}}", "{{}}"),
        ("{{ }}", "{{ }}"),
        ("{{^^}}", "{{^^}}"),
        ("{{#if x}}", "{{#if x}}"),
        ("{{first name}}", "{{first name}}"),
        ("{{x", "{{x"),
        ("{{a}} {{", "{{"),
        ("{{a{{b}}", "{{a{{b}}"),
        ("{{a}b}}", "{{a}b}}"),
        ("{{&nbsp;x}}", "{{&nbsp;x}}"),
        ("{{" + "x" * 1_000, "…"),
    ],
)
def test_what_only_looks_like_a_tag_is_refused_with_its_path(text: str, shown: str) -> None:
    with pytest.raises(Invalid) as refused:
        split_at_tags(text, "body.html")
    assert refused.value.field == "body.html"
    assert shown in refused.value.reason
    assert "body.html" in refused.value.reason
    assert len(refused.value.reason) < 200


@given(st.text(st.sampled_from("{} aB_\u200b."), max_size=20))
def test_a_text_is_its_literals_and_tags_or_is_refused(text: str) -> None:
    try:
        split = split_at_tags(text, "body")
    except Invalid:
        assert "{{" in text
        return
    assert not any("{{" in literal for literal in split.literals)
    rest = text
    for literal, tag in zip(split.literals, split.tags, strict=False):
        assert rest.startswith(literal + "{{")
        inner, _, rest = rest[len(literal) + 2 :].partition("}}")
        assert column_name(inner) == tag
    assert rest == split.literals[-1]


@pytest.mark.alone
def test_a_long_text_of_braces_is_read_in_linear_time() -> None:
    began = time.perf_counter()
    assert len(split_at_tags("{{a}}}} { " * 100_000, "body").tags) == 100_000
    with pytest.raises(Invalid):
        split_at_tags("{{a}}" * 100_000 + "{{" * 100_000, "body")
    assert time.perf_counter() - began < 50


def test_a_tag_that_nothing_fills_is_told() -> None:
    assert find_unfilled(["b", "a", "c", "d", UNSUBSCRIBE_URL], ["c"], {"d": ""}) == ["a", "b"]
    check_filled_tags(["a"], ["a"])
    with pytest.raises(Invalid, match=r"no column, context or default for \{\{a\}\}, \{\{b\}\}$") as refused:
        check_filled_tags(["b", "a"], ["c"])
    assert refused.value.field == "template"


def test_values_are_texts_by_tag() -> None:
    values = values_by_tag({" Name": "Ann", "n": 1.5, "ok": True, "none": None, "list": [1], "map": {}}, "context")
    assert values == {"name": "Ann", "n": "1.5", "ok": "true", "none": "", "list": None, "map": None}
    assert texts_only(values) == {"name": "Ann", "n": "1.5", "ok": "true", "none": ""}
    with pytest.raises(Invalid, match="several keys") as refused:
        values_by_tag({"Name": 1, "name ": 2}, "context")
    assert refused.value.field == "context"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"text": "{{a}}", "html": "{{ U }}"}, "body.html"),
        ({"to": [1, None, {"x": ["{{u}}"]}]}, "body.to[2].x[0]"),
        ({"text": "u {{uu}} {{a}}", "n": 3}, ""),
        ({}, ""),
    ],
)
def test_a_tag_is_found_by_its_path(body: dict[str, object], path: str) -> None:
    assert find_tag(body, "u") == path
