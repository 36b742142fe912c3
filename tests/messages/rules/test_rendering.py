"""Every recipient gets the template with their own values, and no value can be more than a text."""

import html
import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.jobs.rules.templates import Template
from shared.messages.rules.rendering import Body, CompiledBody, MessageTexts, decode_column

MAIL = {"subject": "Hi {{name}}", "text": "{{name}}: {{code}}", "html": "<p title='{{name}}'>{{ CODE }}</p>"}
LINE_END = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

values = st.text(max_size=12) | st.text(st.sampled_from("<>&\"'\r\n\u2028\0{}ab"), max_size=12)


def template(body: dict[str, Any], *, locale: str = "en", defaults: dict[str, Any] | None = None) -> Template:
    return Template(id=locale, app_id="app", name="welcome", locale=locale, body=body, defaults=defaults or {})


def plain(text: str, row: dict[str, str]) -> str:
    """What a text becomes, one tag after the other."""
    return re.sub(r"\{\{(.*?)\}\}", lambda tag: row[tag[1].strip().lower()], text)


def test_columns_are_put_in_the_place_of_their_tags() -> None:
    columns = {"name": ["Ann", "Bob & Co"], "code": ["1", "<2>"], "unused": ["x", "y"]}
    assert CompiledBody(MAIL).render(columns, 2) == [
        {"subject": "Hi Ann", "text": "Ann: 1", "html": "<p title='Ann'>1</p>"},
        {
            "subject": "Hi Bob & Co",
            "text": "Bob & Co: <2>",
            "html": "<p title='Bob &amp; Co'>&lt;2&gt;</p>",
        },
    ]
    assert CompiledBody(MAIL).tags == {"name", "code"}


@given(rows=st.lists(st.tuples(values, values), max_size=6))
@example(rows=[("\0", "a"), ("<", "\r\n")])
@example(rows=[("a\r", "\nb")])
def test_html_has_no_value_as_it_stands_and_a_subject_no_line_end(rows: list[tuple[str, str]]) -> None:
    columns = {"name": [name for name, _ in rows], "code": [code for _, code in rows]}
    rendered = CompiledBody(MAIL).render(columns, len(rows))
    for (name, code), body in zip(rows, rendered, strict=True):
        assert body is not None
        assert body["html"] == f"<p title='{html.escape(name)}'>{html.escape(code)}</p>"
        inside = body["html"].removeprefix("<p title='").removesuffix("</p>").replace("'>", "", 1)
        assert not set(inside) & set("<>\"'")
        assert LINE_END.search(body["subject"]) is None
        assert LINE_END.sub("", body["subject"]).replace(" ", "") == LINE_END.sub("", "Hi" + name).replace(" ", "")
        assert body["text"] == f"{name}: {code}"


def test_a_subject_of_the_template_itself_has_no_line_end_either() -> None:
    body = CompiledBody({"subject": "a\r\nb{{x}}\n", "text": "a\n{{x}}"})
    assert body.render({"x": ["\r"]}, 1) == [{"subject": "a b  ", "text": "a\n\r"}]
    assert body.render({"x": ["1\t2"]}, 1) == [{"subject": "a b1 2 ", "text": "a\n1\t2"}]
    assert CompiledBody({"subject": "a\nb"}).render({}, 1) == [{"subject": "a b"}]


JSON = {
    "to": "{{name}}",
    "deep": {"list": [1, None, "{{code}}", {"x": "{{ name }}-{{name}}"}], "fixed": [1, {"a": True}]},
    "n": 1.5,
}


@given(rows=st.lists(st.tuples(values, values), min_size=1, max_size=4))
def test_bodies_of_json_stay_valid_and_as_they_are_nested(rows: list[tuple[str, str]]) -> None:
    columns = {"name": [name for name, _ in rows], "code": [code for _, code in rows]}
    for (name, code), body in zip(rows, CompiledBody(JSON).render(columns, len(rows)), strict=True):
        assert json.loads(json.dumps(body)) == {
            "to": name,
            "deep": {"list": [1, None, code, {"x": f"{name}-{name}"}], "fixed": [1, {"a": True}]},
            "n": 1.5,
        }


def test_the_tags_of_a_body_are_those_at_any_depth() -> None:
    assert CompiledBody(JSON).tags == {"name", "code"}
    assert CompiledBody(JSON).render({"name": ["a", "a" * 50], "code": ["", ""]}, 2, most=100)[1] is None


texts = st.lists(st.sampled_from(["a", "é\n", "{{x}}", "{{ Y }}", "}}", "{ "]), max_size=5).map("".join)


@given(
    body=st.dictionaries(
        st.sampled_from(["text", "other"]), texts | st.lists(texts, max_size=2) | st.integers(), min_size=1
    ),
    rows=st.lists(st.fixed_dictionaries({"x": values, "y": values}), max_size=4),
)
def test_any_body_is_rendered_as_one_tag_after_the_other(body: dict[str, Any], rows: list[dict[str, str]]) -> None:
    columns = {tag: [row[tag] for row in rows] for tag in "xy"}

    def expected(value: Any, row: dict[str, str]) -> Any:
        if isinstance(value, list):
            return [expected(inner, row) for inner in value]
        return plain(value, row) if isinstance(value, str) else value

    rendered = CompiledBody(body).render(columns, len(rows))
    assert rendered == [{key: expected(value, row) for key, value in body.items()} for row in rows]


def test_a_body_without_a_tag_is_everybodys() -> None:
    assert CompiledBody({"text": "all"}).render({}, 3) == [{"text": "all"}] * 3


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"html": "{{{x}}}"}, "body.html"),
        ({"text": "fine", "data": {"list": ["{{x}}", "{{a.b}}"]}}, "body.data.list[1]"),
        ({"data": {"a": "{{"}}, "body.data.a"),
        ({"data": {"{{x}}": 1}}, "body.data"),
        ({"{{": 1}, "body"),
    ],
)
def test_what_only_looks_like_a_tag_is_refused_by_its_path(body: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as refused:
        CompiledBody(body)
    assert refused.value.field == path
    with pytest.raises(Invalid, match="'welcome' in 'en'") as refused:
        MessageTexts([template(body)], {}, locale="en")
    assert refused.value.field == path


def test_a_body_that_grows_too_large_is_none() -> None:
    body = CompiledBody({"text": "{{x}}{{x}}{{y}}!"})
    columns = {"x": ["a" * 10, "a" * 50, "", "a" * 49], "y": ["", "", "b", ""], "z": ["", "", "", ""]}
    rendered = body.render(columns, 4, most=100)
    assert [one and len(one["text"]) for one in rendered] == [21, None, 2, 99]
    assert [one and len(one["text"]) for one in body.render(columns, 4, most=101)] == [21, 101, 2, 99]
    assert CompiledBody({"html": "{{x}}"}).render({"x": ["&" * 20]}, 1, most=99) == [None], "as it is escaped"
    fixed = CompiledBody({"text": "{{x}}{{z}}"}).render({"x": ["a", "aaa"]}, 2, fixed={"z": "zz"}, most=4)
    assert fixed == [{"text": "azz"}, None]
    assert CompiledBody({"text": "{{x}}"}).render({"x": ["a" * 2**20, "a" * (2**20 + 1)]}, 2)[1] is None


def test_what_is_alike_for_all_is_cleaned_as_a_column_is() -> None:
    body = CompiledBody({"subject": "{{x}}", "html": "{{x}}", "text": "{{x}}"})
    expected = {"subject": "<a b>", "html": "&lt;a\r\nb&gt;", "text": "<a\r\nb>"}
    assert body.render({}, 2, fixed={"x": "<a\r\nb>"}) == [expected, expected]
    assert body.render({"x": [""]}, 1, fixed={"x": "y"}) == [{"subject": "", "html": "", "text": ""}]
    assert body.render({}, 1) == [{"subject": "", "html": "", "text": ""}]


def only(bodies: list[Body | None]) -> Body:
    (body,) = bodies
    assert body is not None
    return body


def test_columns_win_over_context_and_that_over_defaults() -> None:
    defaults = {"A": "default a", "b": "default b", "c": 3, "d": "default d"}
    mail = template({"text": "{{a}}|{{b}}|{{c}}|{{d}}|{{e}}"}, defaults=defaults)
    texts = MessageTexts([mail], {"a": "context a", "B ": "context b", "d": None}, locale="en")
    assert only(texts.render({"a": [""], "e": ["&"]}, 1)) == {"text": "|context b|3||&"}


def test_a_tag_without_column_context_or_default_is_told() -> None:
    templates = [template({"text": "{{a}}{{b}}"}), template({"text": "{{c}}"}, locale="de", defaults={"c": 1})]
    texts = MessageTexts(templates, {"b": {"no": "text"}}, locale="en")
    with pytest.raises(Invalid, match=r"for \{\{b\}\}$"):
        texts.check_filled(["a"])
    texts.check_filled(["a", "b"])
    with pytest.raises(Invalid, match=r"for \{\{a\}\}, \{\{b\}\}$"):
        texts.check_filled(["c"])


def test_an_object_in_the_context_does_not_bring_the_default_back() -> None:
    texts = MessageTexts([template({"text": "{{a}}"}, defaults={"a": "default"})], {"a": [1]}, locale="en")
    with pytest.raises(Invalid, match=r"for \{\{a\}\}$"):
        texts.check_filled([])


def test_the_link_to_unsubscribe_is_the_callers_alone() -> None:
    texts = MessageTexts([template({"html": "<a href='{{unsubscribe_url}}'>"})], {}, locale="en")
    texts.check_filled([])
    assert texts.used_columns(["unsubscribe_url", "a"]) == ()
    body = only(texts.render({"unsubscribe_url": ["https://x/u/t?a&b"]}, 1))
    assert body["html"] == "<a href='https://x/u/t?a&amp;b'>"


def test_the_column_locale_picks_the_template() -> None:
    templates = [template({"text": f"{locale} {{{{x}}}}"}, locale=locale) for locale in ("en", "de", "pt-br")]
    texts = MessageTexts(templates, {}, locale="DE")
    columns = {"x": ["1", "2", "3", "4", "5"], "locale": ["en", " PT-br", "", "fr", "de"]}
    rendered = [body and body["text"] for body in texts.render(columns, 5)]
    assert rendered == ["en 1", "pt-br 2", "de 3", "de 4", "de 5"]
    assert texts.render({"x": ["1"]}, 1) == [{"text": "de 1"}]
    assert texts.render({"x": ["1"], "locale": ["en"]}, 1) == [{"text": "en 1"}]
    assert texts.render({"x": [], "locale": []}, 0) == []
    assert texts.used_columns(["b", "locale", "x"]) == ("locale", "x")
    assert MessageTexts(templates[:1], {}, locale="en").used_columns(["locale", "x"]) == ("x",)


@pytest.mark.parametrize(
    ("wanted", "used"),
    [("pt-BR", "pt-BR"), ("pt_br", "pt-BR"), ("pt-PT", "pt"), ("PT", "pt"), ("fr-CA-x-a", "fr"), ("zh", "en")],
)
def test_a_locale_falls_back_to_what_it_begins_with(wanted: str, used: str) -> None:
    templates = [template({"text": locale}, locale=locale) for locale in ("en", "pt", "pt-BR", "fr")]
    texts = MessageTexts(templates, {}, locale="en")
    assert texts.render({"locale": [wanted]}, 1) == [{"text": used}]
    if used != "en":
        assert MessageTexts(templates, {}, locale=wanted).render({}, 1) == [{"text": used}]


WITHDRAWN = [("iw", "he"), ("in", "id"), ("ji", "yi"), ("jw", "jv"), ("mo", "ro")]


@pytest.mark.parametrize(("old", "new"), WITHDRAWN)
@pytest.mark.parametrize("written", ["{}", "{}_XX", "{}-XX", "{}-Latn-XX"])
def test_a_withdrawn_code_means_its_successor_on_both_sides(old: str, new: str, written: str) -> None:
    for stored in (old, new, old.upper(), f" {new}"):
        templates = [template({"text": "en"}), template({"text": "it"}, locale=stored)]
        texts = MessageTexts(templates, {}, locale="en")
        wanted = [written.format(code) for code in (old, new, old.upper(), new.upper())]
        assert texts.render({"locale": wanted}, 4) == [{"text": "it"}] * 4
        assert MessageTexts(templates, {}, locale=wanted[0]).render({}, 1) == [{"text": "it"}]


def test_of_two_codes_of_one_language_the_template_in_the_present_one_is_used() -> None:
    templates = [template({"text": locale}, locale=locale) for locale in ("en", "iw", "he")]
    assert MessageTexts(templates, {}, locale="en").render({"locale": ["iw", "he"]}, 2) == [{"text": "he"}] * 2


def test_a_template_in_one_locale_serves_that_alone() -> None:
    assert MessageTexts([template({"text": "olá"}, locale="pt-BR")], {}, locale="pt-br").default_template.body == {
        "text": "olá"
    }
    with pytest.raises(Invalid, match=r"none in the locale 'pt-PT', but in de, pt-BR"):
        MessageTexts([template({}, locale="pt-BR"), template({}, locale="de")], {}, locale="pt-PT")


def test_the_jobs_own_locale_needs_a_template() -> None:
    with pytest.raises(Invalid, match="'fr'") as refused:
        MessageTexts([template({"text": "x"})], {}, locale="fr")
    assert refused.value.field == "template"


def test_two_values_for_one_tag_are_refused() -> None:
    with pytest.raises(Invalid, match="invalid context") as refused:
        MessageTexts([template({"text": "x"})], {"a": 1, "A": 2}, locale="en")
    assert refused.value.field == "context"
    with pytest.raises(Invalid, match="invalid template") as refused:
        MessageTexts([template({"text": "x"}, defaults={"a": 1, "A": 2})], {}, locale="en")
    assert refused.value.field == "template"


@given(st.lists(st.text(), max_size=5))
def test_a_column_is_decoded_value_by_value(texts: list[str]) -> None:
    assert decode_column([text.encode() for text in texts]) == texts


def test_a_body_without_a_word_is_one_for_each() -> None:
    assert CompiledBody({"data": {}}).render({}, 2) == [{"data": {}}, {"data": {}}]
    assert CompiledBody({}).render({}, 2) == [{}, {}]
