"""`docs/clients.md` shows programs that are checked, and what their clients were generated with."""

import re

import pytest
import yaml

from tests.client.other_languages.languages import PROJECTS
from tests.stack.openapi_generator import POM
from tests.stack.places import CHECKOUT

pytestmark = pytest.mark.later("generates and compiles clients in Go and TypeScript")

PAGE = (CHECKOUT / "docs" / "clients.md").read_text("utf-8")


@pytest.mark.parametrize("program", ["typescript/first_job.ts", "go/first_job/main.go"])
def test_it_shows_the_first_jobs_as_they_are_checked(program: str) -> None:
    assert (PROJECTS / program).read_text("utf-8") in PAGE


@pytest.mark.parametrize("language", ["typescript", "go"])
def test_it_names_the_options_that_they_are_checked_with(language: str) -> None:
    asked = yaml.safe_load((PROJECTS / language / "generator.yaml").read_text("utf-8"))
    commands = PAGE.replace("\\\n", " ")
    [line] = re.findall(rf"generate .*-g {asked['generatorName']} .*", commands)
    for name, value in (asked["additionalProperties"] | asked.get("typeMappings", {})).items():
        assert f"{name}={value if isinstance(value, str) else str(value).lower()}" in line


def test_it_names_the_version_that_they_are_checked_with() -> None:
    [version] = re.findall(r"openapi-generator-cli</artifactId><version>([\d.]+)<", POM.read_text("utf-8"))
    assert f"openapi-generator {version}" in PAGE
