"""The rules of a template name the value at fault, down to the leaf."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.errors import Invalid
from shared.domain.jobs.templates import check_json, check_template, fill, has_open_tag, tags_of, texts_of

GOOD: dict[str, Any] = {"name": "like", "locale": "en", "body": {"alert": "Hi {{who}}"}, "defaults": {}}


def nested(depth: int) -> Any:
    """An object in an object in an object ..."""
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "n" * 255, "locale": "l" * 10},
        {"name": "é" * 255},
        {"body": {"": None, "k" * 1_024: 1}},
        {"body": {"a": "}} {{{a}} { {{a{{b}} {{}}", "b": [1, 2.5, True, {"{{k}}": -(2**63)}]}},
        {"body": nested(64)},
        {"defaults": {"who": "x" * 65_536, "any": "{{ is data"}},
    ],
)
def test_accepted(given: dict[str, Any]) -> None:
    check_template(**(GOOD | given))


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ({"name": ""}, "name", "invalid name"),
        ({"name": "n" * 256}, "name", "invalid name"),
        ({"name": "a\0"}, "name", "invalid name"),
        ({"locale": ""}, "locale", "invalid locale"),
        ({"locale": "l" * 11}, "locale", "invalid locale"),
        ({"body": {}}, "body", "invalid body"),
        ({"body": []}, "body", "invalid body"),
        ({"body": None}, "body", "invalid body"),
        ({"body": {"a": {"b": ["x", {"c": "{{who}} {{what"}]}}}, "body.a.b[1].c", "invalid body: body.a.b[1].c opens"),
        ({"body": {"a": {"{{k": 1}}}, "body.a.{{k", "invalid body"),
        ({"body": {"a": "a\0b"}}, "body.a", "invalid body: body.a holds a NUL"),
        ({"body": {"a": "x" * 65_537}}, "body.a", "invalid body: body.a is longer than"),
        ({"body": {"a": 2**63}}, "body.a", "invalid body: body.a does not fit"),
        ({"body": {"a": "\ud800"}}, "body.a", "invalid body: body.a holds half"),
        ({"body": {"k" * 1_025: 1}}, f"body.{'k' * 64}…", "invalid body: body.kkk"),
        ({"body": {"é" * 513: 1}}, f"body.{'é' * 513}", "invalid body: body.ééé"),
        ({"body": {"a": [0, {"b": "\0"}]}}, "body.a[1].b", "invalid body: body.a[1].b holds a NUL"),
        ({"body": nested(65)}, "body", "invalid body: nested"),
        ({"defaults": []}, "defaults", "invalid defaults"),
        ({"defaults": {"who": {"k\0": 1}}}, "defaults.who.k\0", "invalid defaults"),
        ({"name": "", "locale": "", "body": {}}, "name", "invalid name"),
        ({"locale": "", "body": {}}, "locale", "invalid locale"),
    ],
)
def test_refused(given: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_template(**(GOOD | given))
    assert refused.value.field == field
    assert refused.value.reason.startswith(reason)


def test_any_json_of_a_caller() -> None:
    check_json("context", {"who": ["é", 1, None, {"quotes": '\'; DROP TABLE "x"; --\n{{'}]})
    with pytest.raises(Invalid, match=r"^invalid context: context\.who holds a NUL") as refused:
        check_json("context", {"who": "\0"})
    assert refused.value.field == "context.who"


@given(text=st.text(st.sampled_from("{}ab"), max_size=14))
def test_a_tag_that_never_ends(text: str) -> None:
    """By walking over the text as the published renderer does."""
    rest = text
    while "{{" in rest:
        opened = rest.partition("{{")[2]
        if "}}" not in opened:
            break
        rest = opened.partition("}}")[2]
    assert has_open_tag(text) == ("{{" in rest)


@given(text=st.text(st.sampled_from("{}ab"), max_size=14))
def test_tags_are_found_as_by_walking(text: str) -> None:
    found, filled, rest = [], "", text
    while "{{" in rest and "}}" in rest.partition("{{")[2]:
        before, _, opened = rest.partition("{{")
        tag, _, rest = opened.partition("}}")
        found.append(tag)
        filled += f"{before}<{tag}>"
    assert tags_of(text) == found
    assert fill(text, lambda tag: f"<{tag}>") == filled + rest


def test_every_text_of_a_body_in_its_order() -> None:
    assert list(texts_of({"a": ["b", {"c": 1, "d": None}], "e": "f"})) == ["a", "b", "c", "d", "e", "f"]
