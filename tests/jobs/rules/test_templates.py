"""The rules of a template name the value at fault, down to the leaf."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.jobs.rules.templates import (
    COPIES_BYTES,
    Repeated,
    check_copies,
    check_json,
    check_template,
    dumps,
    fill,
    has_open_tag,
    tags_of,
    texts_of,
)

GOOD: dict[str, Any] = {"name": "like", "locale": "en", "body": {"alert": "Hi {{who}}"}, "defaults": {}}


def nested(depth: int, leaf: Any = "x") -> Any:
    """An object in an object in an object ..."""
    value = leaf
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "n" * 255, "locale": "l" * 10},
        {"name": "é" * 255},
        {"name": "n", "locale": "l"},
        {"body": {"n": 2**63 - 1, "m": [-(2**63), 0.5]}},
        {"defaults": {"n": [2**63 - 1, -(2**63)]}},
        {"body": {"": None, "k" * 1_024: 1}},
        {"body": {"a": "}} {a} { {{ Étage_2 }}{{नाम}}}", "b": [1, 2.5, True, {"{{k}}": -(2**63)}]}},
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
        ({"body": ["x"]}, "body", "invalid body: an object"),
        ({"body": "x"}, "body", "invalid body: an object"),
        ({"body": {"a": -(2**63) - 1}}, "body.a", "invalid body: body.a does not fit"),
        ({"body": {"a": float("inf")}}, "body.a", "invalid body: body.a does not fit"),
        ({"body": {"a": [Repeated()]}}, "body.a[0]", "invalid body: body.a[0] occurs twice"),
        ({"body": None}, "body", "invalid body"),
        ({"body": {"a": {"b": ["x", {"c": "{{who}} {{what"}]}}}, "body.a.b[1].c", "invalid body: body.a.b[1].c opens"),
        ({"body": {"a": {"{{k": 1}}}, "body.a.{{k", "invalid body"),
        ({"body": {"a": ["{{#if name}}Hi{{/if}}"]}}, "body.a[0]", "invalid body: body.a[0] has {{#if name}}: a tag is"),
        (
            {"body": {"a": "{{user.name}}"}},
            "body.a",
            "invalid body: body.a has {{user.name}}: a tag is {{name}}, a name",
        ),
        ({"body": {"a": "{{{who}}}"}}, "body.a", "invalid body: body.a has {{{who}}: a tag is"),
        ({"body": {"a": "{{a{{b}}"}}, "body.a", "invalid body: body.a has {{a{{b}}: a tag is"),
        ({"body": {"a": "{{ }}"}}, "body.a", "invalid body: body.a has {{ }}: a tag is"),
        ({"body": {"a": {"{{first name}}": 1}}}, "body.a.{{first name}}", "invalid body"),
        ({"body": {"a": "a\0b"}}, "body.a", "invalid body: body.a holds a NUL"),
        ({"body": {"a": "x" * 65_537}}, "body.a", "invalid body: body.a is longer than"),
        ({"body": {"a": 2**63}}, "body.a", "invalid body: body.a does not fit"),
        ({"body": {"a": "\ud800"}}, "body.a", "invalid body: body.a holds half"),
        ({"body": {"k" * 1_025: 1}}, f"body.{'k' * 64}…", "invalid body: body.kkk"),
        ({"body": {"é" * 513: 1}}, f"body.{'é' * 513}", "invalid body: body.ééé"),
        ({"body": {"a": [0, {"b": "\0"}]}}, "body.a[1].b", "invalid body: body.a[1].b holds a NUL"),
        ({"body": nested(65)}, "body", "invalid body: nested"),
        ({"body": nested(65, 1)}, "body", "invalid body: nested"),
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


def test_marathons_tags_have_any_name_but_are_closed() -> None:
    for text in ("}} {{{a}} { {{a{{b}} {{}}", "{{#if name}}", "{{user.name}}"):
        check_template(**(GOOD | {"body": {"a": text, text: 1}}), lenient=True)
    with pytest.raises(Invalid, match="never closes it"):
        check_template(**(GOOD | {"body": {"a": "{{who"}}), lenient=True)


def test_a_job_copies_eight_megabytes_of_templates_at_most() -> None:
    # A document of MongoDB has 16, and a job says other things too.
    assert COPIES_BYTES == 8_388_608
    check_copies(COPIES_BYTES)
    with pytest.raises(Invalid, match=r"^invalid template") as refused:
        check_copies(COPIES_BYTES + 1)
    assert refused.value.field == "template"


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


def test_json_is_compact_and_never_what_no_receiver_reads() -> None:
    assert dumps({"é": ["\u2028", 1.5, None, True, 'a"b\n']}) == '{"é":["\u2028",1.5,null,true,"a\\"b\\n"]}'
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            dumps([number])


def test_every_text_of_a_body_in_its_order() -> None:
    assert list(texts_of({"a": ["b", {"c": 1, "d": None}], "e": "f"})) == ["a", "b", "c", "d", "e", "f"]
