"""Every expression that Prometheus is asked on our behalf: by alert rules, by panels, and by what scales pods."""

from collections.abc import Iterator

import yaml

from monitoring import dashboards
from shared.console.rules.signs import SIGNS
from tests.deploy.manifests import ROOT


def every_expression() -> dict[str, str]:
    """All of them, by where they stand."""
    rules = {f"rule {sign.name}": sign.expression for sign in SIGNS}
    return rules | dict(dashboards.expressions()) | dict(_scaled())


def _scaled() -> Iterator[tuple[str, str]]:
    """The queries of KEDA's triggers, in any manifest."""
    for path in sorted((ROOT / "k8s").rglob("*.yaml")):
        for manifest in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            if isinstance(manifest, dict) and manifest.get("kind") == "ScaledObject":
                for trigger in manifest["spec"]["triggers"]:
                    if trigger["type"] == "prometheus":
                        yield f"{path.name}: {manifest['metadata']['name']}", trigger["metadata"]["query"]
