"""The status of each route for each caller. Every caller asks about its own tenant."""

from collections.abc import Mapping

from tests.recorded.exchanges import SUBJECTS, subject_of
from tests.recorded.world import World
from tests.security.operations import Operation, Role
from tests.security.tenants import ADMIN, ROOT_KEY, Tenant, basic, bearer, shown_to

CALLERS = ("anonymous", "stranger", "viewer", "operator", "admin", "tenant", "root", "bus")


async def _headers(world: World, caller: str, victim: Tenant) -> Mapping[str, str]:
    match caller:
        case "anonymous":
            return {}
        case "stranger":
            return (await world.town.stranger()).headers
        case "tenant":
            return victim.headers
        case "root":
            return ADMIN
        case "bus":
            made = await world.call("POST", "/api_tokens", {"name": victim.mark}, basic(ROOT_KEY))
            return bearer(made.json["token"])
        case role:
            roles = {f"app/{victim.ids['appId']}": role, f"namespace/{victim.namespace}": role}
            return bearer((await world.town.token(allowedApps=[], roles=roles))[1])


async def record_role(world: World, caller: str) -> dict[str, dict[str, str]]:
    """The status of each operation for one caller, those that delete last, by subject."""
    victim = await world.town.tenant()
    headers = await _headers(world, caller, victim)
    told: dict[str, dict[str, str]] = {subject: {} for subject in SUBJECTS}
    for operation in world.api:
        status = await _ask(world, operation, headers, victim)
        told[subject_of(world, operation)][f"{operation.path} {operation.method}"] = str(status)
    return told


async def _ask(world: World, operation: Operation, headers: Mapping[str, str], victim: Tenant) -> int:
    query = {"namespace": victim.namespace} if operation.role is Role.OF_NAMESPACE else {}
    shown = shown_to(operation, headers)
    path, body = operation.filled(victim.ids, **query), operation.valid(victim.ids)
    return int((await world.call(operation.method, path, body, shown)).status)


def as_tables(told: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, str]:
    """A line for each route, with the statuses by caller; `told` is by caller and subject."""
    tables = {}
    for subject in SUBJECTS:
        routes = sorted({route for of_caller in told.values() for route in of_caller[subject]})
        lines = [
            f"{route}: " + ", ".join(f"{caller} {told[caller][subject][route]}" for caller in told) for route in routes
        ]
        tables[f"roles/{subject}.txt"] = "\n".join(lines) + "\n"
    return tables
