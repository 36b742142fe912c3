"""`python -m monitoring` prints anew: alert rules and their tests, dashboards, and the table of metrics."""

import json
from pathlib import Path

from monitoring.dashboards import DASHBOARDS, grafana
from monitoring.pages import with_metrics
from monitoring.rule_cases import describe_cases
from services.commands.rules import describe_kubernetes_rules, describe_rules

ROOT = Path(__file__).parents[1]
METRICS = ROOT / "docs" / "metrics.md"


def printed() -> dict[Path, str]:
    """Each printed file and what it has to say."""
    here = ROOT / "monitoring"
    boards = {
        here / "grafana" / f"{name}.json": json.dumps(grafana(name), indent=1, ensure_ascii=False) + "\n"
        for name in DASHBOARDS
    }
    rules = {
        here / "prometheus" / "carillon.rules.yaml": describe_rules(),
        here / "prometheus" / "carillon.rules.test.yaml": describe_cases(),
        ROOT / "k8s" / "components" / "monitoring" / "rules.yaml": describe_kubernetes_rules(),
    }
    return boards | rules | {METRICS: with_metrics(METRICS.read_text("utf-8"))}


if __name__ == "__main__":
    for path, content in printed().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
