"""`carillon rules`: the signs as alert rules for Prometheus."""

import textwrap
from collections.abc import Iterator

import click
import msgspec

from shared.console.rules.signs import SIGNS, Sign

RUNBOOKS = "docs/runbooks.md"

_PROMETHEUS_RULE = """\
# Printed by `carillon rules --kubernetes`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: carillon
  namespace: carillon
  labels:
    app.kubernetes.io/name: carillon
spec:
"""


@click.command("rules", short_help="Print the alert rules for Prometheus.")
@click.option("--runbooks", default=RUNBOOKS, show_default=True, help="URL of the page that alerts link to.")
@click.option("--kubernetes", is_flag=True, help="Print a PrometheusRule for Prometheus Operator.")
def print_rules(runbooks: str, *, kubernetes: bool) -> None:
    """Print the alert rules for Prometheus, as a file that `rule_files` may name. Each links to its runbook."""
    describe = describe_kubernetes_rules if kubernetes else describe_rules
    click.echo(describe(runbooks), nl=False)


def describe_rules(runbooks: str = RUNBOOKS) -> str:
    head = ["# Printed by `carillon rules`.", "groups:", "  - name: carillon", "    rules:"]
    return "\n".join([*head, *(line for sign in SIGNS for line in _rule(sign, runbooks))]) + "\n"


def describe_kubernetes_rules(runbooks: str = RUNBOOKS) -> str:
    return _PROMETHEUS_RULE + textwrap.indent(describe_rules(runbooks).partition("\n")[2], "  ")


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
