"""Fields that the server sets, put into requests: each is refused or ignored."""

from collections.abc import Mapping
from typing import Any

from tests.recorded.exchanges import asker
from tests.recorded.recorder import show
from tests.recorded.world import World
from tests.security.operations import Operation
from tests.security.tenants import Tenant
from tests.services.api.client import Reply

_ALWAYS = {
    "id": "planted",
    "createdAt": 987_654_321,
    "createdBy": "planted",
    "status": "planted",
    "version": 987_654_321,
}
_NEVER_ASKED = {"createdAt", "createdBy", "updatedAt"}
"""No request has these, whatever the document says."""
_MOST = 80


async def record_server_set(world: World, tenant: Tenant) -> dict[str, str]:
    """A line for each route: what was refused, what was ignored, and what was taken, which nothing should be."""
    taking = [each for each in world.api if each.takes_json and each.changes and each.method != "DELETE"]
    lines = [f"{operation}: {await _told(world, operation, tenant)}" for operation in taking]
    return {"server-set/fields.txt": "\n".join(lines) + "\n"}


async def _told(world: World, operation: Operation, tenant: Tenant) -> str:
    headers = asker(operation, tenant)
    plain = await _ask(world, operation, tenant, headers, {})
    planted, refused, reply = _planted(world.document, operation), list[str](), plain
    for _ in range(_MOST):
        reply = await _ask(world, operation, tenant, headers, planted)
        named = str(reply.json.get("field") or "").rpartition(".")[2] if reply.status in {400, 422} else ""
        named = named.rpartition("]")[2] or named
        if named not in planted:
            break
        refused.append(named)
        del planted[named]
    words = [f"{plain.status}; with them {reply.status}"]
    words += [f"refused {' '.join(sorted(refused))}"] if refused else []
    if reply.status < 300 and _first(reply).get("error"):
        return "; ".join([*words, f"refused by the item: {show(_first(reply)['error'], None)}"])
    if reply.status < 300 and planted:
        before, after = _first(plain), _first(reply)
        taken = sorted(key for key in planted if after.get(key) == planted[key] != before.get(key, None))
        words += [f"TAKEN {' '.join(taken)}"] if taken else []
        words += [f"ignored {' '.join(sorted(planted.keys() - set(taken)))}"]
    return "; ".join(words)


async def _ask(
    world: World, operation: Operation, tenant: Tenant, headers: Mapping[str, str], planted: Mapping[str, Any]
) -> Reply:
    body: Any = operation.valid({name: id for name, id in tenant.ids.items() if name != "appName"})
    many = isinstance(body, list)
    first = {**(body[0] if many else body), **planted}
    return await world.call(operation.method, operation.filled(tenant.ids), [first] if many else first, headers)


def _first(reply: Reply) -> dict[str, Any]:
    found = reply.json if reply.body else {}
    found = found[0] if isinstance(found, list) and found else found
    return found if isinstance(found, dict) else {}


def _planted(document: Mapping[str, Any], operation: Operation) -> dict[str, Any]:
    """A value for each field that the answer has and the request has not."""
    described = document["paths"][operation.path][operation.method.lower()]
    requested = _fields(document, described["requestBody"]["content"]["application/json"]["schema"])
    told: dict[str, Any] = {}
    for status, response in described["responses"].items():
        if status[0] == "2" and "application/json" in response.get("content", {}):
            told |= _fields(document, response["content"]["application/json"]["schema"])
    values = {name: _value(schema) for name, schema in told.items()}
    asked = requested.keys() - _NEVER_ASKED
    return {name: value for name, value in (_ALWAYS | values).items() if name not in asked}


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _fields(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    fields = dict(schema.get("properties", {})) | (_fields(document, schema["items"]) if "items" in schema else {})
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        fields |= _fields(document, each)
    return fields


def _value(schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if schema.get("format") == "date-time":
        return "2041-01-01T00:00:00Z"
    values = {
        "string": "planted",
        "integer": 987_654_321,
        "number": 987_654_321.5,
        "boolean": True,
        "array": ["planted"],
    }
    return values.get(str(kind), {"planted": "planted"})
