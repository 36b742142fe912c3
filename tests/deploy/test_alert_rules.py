"""The alerts of the component `monitoring`: those that `carillon rules` prints, or linked elsewhere by an overlay."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from services.cli import main
from tests.deploy.manifests import K8S
from tests.deploy.rendering import Combination, Renderings, all_combinations, render
from tests.deploy.test_kustomize import of_kind

RULES = K8S / "components" / "monitoring" / "rules.yaml"
WIKI = "https://wiki.example.com/carillon"


def printed(*options: str) -> str:
    done = CliRunner().invoke(main, ["rules", *options])
    assert done.exit_code == 0, done.output
    return done.output


@cache
def rules_printed() -> Any:
    return yaml.load(printed(), yaml.CSafeLoader)


def test_the_component_has_what_the_command_prints() -> None:
    assert RULES.read_text("utf-8") == printed("--kubernetes"), "python -m monitoring"
    assert yaml.safe_load(printed("--kubernetes"))["spec"] == yaml.safe_load(printed())


@pytest.mark.parametrize("combination", all_combinations(), ids=str)
def test_the_alerts_come_with_the_component(renderings: Renderings, combination: Combination) -> None:
    rules = of_kind(renderings[combination], "PrometheusRule")
    assert [each["spec"] for each in rules] == [rules_printed()] * ("monitoring" in combination.components)


def test_an_overlay_may_link_them_to_runbooks_of_its_own(kustomize: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(K8S, tmp_path / "k8s") / "overlays" / "production"
    (folder / "rules.yaml").write_text(printed("--kubernetes", "--runbooks", WIKI), "utf-8")
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    kustomization["patches"].append({"path": "rules.yaml"})
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    (rule,) = of_kind(render([str(kustomize), "build"], folder), "PrometheusRule")
    links = [alert["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert links
    assert all(link.startswith(f"{WIKI}#") for link in links)
