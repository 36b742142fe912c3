"""All that the tests need and Python's registry does not have: `make deps` fetches it before the first test."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.stack import openapi_generator, places
from tests.stack.install import need_program
from tests.stack.kafka import KafkaServer
from tests.stack.kustomize import need_kustomize
from tests.stack.maven import need_jars
from tests.stack.npm import need_packages
from tests.stack.rabbitmq import RabbitServer
from tests.stack.server import Missing

_PROGRAMS = {
    "chromium": "chromium",
    "faketime": "faketime",
    "go": "golang-go",
    "java": "default-jre-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "promtool": "prometheus",
    "psql": "postgresql-client",
}
_NPM_PROJECTS = ("browser/axe", "client/other_languages/typescript")


def fetch_all() -> list[str]:
    """Fetch what is missing; the reasons of what could not be had. The tests that need those are skipped."""
    steps: list[Callable[[], Any]] = [partial(need_program, *each) for each in _PROGRAMS.items()]
    steps += [RabbitServer().install, KafkaServer().install, need_kustomize]
    steps += [partial(need_jars, "openapi-generator", openapi_generator.POM)]
    steps += [partial(need_packages, places.CHECKOUT / "tests" / Path(each)) for each in _NPM_PROJECTS]
    return [reason for step in steps if (reason := _reason_against(step))]


def _reason_against(step: Callable[[], Any]) -> str:
    try:
        step()
    except Missing as missing:
        return str(missing)
    return ""
