"""What is printed says what the code says, and names what is there."""

import json
import re
from pathlib import Path

import click
import pytest

from monitoring.__main__ import ROOT, printed
from monitoring.dashboards import DASHBOARDS
from monitoring.pages import dashboards_with, labels_of, our_metrics, sample_name
from monitoring.rule_cases import CASES
from services.cli import main
from shared.console.rules.signs import _REFUSALS, SIGNS, Sign
from shared.core import errors
from tests.monitoring.expressions import every_expression

RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
METRICS = {sample_name(metric): set(labels_of(metric)) for metric in our_metrics()}
# What Prometheus adds to every series, and to every bucket.
ADDED_LABELS = {"le", "instance", "alertname", "severity", "alertstate"}


@pytest.mark.parametrize("path", printed(), ids=lambda path: path.name)
def test_it_was_printed_since_the_code_changed(path: Path) -> None:
    assert path.read_text("utf-8") == printed()[path], "python -m monitoring"


def names_in(expression: str) -> set[str]:
    found = re.findall(r"\bcarillon_\w+", re.sub(r'"[^"]*"', '""', expression))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name not in METRICS else name for name in found}


def labels_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', '""', expression)
    by = [label.strip() for group in re.findall(r"by \(([^)]*)\)", bare) for label in group.split(",")]
    return {*by, *re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", bare)}


@pytest.mark.parametrize(("place", "expression"), every_expression().items())
def test_an_expression_names_metrics_and_labels_that_there_are(place: str, expression: str) -> None:
    names = names_in(expression)
    assert names <= METRICS.keys()
    known = {label for name in names for label in METRICS[name]} | ADDED_LABELS
    assert labels_in(expression) <= known


def test_every_metric_is_told_of_and_shown() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert [name for name in METRICS if f"- `{name}`: " not in documented] == []
    assert [name for name in METRICS if not dashboards_with(name)] == []


def test_no_label_has_values_without_end() -> None:
    assert {label for labels in METRICS.values() for label in labels}.isdisjoint({"job", "id", "key", "user", "name"})


def test_every_sign_has_its_runbook_in_their_order() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == [sign.name for sign in SIGNS]


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
def test_a_runbook_says_all_that_one_has_to_say(sign: Sign) -> None:
    section = RUNBOOKS.partition(f"\n## {sign.name}\n")[2].partition("\n## ")[0]
    told = re.findall(r"^- \*\*(.+?)\.\*\*", section, re.MULTILINE)
    assert told == ["Meaning", "Users notice", "Look at", "Type"]
    minutes = "at once" if not sign.minutes else f"after {sign.minutes} minute{'s' * (sign.minutes > 1)}"
    assert section.strip().startswith(f"*{sign.severity.value.capitalize()}, {minutes}.*")


def test_runbooks_name_panels_and_commands_that_there_are() -> None:
    titles = [panel.title for panels in DASHBOARDS.values() for panel in panels]
    named = re.findall(r"\*([A-Z][^*.]+)\*", re.sub(r"^\*.*$|\*\*.*?\*\*", "", RUNBOOKS, flags=re.MULTILINE))
    assert len(named) > 20
    assert [name for name in named if not any(title.startswith(name) for title in titles)] == []
    commands = set(re.findall(r"`carillon ([^`]+)`", RUNBOOKS))
    assert len(commands) > 15
    assert [command for command in commands if not can_be_typed(command)] == []


def can_be_typed(words: str) -> bool:
    """Whether there is such a command, with its verb and its flags."""
    command: click.Command | None = main
    context = click.Context(main)
    left = words.split()
    while left and isinstance(command, click.Group):
        command = command.get_command(context, left.pop(0))
    if command is None or isinstance(command, click.Group):
        return False
    flags = {flag for parameter in command.params for flag in parameter.opts}
    return {word for word in left if word.startswith("--")} <= flags


def test_every_sign_has_a_case_that_fires_and_one_just_below() -> None:
    assert CASES.keys() == {sign.name for sign in SIGNS}
    assert all(case.fires != case.below for cases in CASES.values() for case in cases)


def test_no_two_signs_have_one_name_and_sentences_are_sentences() -> None:
    assert len({sign.name for sign in SIGNS}) == len(SIGNS)
    assert all(text.endswith(".") for sign in SIGNS for text in (sign.sentence, sign.remedy))


def test_what_is_refused_counts_as_no_failure_of_a_server() -> None:
    def below(kind: type[Exception]) -> set[str]:
        own = [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
        return {each.__name__ for each in own}.union(*(below(each) for each in own))

    assert set(_REFUSALS.split("|")) == below(errors.Refused)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    board = json.loads((ROOT / "monitoring" / "grafana" / f"{name}.json").read_text("utf-8"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["title"] for panel in board["panels"]}) == len(places)
    assert all(target["expr"] and target["legendFormat"] for panel in board["panels"] for target in panel["targets"])


def test_the_lines_of_a_panel_are_named_by_labels_that_they_have() -> None:
    for panels in DASHBOARDS.values():
        for panel in panels:
            for line, expression in panel.lines.items():
                assert set(re.findall(r"{{(\w+)}}", line)) <= labels_in(expression), panel.title
