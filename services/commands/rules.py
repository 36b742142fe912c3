"""`carillon rules`: the signs as alert rules for Prometheus."""

from collections.abc import Iterator

import click
import msgspec

from shared.domain.console.signs import SIGNS, Sign

RUNBOOKS = "docs/runbooks.md"


@click.command("rules", short_help="Print the alert rules for Prometheus.")
@click.option("--runbooks", default=RUNBOOKS, show_default=True, help="The page that alerts link to, as a URL.")
def print_rules(runbooks: str) -> None:
    """Print the alert rules for Prometheus, as a file that `rule_files` may name. Each links to its runbook."""
    click.echo(describe_rules(runbooks), nl=False)


def describe_rules(runbooks: str = RUNBOOKS) -> str:
    """The rules as YAML."""
    head = ["# Printed by `carillon rules`.", "groups:", "  - name: carillon", "    rules:"]
    return "\n".join([*head, *(line for sign in SIGNS for line in _rule(sign, runbooks))]) + "\n"


def _rule(sign: Sign, runbooks: str) -> Iterator[str]:
    yield f"      - alert: {sign.name}"
    yield f"        expr: {_text(sign.expression)}"
    if sign.minutes:
        yield f"        for: {sign.minutes}m"
    yield "        labels:"
    yield f"          severity: {sign.severity}"
    yield "        annotations:"
    yield f"          summary: {_text(sign.sentence)}"
    yield f"          description: {_text(sign.remedy)}"
    yield f"          runbook_url: {_text(f'{runbooks}#{sign.name.lower()}')}"


def _text(text: str) -> str:
    """A text as JSON writes it, which YAML reads too."""
    return msgspec.json.encode(text).decode()
