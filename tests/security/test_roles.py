"""Every operation of the OpenAPI document, asked by who has a role over what it is about.

What is expected follows from the role that the document names. A new route is covered by being in the document.
"""

import secrets

import pytest

from tests.security import bodies
from tests.security.operations import Operation, Role
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import ADMIN, Tenant, Town, bearer
from tests.tiers import and_rarely

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

ROLES = ("viewer", "operator", "admin")
OVER = {Role.OF_APP, Role.OF_NAMESPACE}


def over(victim: Tenant, role: str, where: str) -> dict[str, str]:
    """The roles of somebody who has this one over all that is the victim's."""
    if where == "everywhere":
        return {"*": role}
    return {f"app/{victim.ids['appId']}": role, f"namespace/{victim.namespace}": role}


async def asked(target: Target, operation: Operation, headers: dict[str, str], victim: Tenant) -> Answer:
    query = {"namespace": victim.namespace} if operation.role is Role.OF_NAMESPACE else {}
    path = operation.filled(victim.ids, **query)
    return await target.call(operation.method, path, operation.valid(victim.ids), headers)


@pytest.mark.parametrize("role", and_rarely(ROLES[0], rarely=ROLES[1:]))
@pytest.mark.parametrize("where", and_rarely("there", rarely=["everywhere"]))
async def test_a_role_opens_what_it_covers_and_nothing_else(
    target: Target, town: Town, api: list[Operation], database: Database, role: str, where: str
) -> None:
    victim = await town.tenant()
    _, secret = await town.token(allowedApps=[], roles=over(victim, role, where))
    before, faults = database.snapshot(), []
    for operation in api:
        if operation.role not in OVER | {Role.ADMIN, Role.OF_EVERYTHING}:
            continue
        answer = await asked(target, operation, bearer(secret), victim)
        nowhere = operation.role is Role.ADMIN or (operation.role is Role.OF_EVERYTHING and where == "there")
        refused = nowhere or ROLES.index(operation.least) > ROLES.index(role)
        if (answer.status == 403) != refused or str(answer.status) not in operation.statuses or answer.status >= 500:
            faults.append(f"{operation}: {'403' if refused else 'an answer'} expected, not {answer}")
    assert faults == []
    if role == "viewer":
        assert before.differences(database.snapshot()) == []


async def test_all_that_changes_something_takes_more_than_a_viewer(api: list[Operation]) -> None:
    changing = [operation for operation in api if operation.changes and operation.role in OVER]
    assert len(changing) > 20
    assert [str(operation) for operation in changing if operation.least == "viewer"] == []


@pytest.mark.parametrize(("role", "sees"), [("viewer", False), ("operator", True)])
async def test_a_viewer_sees_no_personal_data(
    target: Target, town: Town, api: list[Operation], role: str, sees: bool
) -> None:
    victim, word = await town.tenant(), f"w{secrets.token_hex(8)}"
    mine, marked = victim.headers, victim.ids | {"mark": word}
    job = await target.call("POST", f"/apps/{victim.ids['appId']}/jobs?template=like", bodies.job(marked), mine)
    data = {"url": f"https://example.com/{word}?{word}", "headers": {"x-about": word}, "payload": word}
    calls = bodies.schedule(marked) | {"key": "calls", "callback": {"type": "http", "data": data}}
    tells = bodies.schedule(marked) | {"key": "tells"}
    made = [job, *[await target.call("POST", "/schedules", schedule, mine) for schedule in (calls, tells)]]
    events = bodies.native_subscription(marked) | {
        "callback": f"https://example.com/{word}?{word}", "headers": {"x-about": word}, "uuid": word,
    }  # fmt: skip
    made += [await target.call("PUT", f"/bus/subscriptions/{key}", events, mine) for key in ("calls", "tells")]
    assert [answer.status for answer in made] == [201] * 5, made

    _, secret = await town.token(allowedApps=[], roles=over(victim, role, "there"))
    shown = set()
    for key in ("calls", "tells"):
        theirs = Tenant(victim.mark, mine, victim.ids | {"jobId": job.json["id"], "key": key})
        for operation in api:
            covered = operation.role in OVER and ROLES.index(operation.least) <= ROLES.index(role)
            if covered and not operation.changes:
                answer = await asked(target, operation, bearer(secret), theirs)
                assert answer.status == 200, f"{operation}: {answer}"
                if word.encode() in answer.body:
                    shown.add(operation.path)
    job_path = "/apps/{appId}/jobs/{jobId}"
    expected = {"/apps/{appId}/jobs", job_path, f"{job_path}/samples", "/schedules", "/schedules/{key}"}
    expected |= {"/bus/subscriptions", "/bus/subscriptions/{key}"}
    assert shown == (expected if sees else set())


async def test_roles_that_cannot_be_are_refused_by_their_place(target: Target, town: Town) -> None:
    for roles, field in (
        ({"*": "owner"}, "roles.*"),
        ({"apps/1": "viewer"}, "roles.apps/1"),
        ({"app/1": "viewer"}, "roles.app/1"),
        ({"namespace/": "viewer"}, "roles.namespace/"),
        ({f"namespace/user:{n}@example.com": "viewer" for n in range(1_001)}, "roles"),
    ):
        answer = await target.call("POST", "/tokens", {"name": "service", "roles": roles}, ADMIN)
        assert (answer.status, answer.json["field"]) == (422, field)
