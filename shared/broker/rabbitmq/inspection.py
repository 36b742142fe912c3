"""The questions of `carillon doctor` to RabbitMQ. Nothing here changes anything: queues are declared passively."""

import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from aio_pika.abc import AbstractChannel
from aiormq.exceptions import (
    AuthenticationError,
    ChannelNotFoundEntity,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from msgspec import Struct

from shared.broker.rabbitmq.links import Line, Link
from shared.broker.rabbitmq.management import (
    PRIORITY,
    Management,
    Policy,
    Unmanageable,
    find_winner,
    policy_of,
)
from shared.domain.errors import Denied, Unavailable

TASK_QUEUES = r"^((push|sched|carillon|bus)\..*|ops\.bulk.*|message\.(batch|single).*)$"
"""The queues that processes read, as `docs/security.md` grants them."""
DEFAULT_EXCHANGE = "amq.default"
NOTHING = "^$"
ANSWER_SECONDS = 6.0  # whoever asks has less patience, and says so in his own words
QUORUM = "quorum"
_DENIALS = (401, 403)

Answered = TypeVar("Answered")


class NoVirtualHost(Unavailable):
    """The virtual host is missing, or closed to our user."""


class QueueSize(Struct, frozen=True):
    """A queue that is there: who consumes from it, and what waits."""

    consumers: int
    messages: int


class RuledBy(Struct, frozen=True):
    """A queue that is not ruled as it must be, and by which policy; `None` where there is none.

    `beats_ours` tells that it would go on to rule if ours were set.
    """

    queue: str
    policy: str | None
    priority: int
    beats_ours: bool
    lacks: Sequence[str]


class Rights(Struct, frozen=True):
    """The rights that our user lacks in the virtual host, as `read on push.batch`, and the permissions that let him do
    it: those that he has, wider where they must be."""

    missing: Sequence[str]
    configure: str
    write: str
    read: str


class NodeAlarm(Struct, frozen=True):
    """A node that is short of something, or away."""

    node: str
    of: str


class RabbitInspection:
    """Questions to one virtual host. All raise `Unavailable`; as `Denied` where the server does not let us ask."""

    def __init__(self, line: Line, management: Management, *, vhost: str, user: str) -> None:
        self._line = line
        self._management = management
        self.vhost = vhost
        self.user = user

    async def read_version(self) -> str:
        """The version of the server; with it, login and virtual host are known to be good.

        Raises `Denied` for a login that is refused, and `NoVirtualHost`.
        """
        async with self._ask("login") as link:
            transport = link.connection.transport
            properties: Mapping[str, Any] = transport.connection.server_properties if transport else {}
            return str(properties.get("version", "unknown"))

    async def ping(self) -> None:
        """Open a channel, and close it."""
        async with self._ask("ping") as link, _channel(link):
            pass

    async def find_queues(self, names: Iterable[str]) -> dict[str, QueueSize | None]:
        """Which of these queues there are; asking for one that is missing closes its channel."""
        return {name: await self._find_queue(name) for name in names}

    async def find_other_types(self, names: Iterable[str]) -> dict[str, str]:
        """Those of these queues that are no quorum queues, and what they are."""
        wanted = set(names)
        return {
            queue["name"]: queue["type"]
            for queue in await self._management.list_all_queues()
            if queue["name"] in wanted and queue.get("type", QUORUM) != QUORUM
        }

    async def find_unruled(self, queues: Iterable[str]) -> list[RuledBy]:
        """The queues that are ruled by another policy than they need."""
        listed = await _explain_denial(self._management.list_policies())
        return [ruled for policy in map(policy_of, queues) if (ruled := _judge(policy, listed)) is not None]

    async def find_alarms(self) -> list[NodeAlarm]:
        """The nodes that are short of something, or away: RabbitMQ takes no message while one is short."""
        nodes = await self._ask_management("/nodes?columns=name,running,mem_alarm,disk_free_alarm")
        signs = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}
        return [
            *(NodeAlarm(node["name"], of) for node in nodes or () for sign, of in signs.items() if node.get(sign)),
            *(NodeAlarm(node["name"], "") for node in nodes or () if not node.get("running", True)),
        ]

    async def read_rights(self, queues: Iterable[str]) -> Rights:
        """Our user's rights, and missing ones, to what processes do: they read these queues, and write to
        all by the default exchange. Things that `carillon init` makes are found missing elsewhere."""
        path = f"/permissions/{quote(self.vhost, safe='')}/{quote(self.user, safe='')}"
        granted = await self._ask_management(path) or {}
        configure, write, read = (granted.get(right) or NOTHING for right in ("configure", "write", "read"))
        unwritable, unreadable = _find_closed(write, [DEFAULT_EXCHANGE]), _find_closed(read, list(queues))
        return Rights(
            missing=[f"write on {name}" for name in unwritable] + [f"read on {name}" for name in unreadable],
            configure=configure,
            write=_widen(write, f"^{re.escape(DEFAULT_EXCHANGE)}$") if unwritable else write,
            read=_widen(read, TASK_QUEUES) if unreadable else read,
        )

    async def read_management_version(self) -> str:
        """The version that the management API tells."""
        return str((await self._ask_management("/overview?columns=rabbitmq_version") or {}).get("rabbitmq_version"))

    async def _ask_management(self, path: str) -> Any:
        return await _explain_denial(self._management.ask(path))

    async def _find_queue(self, name: str) -> QueueSize | None:
        try:
            async with self._ask(f"look at {name}") as link, _channel(link) as channel:
                result = (await channel.declare_queue(name, passive=True)).declaration_result
        except Unavailable as error:
            if isinstance(error.__cause__, ChannelNotFoundEntity):
                return None
            raise
        return QueueSize(result.consumer_count or 0, result.message_count or 0)

    @asynccontextmanager
    async def _ask(self, what: str) -> AsyncIterator[Link]:
        try:
            async with self._line.ask(what, ANSWER_SECONDS) as link:
                yield link
        except Unavailable as error:
            raise _explain(error, self.user, self.vhost) from error.__cause__


@asynccontextmanager
async def _channel(link: Link) -> AsyncIterator[AbstractChannel]:
    async with link.connection.channel(publisher_confirms=False) as channel:
        yield channel


async def _explain_denial(answer: Awaitable[Answered]) -> Answered:
    """The answer of the management API. Raises `Denied` where it does not let us ask."""
    try:
        return await answer
    except Unmanageable as error:
        if error.status in _DENIALS:
            raise Denied(f"the management API does not let us ask: {error}") from error
        raise


def _find_closed(pattern: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if not re.search(pattern, name)]


def _widen(pattern: str, other: str) -> str:
    return other if pattern == NOTHING else f"{pattern}|{other}"


def _explain(error: Unavailable, user: str, vhost: str) -> Unavailable:
    cause = error.__cause__
    if isinstance(cause, (AuthenticationError, ProbableAuthenticationError)):
        return Denied(f"RabbitMQ does not accept the user {user} or the password")
    if isinstance(cause, InvalidFrameError):
        return NoVirtualHost(f"the virtual host {vhost} does not exist, or {user} may not use it")
    return error


def _judge(wanted: Policy, listed: Sequence[Mapping[str, Any]]) -> RuledBy | None:
    winner = find_winner(wanted.name, listed)
    rules: Mapping[str, Any] = {} if winner is None else winner["definition"]
    lacks = [name for name, value in wanted.definition.items() if rules.get(name) != value]
    if not lacks:
        return None
    if winner is None:
        return RuledBy(wanted.name, None, 0, beats_ours=False, lacks=lacks)
    beats = winner["name"] != wanted.name and winner["priority"] >= PRIORITY
    return RuledBy(wanted.name, winner["name"], winner["priority"], beats_ours=beats, lacks=lacks)
