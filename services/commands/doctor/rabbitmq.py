"""The questions to RabbitMQ and to its management API."""

from typing import cast
from urllib.parse import unquote, urlsplit

from services.commands.doctor.questions import (
    INIT,
    LOGIN,
    Answer,
    Given,
    Question,
    Subject,
    address_of,
    command,
    fault,
    name_some,
    reach,
    show_address,
    warn,
    well,
)
from shared.broker.rabbitmq import RabbitBroker
from shared.broker.rabbitmq.management import RabbitInspection
from shared.domain.errors import Denied, NotFound, Unavailable
from shared.runtime.settings import Settings

_PORTS = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}


async def check_login(given: Given) -> Answer:
    """RabbitMQ can be reached, accepts the user and the password of `broker.url`, and has its virtual host. `carillon
    init` makes one that is missing."""
    inspection = _inspection(given)
    await reach(_address(given.settings.broker.url))
    try:
        version = await inspection.read_version()
    except NotFound as error:
        return fault(str(error), INIT)
    except Denied as error:
        return fault(str(error), command("rabbitmqctl", "change_password", inspection.user, "<its password>"))
    return well(f"RabbitMQ {version} lets us in")


async def check_queues(given: Given) -> Answer:
    """Every queue of tasks is there. All are quorum queues: any other queue loses its messages with its node. (Only the
    management API tells the type.)"""
    inspection = _inspection(given)
    if missing := await inspection.find_missing(given.queues):
        return fault(f"missing: {name_some(missing)}", INIT)
    try:
        others = await inspection.find_other_types(given.queues)
    except Unavailable:  # which its own question tells
        return well(f"all {len(given.queues)} are there")
    if not others:
        return well(f"all {len(given.queues)} are there, as quorum queues")
    delete = [command("rabbitmqctl", "delete_queue", "-p", inspection.vhost, name) for name in others]
    said = name_some([f"{name} is {kind}" for name, kind in others.items()])
    return fault(f"not quorum queues: {said}. Their tasks are queued again later", " && ".join([*delete, INIT]))


async def check_management(given: Given) -> Answer:
    """The management API can be reached, and accepts the user and the password of `broker.management_url`; the user
    needs the tag `management` at least. `carillon init` needs it, the other processes do not."""
    await reach(_address(given.settings.broker.management_url))
    return well(f"the management API of RabbitMQ {await _inspection(given).read_management_version()} lets us in")


async def check_rights(given: Given) -> Answer:
    """The user of `broker.url` may read the queues of tasks, and write to `amq.default`: processes need no more
    (`docs/security.md`). Only an administrator of the management API may ask: other users get a warning."""
    inspection = _inspection(given)
    try:
        rights = await inspection.read_rights(given.queues)
    except Denied:
        return _unknown(given, "whether we have all rights")
    if not rights.missing:
        return well(f"{inspection.user} may do all that Carillon does")
    patterns = (rights.configure, rights.write, rights.read)
    change = command("rabbitmqctl", "set_permissions", "-p", inspection.vhost, inspection.user, *patterns)
    return fault(f"{inspection.user} may not {name_some(rights.missing)}", change)


async def check_alarms(given: Given) -> Answer:
    """All nodes run, and none is short of memory or disk space: one that is stops all publishing. Only a user with the
    tag `monitoring` may ask."""
    try:
        alarms = await _inspection(given).find_alarms()
    except Denied:
        return _unknown(given, "whether a node is short of memory or disk space")
    if alarms:
        return fault(f"{name_some(alarms)}: while a node is short of memory or disk space, RabbitMQ takes no messages")
    return well("no node is short of memory or disk space, or away")


def _inspection(given: Given) -> RabbitInspection:
    return cast(RabbitBroker, given.servers.broker).inspection


def _address(url: str) -> tuple[str, int]:
    return address_of(url, _PORTS[urlsplit(url).scheme])


def _unknown(given: Given, what: str) -> Answer:
    manager = unquote(urlsplit(given.settings.broker.management_url).username or "guest")
    tag = command("rabbitmqctl", "set_user_tags", manager, "administrator")
    return warn(f"the management API does not tell {manager} {what}", tag)


def _place(settings: Settings) -> str | None:
    url = settings.broker.url
    if urlsplit(url).scheme == "memory":
        return None
    return f"{show_address(*_address(url))}, virtual host {unquote(urlsplit(url).path[1:]) or '/'}"


def _place_of_management(settings: Settings) -> str | None:
    return None if _place(settings) is None else show_address(*_address(settings.broker.management_url))


RABBITMQ = Subject("RabbitMQ", (Question(LOGIN, check_login), Question("queues", check_queues)), _place)
MANAGEMENT = Subject(
    "RabbitMQ's management",
    (
        Question(LOGIN, check_management),
        Question("rights", check_rights, needs=("RabbitMQ",)),
        Question("alarms", check_alarms),
    ),
    _place_of_management,
)
