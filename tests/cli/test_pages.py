"""What the pages on messages and on the bus tell people to type can be typed, and what they tell them to post is
read."""

import re

import msgspec
import pytest

from services.api.messages.single_body import SingleBody
from services.cli.root import NOUNS
from tests.monitoring.test_printed import can_be_typed
from tests.stack.places import CHECKOUT

PAGES = (
    "messages", "operating-messages", "moving-from-postman", "unsubscribing",
    "bus", "operating-the-bus", "moving-from-routemaster",
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


def test_the_bodies_of_the_page_are_read() -> None:
    posted = re.findall(r"/apps/\$APP/(\S+?)\"[^\n]*?\s+-d '(.*?)'", read_page("messages"), re.DOTALL)
    assert {path for path, _ in posted} == {"messages"}
    for _, body in posted:
        msgspec.json.decode(body, type=SingleBody)
