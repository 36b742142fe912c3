"""RabbitMQ's management API for tasks that AMQP lacks: make the virtual host, grant permissions, set policies.

A queue's arguments can never change, but a policy can. So the queues carry only their type, and the policy of each
sets a delivery limit of a million. RabbitMQ 4 would drop a task after 20 deliveries, and a task comes back once for
every killed worker that held it; Carillon's own counts decide which task failed too often. The limit is not `-1`:
3.10 refuses that, and 4.x may ignore it in a policy or answer with an ever growing log.

Policies are set before the queues are made, because a policy reaches an existing queue only a moment later.

The questions of `carillon doctor` change nothing: queues are declared passively.
"""

import asyncio
import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from aiormq.exceptions import AuthenticationError, ChannelNotFoundEntity, InvalidFrameError, ProbableAuthenticationError
from msgspec import Struct

from shared.console.rules.processes import QueueState
from shared.core.errors import Denied, NotFound, Unavailable
from shared.core.tasks import TASK_PREFIXES
from shared.drivers.rabbitmq.links import Line, Link
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

DELIVERY_LIMIT = 1_000_000
ANSWER_SECONDS = 10.0
# Above 0, which an operator's catch-all policy usually has: only one policy applies to a queue.
PRIORITY = 10
_TASK_QUEUES = f"^({'|'.join(map(re.escape, TASK_PREFIXES))})"
_MOST = 200
QUEUE_POLICIES = frozenset({"queues", "quorum_queues", "all"})


class Unmanageable(Unavailable):
    """The management API is away or not configured; with a `status`, it refuses."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


def policy_of(queue: str) -> dict[str, Any]:
    """The policy of this queue alone: its pattern is the whole name."""
    return {
        "pattern": f"^{re.escape(queue)}$",
        "definition": {"delivery-limit": DELIVERY_LIMIT},
        "priority": PRIORITY,
        "apply-to": "queues",
    }


def effective(queue: str, listed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The definition that wins for this queue among a virtual host's policies, as the API lists them."""
    fitting = [
        policy
        for policy in listed
        if policy["apply-to"] in QUEUE_POLICIES and re.search(policy["pattern"], queue) is not None
    ]
    winner = max(fitting, key=lambda policy: policy["priority"], default=None)
    definition: Mapping[str, Any] = {} if winner is None else winner["definition"]
    return definition


class Management:
    """One virtual host in the management API at `url` (`http://user:password@host:port`, or `None`)."""

    def __init__(self, url: str | None, *, vhost: str, user: str, tls: TlsSettings = NO_FILES) -> None:
        self._url = url
        self._trust = client_context(tls) if url is not None and urlsplit(url).scheme == "https" else None
        self._vhost = quote(vhost, safe="")
        self._user = user

    async def prepare(self, queues: tuple[str, ...]) -> None:
        """Make the virtual host if it is missing, and set the policies."""
        await self._ensure_vhost()
        for queue in queues:
            await self._call("PUT", f"/policies/{self._vhost}/{quote(queue, safe='')}", policy_of(queue))

    async def check(self, queues: tuple[str, ...]) -> None:
        listed = await self.ask(f"/policies/{self._vhost}") or []
        for queue in queues:
            rules = effective(queue, listed)
            if not policy_of(queue)["definition"].items() <= rules.items():
                raise Unavailable(f"policy of queue {queue} is {dict(rules)}: `carillon init` sets it")

    async def list_queues(self) -> list[QueueState]:
        """The queues of tasks, by name; empty if no management API is configured."""
        if self._url is None:
            return []
        name = quote(_TASK_QUEUES, safe="")
        page = await self._call("GET", f"/queues/{self._vhost}?page=1&page_size={_MOST}&use_regex=true&name={name}")
        items = page["items"] if page else []
        found = [_queue_state(queue) for queue in items if "messages_ready" in queue]
        return sorted(found, key=lambda state: state.name)

    async def ask(self, path: str) -> Any:
        return await self._call("GET", path)

    async def _ensure_vhost(self) -> None:
        """Make the virtual host if it is missing. If the user may not ask, its operator rules it."""
        try:
            if await self._call("GET", f"/vhosts/{self._vhost}") is not None:
                return
        except Unmanageable as error:
            if error.status in (401, 403):
                return
            raise
        await self._call("PUT", f"/vhosts/{self._vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self._call("PUT", f"/permissions/{self._vhost}/{quote(self._user, safe='')}", everything)

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        """The decoded answer; `None` for "not found"."""
        if self._url is None:
            raise Unmanageable("no management API is configured")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.to_thread(_request, self._url, method, path, body, self._trust)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            reason = error.read(500).decode(errors="replace").strip() or error.reason
            raise Unmanageable(f"management API: {method} {path}: {error.code} {reason}", error.code) from error
        except (OSError, ValueError, HTTPException) as error:
            raise Unmanageable(f"management API: {method} {path}: {error!r}") from error


def _queue_state(queue: Mapping[str, Any]) -> QueueState:
    rates = queue.get("message_stats", {})
    return QueueState(
        name=queue["name"],
        ready=queue["messages_ready"],
        unacked=queue["messages_unacknowledged"],
        consumers=queue.get("consumers", 0),
        publish_rate=rates.get("publish_details", {}).get("rate", 0.0),
        deliver_rate=rates.get("deliver_get_details", {}).get("rate", 0.0),
    )


def _request(url: str, method: str, path: str, body: object, trust: ssl.SSLContext | None) -> Any:
    parts = urlsplit(url)
    credentials = f"{unquote(parts.username or 'guest')}:{unquote(parts.password or 'guest')}"
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/api{path}")
    request = urllib.request.Request(  # noqa: S310 - the address is the operator's own setting
        address.geturl(),
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
            "content-type": "application/json",
        },
    )
    # A proxy of the environment is for the Internet; the broker is in the same network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with opener.open(request, timeout=ANSWER_SECONDS) as answer:
        return json.loads(answer.read() or b"{}")


TASK_QUEUES = r"^((push|sched|carillon|bus)\..*|ops\.bulk.*|message\.(batch|single).*)$"
"""The queues that processes read, as `docs/security.md` grants them."""
DEFAULT_EXCHANGE = "amq.default"
NOTHING = "^$"
INSPECTION_SECONDS = 6.0  # longer than the doctor waits for an answer
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
            async with self._line.ask(what, INSPECTION_SECONDS) as link:
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
