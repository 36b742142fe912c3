"""Prometheus' own tool takes the rules, and each fires where it must and not just below."""

import pytest

from monitoring.__main__ import ROOT
from shared.console.rules.signs import SIGNS
from tests.monitoring.prometheus import promtool

pytestmark = pytest.mark.native
FOLDER = ROOT / "monitoring" / "prometheus"


def test_the_rules_are_rules() -> None:
    checked = promtool("check", "rules", "carillon.rules.yaml", cwd=FOLDER)
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(SIGNS)} rules found" in checked.stdout


@pytest.mark.slow
def test_every_alert_fires_where_it_must_and_not_just_below() -> None:
    tested = promtool("test", "rules", "carillon.rules.test.yaml", cwd=FOLDER)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_configuration_to_begin_from_is_one() -> None:
    checked = promtool("check", "config", "prometheus.yaml", cwd=FOLDER)
    assert checked.returncode == 0, checked.stderr
