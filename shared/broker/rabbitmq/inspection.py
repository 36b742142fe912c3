"""The questions of `carillon doctor` to RabbitMQ. They change nothing: queues are declared passively."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from aiormq.exceptions import (
    AuthenticationError,
    ChannelNotFoundEntity,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from msgspec import Struct

from shared.broker.rabbitmq.links import Line, Link
from shared.broker.rabbitmq.management import Management, Unmanageable
from shared.domain.errors import Denied, NotFound, Unavailable

TASK_QUEUES = r"^((push|sched|carillon|bus)\..*|ops\.bulk.*|message\.(batch|single).*)$"
"""The queues that processes read, as `docs/security.md` grants them."""
DEFAULT_EXCHANGE = "amq.default"
NOTHING = "^$"
ANSWER_SECONDS = 6.0  # longer than the doctor waits for an answer
QUORUM = "quorum"
_DENIALS = (401, 403)


class Rights(Struct, frozen=True):
    """`missing` lists the user's missing rights, such as `read on push.batch`. The patterns grant them beside the
    present ones."""

    missing: Sequence[str]
    configure: str
    write: str
    read: str


class RabbitInspection:
    """Questions to one virtual host. Each raises `Denied`, an `Unavailable`, if the server forbids the question."""

    def __init__(self, line: Line, management: Management, *, vhost: str, user: str) -> None:
        self._line = line
        self._management = management
        self.vhost = vhost
        self.user = user

    async def read_version(self) -> str:
        """Read the server's version. An answer proves that login and virtual host are good.

        Raises `Denied` for a refused login, and `NotFound` for a virtual host that is missing or closed to the user.
        """
        async with self._ask("login") as link:
            transport = link.connection.transport
            return str((transport.connection.server_properties if transport else {}).get("version", "unknown"))

    async def find_missing(self, queues: Sequence[str]) -> list[str]:
        return [queue for queue in queues if not await self._has(queue)]

    async def find_other_types(self, queues: Sequence[str]) -> dict[str, str]:
        found = await self._ask_management(f"/queues/{quote(self.vhost, safe='')}?columns=name,type") or []
        types = {queue["name"]: queue.get("type", QUORUM) for queue in found if queue["name"] in queues}
        return {name: kind for name, kind in types.items() if kind != QUORUM}

    async def find_alarms(self) -> list[str]:
        """Nodes that are short of something or away, such as `rabbit@a is short of memory`."""
        nodes = await self._ask_management("/nodes?columns=name,running,mem_alarm,disk_free_alarm") or []
        signs = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}
        short = [f"{node['name']} is short of {of}" for node in nodes for sign, of in signs.items() if node.get(sign)]
        return short + [f"{node['name']} is away" for node in nodes if not node.get("running", True)]

    async def read_rights(self, queues: Sequence[str]) -> Rights:
        """Compare the user's rights with those needed: read the queues, and write to them by the default exchange."""
        path = f"/permissions/{quote(self.vhost, safe='')}/{quote(self.user, safe='')}"
        granted = await self._ask_management(path) or {}
        configure, write, read = (granted.get(right) or NOTHING for right in ("configure", "write", "read"))
        writes = re.search(write, DEFAULT_EXCHANGE) is not None
        unread = [queue for queue in queues if not re.search(read, queue)]
        return Rights(
            missing=[*([] if writes else [f"write on {DEFAULT_EXCHANGE}"]), *(f"read on {queue}" for queue in unread)],
            configure=configure,
            write=write if writes else _widen(write, f"^{re.escape(DEFAULT_EXCHANGE)}$"),
            read=_widen(read, TASK_QUEUES) if unread else read,
        )

    async def read_management_version(self) -> str:
        return str((await self._ask_management("/overview?columns=rabbitmq_version") or {}).get("rabbitmq_version"))

    async def _ask_management(self, path: str) -> Any:
        try:
            return await self._management.ask(path)
        except Unmanageable as error:
            if error.status in _DENIALS:
                raise Denied(f"the management API does not let us ask: {error}") from error
            raise

    async def _has(self, queue: str) -> bool:
        try:
            async with (
                self._ask(f"look at {queue}") as link,
                link.connection.channel(publisher_confirms=False) as channel,
            ):
                await channel.declare_queue(queue, passive=True)
        except Unavailable as error:
            if isinstance(error.__cause__, ChannelNotFoundEntity):
                return False
            raise
        return True

    @asynccontextmanager
    async def _ask(self, what: str) -> AsyncIterator[Link]:
        try:
            async with self._line.ask(what, ANSWER_SECONDS) as link:
                yield link
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, (AuthenticationError, ProbableAuthenticationError)):
                raise Denied(f"RabbitMQ does not accept the user {self.user} or the password") from cause
            if isinstance(cause, InvalidFrameError):
                said = f"the virtual host {self.vhost} does not exist, or {self.user} may not use it"
                raise NotFound(said) from cause
            raise


def _widen(pattern: str, other: str) -> str:
    return other if pattern == NOTHING else f"{pattern}|{other}"
