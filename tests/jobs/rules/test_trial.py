"""A trial of a template tells what it becomes, or what is wrong and where."""

from typing import Any

import pytest

from shared.jobs.rules.templates import Template, Trial, try_template


def tried(body: Any, context: dict[str, Any] | None = None, *, most: int = 1_000, **fields: Any) -> Trial:
    template = Template(id="", app_id="", name="tried", locale="en", body=body, **fields)
    return try_template(template, context or {}, most=most)


def test_a_template_is_filled_and_its_empty_tags_are_told() -> None:
    trial = tried({"alert": "{{who}} likes {{what}} {{why}}"}, {"who": "Ana"}, defaults={"what": "it", "who": "?"})
    assert trial == Trial(body={"alert": "Ana likes it "}, size=len('{"alert":"Ana likes it "}'), valueless=("why",))


@pytest.mark.parametrize(
    ("body", "context", "field", "fault"),
    [
        ({"alert": {"title": "{{open"}}, {}, "body.alert.title", "never closes it"),
        ({"args": ["a", {"b": "{{x"}]}, {}, "body.args[1].b", "never closes it"),
        ({}, {}, "body", "at least one key"),
        ({"alert": "{{who}}{{what}}"}, {"who": "a", "what": [1]}, "context.what", "an object or an array"),
        ({"alert": "{{a}}" * 30}, {"a": "x" * 50}, "body", "too-large"),
        ({"alert": "a"}, {"a": "x\0"}, "context.a", "NUL"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(body: Any, context: dict[str, Any], field: str, fault: str) -> None:
    trial = tried(body, context)
    assert (trial.body, trial.field) == (None, field)
    assert fault in trial.fault


def test_what_no_memory_holds_is_never_made() -> None:
    trial = tried({"alert": "{{a}}" * 13_000}, {"a": "x" * 65_536}, most=1_000_000)
    assert (trial.body, trial.size) == (None, 851_968_012)
