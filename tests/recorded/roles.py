"""Who may use which route: a status for each route and each caller, who all ask about a tenant of their own."""

from collections.abc import Mapping

from tests.recorded.exchanges import SUBJECTS, subject_of
from tests.recorded.recorder import Recording
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


async def record_roles(world: World, recording: Recording, callers: tuple[str, ...]) -> None:
    """All operations, those that delete last, by each caller in turn."""
    for caller in callers:
        victim = await world.town.tenant()
        headers = await _headers(world, caller, victim)
        for operation in world.api:
            recording.add(
                f"roles/{subject_of(world, operation)}.txt", await _ask(world, operation, headers, victim, caller)
            )


async def _ask(world: World, operation: Operation, headers: Mapping[str, str], victim: Tenant, caller: str) -> str:
    query = {"namespace": victim.namespace} if operation.role is Role.OF_NAMESPACE else {}
    shown = shown_to(operation, headers)
    reply = await world.call(operation.method, operation.filled(victim.ids, **query), operation.valid(victim.ids), shown)
    return f"{operation.path} {operation.method} | {CALLERS.index(caller)} {caller} {reply.status}"


def as_table(recording: Recording) -> dict[str, str]:
    """A line for each route."""
    tables = {}
    for subject in SUBJECTS:
        rows: dict[str, list[str]] = {}
        for line in recording.files[f"roles/{subject}.txt"]:
            route, _, told = line.partition(" | ")
            rows.setdefault(route, []).append(told)
        lines = [f"{route}: " + ", ".join(told[2:] for told in sorted(each)) for route, each in sorted(rows.items())]
        tables[f"roles/{subject}.txt"] = "\n".join(lines) + "\n"
    return tables
