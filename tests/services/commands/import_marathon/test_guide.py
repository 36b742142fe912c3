"""The guide for those who move from Marathon names settings and metrics that there are."""

import re
from pathlib import Path

from shared.runtime import metrics
from shared.runtime.settings import Settings

GUIDE = (Path(__file__).parents[4] / "docs" / "moving-from-marathon.md").read_text()


def part(title: str) -> str:
    """One chapter."""
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_setting_of_ours_in_it_exists() -> None:
    sections = Settings().sections()
    named = {each for each in re.findall(r"`([a-z]+)\.([a-z_]+)`", GUIDE) if each[0] in sections}
    assert len(named) > 20
    for section, field in named:
        assert hasattr(sections[section], field), f"{section}.{field}"


def test_every_metric_of_ours_in_it_exists() -> None:
    """Of each row of the table, the right-hand side."""
    page = metrics.page().decode()
    known = set(re.findall(r"^# HELP carillon_(\w+) ", page, re.MULTILINE))
    rows = [line.split("|")[2] for line in part("Metrics").splitlines() if line.startswith("| ") and "---" not in line]
    named = {name for row in rows[1:] for name in re.findall(r"`([a-z]+_[a-z_]+)[`{]", row)}
    assert len(named) > 10
    assert named <= known
