"""What a template becomes is known before anybody makes it."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.jobs.rules.templates import (
    Template,
    Unrenderable,
    check_filled,
    check_tags,
    dumps,
    filled_body,
    filled_bytes,
)

texts = st.text(st.sampled_from('{}ab"\\\n\x01é☃😀'), max_size=12)
values = st.dictionaries(st.sampled_from(["", "a", "b", "é", '"']), st.none() | st.booleans() | st.integers() | texts)
leaves = texts | st.floats(allow_nan=False, allow_infinity=False) | st.none()
inner = st.recursive(leaves, lambda deeper: st.lists(deeper) | st.dictionaries(texts, deeper))
bodies = st.dictionaries(texts, inner, min_size=1)

BOMB = "{{a}}" * 13_000
LONG = "x" * 65_536


def a_template(body: Any, defaults: Any = None) -> Template:
    return Template(id="t", app_id="a", name="like", locale="en", body=body, defaults=defaults or {})


@given(body=bodies, context=values, defaults=values)
def test_the_size_is_that_of_what_is_made(body: Any, context: Any, defaults: Any) -> None:
    template = a_template(body, defaults)
    try:
        made = len(dumps(filled_body(template, context)).encode())
    except Unrenderable as error:
        with pytest.raises(Unrenderable, match=error.reason):
            filled_bytes(template, context)
    else:
        assert filled_bytes(template, context) >= made


@given(texts_=st.lists(texts, min_size=1), context=values)
def test_the_size_is_exact_where_no_keys_become_the_same(texts_: list[str], context: Any) -> None:
    template = a_template({"alert": texts_})
    try:
        made = len(dumps(filled_body(template, context)).encode())
    except Unrenderable:
        return
    assert filled_bytes(template, context) == made


@pytest.mark.alone
def test_a_template_that_would_fill_the_memory_is_measured_and_not_made() -> None:
    template = a_template({"alert": [BOMB] * 15})
    tracemalloc.start()
    try:
        size = filled_bytes(template, {"a": LONG})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 15 * 13_000 * 65_536
    assert most < 8_000_000


def test_what_is_larger_than_a_record_may_be_is_refused_by_name() -> None:
    small, bomb = a_template({"alert": "Hi"}), a_template({"alert": BOMB}, {"a": LONG})
    check_filled([small], {}, {}, most=1_000, field="template")
    check_filled([bomb], {"a": "x"}, {}, most=1_000_000, field="template")
    with pytest.raises(
        Invalid, match="'like' in 'en' makes records of 851,968,012 bytes or more, 1,000,000"
    ) as refused:
        check_filled([small, bomb], {}, {}, most=1_000_000, field="template")
    assert refused.value.field == "template"
    with pytest.raises(Invalid):
        check_filled([small], {}, {"campaign": "x" * 1_000}, most=1_000, field="template")


def test_a_record_may_be_just_as_large_as_it_may_be() -> None:
    small = a_template({"alert": "Hi"})  # 14 bytes
    check_filled([small], {}, {}, most=14, field="template")
    check_filled([small], {}, {"a": 1}, most=21, field="template")
    for metadata, most in [({}, 13), ({"a": 1}, 20)]:
        with pytest.raises(Invalid):
            check_filled([small], {}, metadata, most=most, field="template")


def test_a_tag_that_is_never_closed_has_no_size() -> None:
    with pytest.raises(Unrenderable, match="bad-template"):
        filled_bytes(a_template({"alert": ["Hi", "{{a"]}), {})
    with pytest.raises(Unrenderable, match="bad-template"):
        filled_bytes(a_template({"{{a": "Hi"}), {})


def test_what_cannot_be_filled_is_not_refused_for_its_size() -> None:
    check_filled([a_template({"alert": "{{a}}"})], {"a": {}}, {}, most=10, field="template")


def test_a_tag_that_nothing_fills_is_named_with_the_nearest_name() -> None:
    template = a_template({"alert": ["Hi {{nmae}}", {"{{k}}": "{{ who }}"}]}, {"k": "x"})
    with pytest.raises(Invalid) as refused:
        check_tags([a_template({"alert": "{{k}}"}, {"k": 1}), template], {"name": "Ana", "who": "Bo"})
    assert refused.value.field == "context"
    assert refused.value.reason == (
        "invalid template: 'like' in 'en': context and defaults have no value for {{ who }}, {{nmae}}; "
        "did you mean who?"
    )
    check_tags([template], {"nmae": "", " who ": None})


def test_only_some_of_many_tags_that_nothing_fills_are_named() -> None:
    with pytest.raises(Invalid, match=r"\{\{t09\}\} and 40 more$"):
        check_tags([a_template({"alert": "".join(f"{{{{t{number:02}}}}}" for number in range(50))})], {})
