"""What the pages on messages and on the bus tell people to type can be typed, and what they tell them to post is
read."""

import re

import msgspec
import pytest

from services.api.bus.native.events import BusEventBody
from services.api.bus.native.subscription_body import EventSubscriptionBody, SecretRotationBody
from services.api.bus.native.topics import BusTopicBody
from services.api.jobs.job_body import JobBody
from services.api.messages.credential_body import CredentialBody
from services.api.messages.retries import RetriedBody
from services.api.messages.single_body import SingleBody
from services.cli.root import NOUNS
from shared.domain.bus.topics import NOTICES
from shared.domain.outbox import JOBS_TOPIC
from tests.monitoring.test_printed import can_be_typed
from tests.stack.places import CHECKOUT

PAGES = (
    "messages", "operating-messages", "moving-from-postman", "unsubscribing",
    "bus", "operating-the-bus", "moving-from-routemaster",
)  # fmt: skip
BODIES = {
    "credentials": CredentialBody,
    "jobs?template=invoice": JobBody,
    "jobs/$JOB/retry": RetriedBody,
    "messages": SingleBody,
}
BUS_BODIES = {
    "topics/orders.v1": BusTopicBody,
    "topics/orders.v1/events": BusEventBody,
    "subscriptions/orders": EventSubscriptionBody,
    "subscriptions/orders/secrets": SecretRotationBody,
    "subscriptions/notices": EventSubscriptionBody,
    "subscriptions/ended": EventSubscriptionBody,
}


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
    assert {path for path, _ in posted} == BODIES.keys()
    for path, body in posted:
        msgspec.json.decode(body, type=BODIES[path])


def test_the_bodies_of_the_bus_are_read_and_who_subscribes_gets_what_is_published() -> None:
    posted = re.findall(r"\$BUS/bus/(\S+) [^\n]*?\s+-d '(.*?)'", read_page("bus"), re.DOTALL)
    assert {path for path, _ in posted} == BUS_BODIES.keys()
    read = [(path, msgspec.json.decode(body, type=BUS_BODIES[path])) for path, body in posted]
    subscribed = {topic for _, body in read if isinstance(body, EventSubscriptionBody) for topic in body.topics or ()}
    published = {path.split("/")[1] for path, body in read if isinstance(body, BusEventBody)}
    assert subscribed == published | {NOTICES, JOBS_TOPIC}
