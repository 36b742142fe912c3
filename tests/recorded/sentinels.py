"""Callers that see the personal and secret words of the scenario: in answers and pages, in logs, in the audit, and in
the `repr` of stored values."""

from collections.abc import Mapping
from typing import Any

from bson import CodecOptions
from pymongo.collection import Collection

from tests.recorded.readable import readers
from tests.recorded.scenario import SECRETS, SIGNING, Lived
from tests.recorded.world import World
from tests.security.operations import Role
from tests.security.tenants import bearer
from tests.services.api.client import Client
from tests.services.api.http.pages.addresses import address_of, page_routes

WORDS = {**SECRETS, "signing": SIGNING}
ROLES = ("stranger", "viewer", "operator")


async def record_sights(world: World, lived: Lived) -> dict[str, str]:
    """A line for each answer and page in which a caller sees one of the words. Each asks for all that can be read."""
    lines = []
    for role in ROLES:
        roles = {} if role == "stranger" else {
            f"app/{lived.tenant.ids['appId']}": role, f"namespace/{lived.tenant.namespace}": role,
        }  # fmt: skip
        headers = bearer((await world.town.token(allowedApps=[], roles=roles))[1])
        person = {"x-forwarded-email": f"{role}@example.com"}
        await world.call(
            "POST", "/users", {"email": person["x-forwarded-email"], "roles": roles, "allowedApps": []}, _ADMIN
        )
        for where, body in [*await _answers(world, lived, headers), *await _pages(world, lived, person)]:
            lines += [f"{role} sees {name} in {where}" for name, word in WORDS.items() if word.encode() in body]
    return {"sentinels/sights.txt": "".join(f"{line}\n" for line in lines)}


_ADMIN = {"x-forwarded-email": "admin@example.com"}


async def _answers(world: World, lived: Lived, headers: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """All that a GET answers, for each key that the scenario has made."""
    found = []
    for ids in ({}, {"jobId": lived.job}, {"key": "well"}, {"key": "signed"}):
        for operation in world.api:
            if operation.method == "GET" and (not ids or ids.keys() & set(operation.parameters)):
                query = {"namespace": lived.tenant.namespace} if operation.role is Role.OF_NAMESPACE else {}
                path = operation.filled({**lived.tenant.ids, **ids}, **query)
                found.append((operation.path, (await world.call("GET", path, None, headers)).body))
    return found


async def _pages(world: World, lived: Lived, headers: Mapping[str, str]) -> list[tuple[str, bytes]]:
    found = []
    made = {**lived.made, "job_id": lived.job, "app_id": lived.tenant.ids["appId"]}
    for key in ("well", "signed"):
        for route in page_routes(world.rooms):
            address = address_of(route, made | {"key": key})
            if key == "well" or "{key" in route.path:
                query = f"{'&' if '?' in address else '?'}namespace={lived.tenant.namespace}" * ("{key" in route.path)
                world.clock.step()
                reply = await Client(world.app, dict(headers)).get(address + query)
                found.append((f"page {route.path}", reply.body))
    return found


def _documents(world: World, collection: str) -> list[dict[str, Any]]:
    aware: Collection[dict[str, Any]] = world.database.database[collection].with_options(CodecOptions(tz_aware=True))
    return list(aware.find())


def record_leaks(world: World) -> dict[str, str]:
    """The places of a word in a log, in the audit, or in the `repr` of a stored value."""
    lines = {
        f"log {line.get('event')!r} has {name}"
        for line in world.logged
        for name, word in WORDS.items()
        if word in repr(line)
    }
    for collection in sorted(world.database.database.list_collection_names()):
        for document in _documents(world, collection):
            if collection == "audit":
                lines |= {
                    f"audit {document['act']} has {name}" for name, word in WORDS.items() if word in repr(document)
                }
            for kind, read, _ in readers():
                try:
                    text = repr(read(document))
                except Exception:  # noqa: BLE001  # of another kind
                    continue
                lines |= {
                    f"repr of {kind} from {collection} has {name}" for name, word in WORDS.items() if word in text
                }
    return {"sentinels/leaks.txt": "".join(f"{line}\n" for line in sorted(lines))}
