"""RabbitMQ's management API, for what AMQP cannot do: make the virtual host, give permissions, and set policies.

A queue's arguments can never change, a policy can; so the queues carry their type and nothing else. The policies:

- Dead letters of `<queue>` go by way of the exchange `carillon.dead` to `<queue>.dlq`, at least once: a message leaves
  its queue only when the dead-letter queue has confirmed it, which needs the overflow `reject-publish`.
- The delivery limit is a million. RabbitMQ 4 would move a task to the dead letters after 20 deliveries, and a task
  comes back once for every killed worker that held it. Our own counts decide what has failed too often. It is not `-1`,
  which 3.10 refuses and 4.x, given by policy, may ignore or answer with an ever growing log.
- Dead-letter queues have the same limit: looking at them in the management UI counts as a delivery too.

Policies are set before the queues are made, because a policy reaches a queue that is there already a moment later.
"""

import asyncio
import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from shared.broker import DEAD_LETTERS
from shared.domain.console.queues import QueueState
from shared.domain.errors import Unavailable
from shared.domain.tasks import TASK_PREFIXES
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

DEAD_EXCHANGE = "carillon.dead"
DELIVERY_LIMIT = 1_000_000
ANSWER_SECONDS = 10.0
# Above the 0 that a person's catch-all policy usually has: only one policy applies to a queue.
PRIORITY = 10
_TASK_QUEUES = f"^({'|'.join(map(re.escape, TASK_PREFIXES))})"
_MOST = 200
QUEUE_POLICIES = frozenset({"queues", "quorum_queues", "all"})


class Unmanageable(Unavailable):
    """The management API is away or was not configured; or, with a `status`, it refuses."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Policy(Struct, frozen=True):
    """A policy for the queues whose whole name matches `pattern`."""

    name: str
    pattern: str
    definition: Mapping[str, str | int]

    def body(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "definition": dict(self.definition),
            "priority": PRIORITY,
            "apply-to": "queues",
        }


def policies(queue: str) -> tuple[Policy, Policy]:
    """The policies of a queue and of its dead letters, under the names of these queues."""
    limit: dict[str, str | int] = {"delivery-limit": DELIVERY_LIMIT}
    dead: dict[str, str | int] = {
        "dead-letter-exchange": DEAD_EXCHANGE,
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }
    return _policy(queue, limit | dead), _policy(queue + DEAD_LETTERS, limit)


def _policy(queue: str, definition: Mapping[str, str | int]) -> Policy:
    return Policy(name=queue, pattern=f"^{re.escape(queue)}$", definition=definition)


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
    """One virtual host, seen through the management API at `url` (`http://user:password@host:port`, or `None`)."""

    def __init__(self, url: str | None, *, vhost: str, user: str, tls: TlsSettings = NO_FILES) -> None:
        self._url = url
        self._trust = client_context(tls) if url is not None and urlsplit(url).scheme == "https" else None
        self._vhost = quote(vhost, safe="")
        self._user = user

    async def prepare(self, queues: tuple[str, ...]) -> None:
        """Make the virtual host if it is missing, and set the policies. Raises `Unmanageable`."""
        await self._ensure_vhost()
        for policy in (policy for queue in queues for policy in policies(queue)):
            path = f"/policies/{self._vhost}/{quote(policy.name, safe='')}"
            await self._call("PUT", path, policy.body())

    async def check(self, queues: tuple[str, ...]) -> None:
        """Raise `Unavailable` where another policy, or none, rules a queue or dead letters lead nowhere."""
        listed = await self.list_policies()
        for policy in (policy for queue in queues for policy in policies(queue)):
            rules = effective(policy.name, listed)
            if not policy.definition.items() <= rules.items():
                raise Unavailable(f"policy of queue {policy.name} is {dict(rules)}: `carillon init` sets it")
        routes = await self.list_dead_routes()
        for queue in queues:
            if (queue, queue + DEAD_LETTERS) not in routes:
                raise Unavailable(f"dead letters of {queue} have no binding: `carillon init` makes it")

    async def list_queues(self) -> list[QueueState]:
        """The queues of tasks with their dead letters, by name; none where no management is configured. Raises
        `Unmanageable`."""
        if self._url is None:
            return []
        name = quote(_TASK_QUEUES, safe="")
        page = await self._call("GET", f"/queues/{self._vhost}?page=1&page_size={_MOST}&use_regex=true&name={name}")
        listed = {queue["name"]: queue for queue in page["items"] if "messages_ready" in queue} if page else {}
        return [
            _queue_state(listed[name], listed[name + DEAD_LETTERS])
            for name in sorted(listed)
            if name + DEAD_LETTERS in listed
        ]

    async def list_policies(self) -> list[dict[str, Any]]:
        """The policies of the virtual host. Raises `Unmanageable`."""
        return await self.ask(f"/policies/{self._vhost}") or []

    async def list_dead_routes(self) -> set[tuple[str, str]]:
        """Which queue's dead letters go to which queue. Raises `Unmanageable`."""
        bound = await self.ask(f"/exchanges/{self._vhost}/{DEAD_EXCHANGE}/bindings/source")
        return {(binding["routing_key"], binding["destination"]) for binding in bound or []}

    async def ask(self, path: str) -> Any:
        """The answer at this path, or `None`. Raises `Unmanageable`."""
        return await self._call("GET", path)

    async def _ensure_vhost(self) -> None:
        """Leave a virtual host alone that is there, or that we may not ask about: its operator rules it."""
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
        """The decoded answer, or `None` for "not found"."""
        if self._url is None:
            raise Unmanageable("no management API is configured")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.to_thread(_request, self._url, method, path, body, self._trust)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise Unmanageable(f"management API: {method} {path}: {error.code} {_reason(error)}", error.code) from error
        except (OSError, ValueError, HTTPException) as error:
            raise Unmanageable(f"management API: {method} {path}: {error!r}") from error


def _queue_state(queue: Mapping[str, Any], dead: Mapping[str, Any]) -> QueueState:
    rates = queue.get("message_stats", {})
    return QueueState(
        name=queue["name"],
        ready=queue["messages_ready"],
        unacked=queue["messages_unacknowledged"],
        consumers=queue.get("consumers", 0),
        dead=dead["messages_ready"],
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
    # A proxy of the environment is for the world outside; the broker stands beside us.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with opener.open(request, timeout=ANSWER_SECONDS) as answer:
        return json.loads(answer.read() or b"{}")


def _reason(error: urllib.error.HTTPError) -> str:
    return error.read(500).decode(errors="replace").strip() or str(error.reason)
