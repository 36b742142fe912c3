"""Every operation of the API, asked rightly and wrongly: what is sent, and what comes back."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.recorded.recorder import Recording, headers_text, pretty, show
from tests.recorded.world import World
from tests.security.operations import Operation, Role
from tests.security.tenants import ADMIN, PUBLISHING, Tenant, who_may
from tests.services.api.client import Reply

SUBJECTS = {
    "accounts": "apps users tokens sessions signing-secrets whoami healthcheck",
    "bus": "topics subscribers subscriptions subscriber subscription api_tokens bus pulse health",
    "clock": "schedules calendars dead-letters",
    "console": "audit overview processes queues minutes settings bulk-actions namespaces",
    "jobs": "templates jobs groups uploads",
    "messages": "credentials messages recipients suppressions u callbacks",
    "push": "devices",
}
_SUBJECT_OF = {tag: subject for subject, tags in SUBJECTS.items() for tag in tags.split()}
_NO_UUID = "00000000-0000-7000-8000-000000000000"
WRONG = {"wrong": ["type"]}


def subject_of(world: World, operation: Operation) -> str:
    """The subject of an operation, by its tag. A new tag must be put into `SUBJECTS`."""
    tag = world.document["paths"][operation.path][operation.method.lower()]["tags"][0]
    return _SUBJECT_OF[tag]


def file_of(operation: Operation | None, path: str) -> str:
    named = f"{operation.path} {operation.method}" if operation else path.partition("?")[0]
    return named.strip("/").replace("/", "_") + ".txt"


class Teller:
    """Asks, and notes each exchange in the file of its route."""

    def __init__(self, world: World, recording: Recording, folder: str) -> None:
        self.world, self.recording, self.folder = world, recording, folder

    async def ask(
        self, label: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        reply = await self.world.call(method, path, body, headers)
        operation = self.world.operation(method, path.partition("?")[0])
        self.recording.add(f"{self.folder}/{file_of(operation, path)}", exchange(label, method, path, body, reply))
        return reply


def exchange(label: str, method: str, path: str, body: object, reply: Reply) -> str:
    """An exchange as it is written down."""
    sent = (
        body.decode("utf-8", "backslashreplace")
        if isinstance(body, bytes)
        else ""
        if body is None
        else show(body, None)
    )
    lines = [f"## {label}", f"{method} {path}", *([sent] if sent else []), f"--> {reply.status}"]
    lines += headers_text(reply.headers)
    if reply.body:
        lines.append(pretty(reply.body, reply.headers.get("content-type", "")))
    return "\n".join(lines).replace(reply.headers["x-request-id"], "<request>")


def wrongs(operation: Operation, ids: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Each mistake, with the path and the body of its request."""
    body: Any = operation.valid(ids)
    for name in operation.parameters:
        if name not in ids:
            continue
        yield f"unknown {name}", operation.filled({**ids, name: _NO_UUID}), body
        yield f"odd {name}", operation.filled({**ids, name: "no such"}), body
    path = operation.filled(ids)
    yield "unknown parameter", f"{path}{'&' if '?' in path else '?'}surprise=1", body
    if not operation.takes_json:
        return
    yield "no body", path, b""
    yield "no JSON", path, b"{"
    yield "empty object", path, {}
    [first, *rest] = body if isinstance(body, list) else [body]
    yield "unknown field", path, _again(body, first | {"surprise": 1}, rest)
    for name in first:
        yield f"wrong {name}", path, _again(body, first | {name: WRONG}, rest)


def _again(body: Any, first: Any, rest: list[Any]) -> Any:
    return [first, *rest] if isinstance(body, list) else first


def asker(operation: Operation, tenant: Tenant) -> Mapping[str, str]:
    """The caller: an admin, or the tenant if only clients of the bus may ask."""
    of_clients = operation.path == PUBLISHING or operation.role is Role.ON_BUS
    return who_may(operation, tenant) if of_clients else ADMIN


async def sweep(teller: Teller, tenant: Tenant, subject: str) -> None:
    """Ask every operation of a subject: wrongly, rightly, and once more."""
    world = teller.world
    for operation in world.api:
        if subject_of(world, operation) != subject:
            continue
        who = asker(operation, tenant)
        for label, path, body in wrongs(operation, tenant.ids):
            await teller.ask(label, operation.method, path, body, who)
        path, body = operation.filled(tenant.ids), operation.valid(tenant.ids)
        await teller.ask("done", operation.method, path, body, who)
        if operation.changes:
            await teller.ask("once more", operation.method, path, body, who)
