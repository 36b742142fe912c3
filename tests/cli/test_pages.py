"""The commands that pages name in passing can be typed; e2e/test_first_steps.py types their examples."""

import re

import pytest

from services.cli.root import NOUNS
from tests.monitoring.test_printed import can_be_typed
from tests.stack.places import CHECKOUT

PAGES = (
    "messages", "single-messages", "ledger", "operating-messages", "moving-from-postman",
    "bus", "operating-the-bus", "moving-from-routemaster", "nothing-arrived",
)  # fmt: skip


def read_page(name: str) -> str:
    return (CHECKOUT / "docs" / f"{name}.md").read_text("utf-8").replace("\\\n", " ")


def commands_in(page: str) -> set[str]:
    typed = set(re.findall(r"`carillon ([^`]+)`", page))
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        typed |= {re.split(" > | # ", line)[0] for line in re.findall(r"^carillon (.*)$", block, re.MULTILINE)}
    return typed


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_can_be_typed(name: str) -> None:
    commands = commands_in(read_page(name)) - NOUNS.keys()
    assert commands
    assert [command for command in commands if not can_be_typed(command)] == []
