"""The guides for those who move here name settings and metrics that there are."""

import re
from pathlib import Path

import pytest

from shared.runtime import metrics
from shared.runtime.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = {
    "moving-from-marathon": (20, 10),
    "moving-from-routemaster": (10, 10),
}
"""How many settings and metrics each names at least."""


def read(guide: str) -> str:
    return (DOCS / f"{guide}.md").read_text("utf-8")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_setting_of_ours_in_it_exists(guide: str) -> None:
    sections = Settings().sections()
    named = {each for each in re.findall(r"`([a-z]+)\.([a-z_]+)`", read(guide)) if each[0] in sections}
    assert len(named) > GUIDES[guide][0]
    for section, field in named:
        assert hasattr(sections[section], field), f"{section}.{field}"


@pytest.mark.parametrize("guide", GUIDES)
def test_every_metric_of_ours_in_it_exists(guide: str) -> None:
    """Of each row of the table, the right-hand side."""
    page = metrics.page().decode()
    known = set(re.findall(r"^# HELP carillon_(\w+) ", page, re.MULTILINE))
    chapter = read(guide).partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in chapter.splitlines() if line.startswith("| ") and "---" not in line]
    named = {name for row in rows[1:] for name in re.findall(r"`([a-z]+_[a-z_]+)[`{]", row)}
    assert len(named) > GUIDES[guide][1]
    assert named <= known
