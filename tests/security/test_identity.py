"""Every operation of the OpenAPI document, asked by everybody who may not, with what belongs to somebody else.

What is expected follows from the role that the document names. A new route is covered by being in the document.
"""

import re
from collections.abc import Iterable, Mapping

import pytest

from tests.security.operations import OF_THE_WHOLE, Operation, Role
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import ADMIN, NOBODY, PUBLISHING, UNKNOWN, Tenant, Town, bearer, shown_to
from tests.services.api.published import is_published
from tests.tiers import and_rarely

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

# The document promises these lists to everybody who is known, as Marathon's clients need them.
SHOWN_TO_ALL = {"/apps", "/topics", "/subscribers", "/subscriptions", "/bus/topics", "/bus/topics/{topic}"}
# They differ each time that one looks: all acts of everybody are in the audit, and some tell when they looked.
NOBODYS_OWN = {"address"}  # each app may have written to it
NEVER_THE_SAME = {
    "/uploadurl", "/audit", "/schedules/due", "/overview", "/processes", "/queues", "/minutes",
    "/topics", "/subscribers", "/subscriptions", "/api_tokens", "/health/ping", "/health/ping.json",
    "/bus/topics", "/bus/pressure",
}  # fmt: skip

LAST_USED = re.compile(rb'"lastUsedAt":(null|"[^"]*")')


async def asked(
    target: Target, operation: Operation, headers: Mapping[str, str], ids: Mapping[str, str], **query: str
) -> Answer:
    path = operation.filled(ids, **query)
    return await target.call(operation.method, path, operation.valid(ids), shown_to(operation, headers))


async def views(target: Target, api: Iterable[Operation], tenant: Tenant) -> dict[str, tuple[int, bytes]]:
    """All that a tenant, and an admin, sees of what is the tenant's."""
    seen = {}
    for operation in api:
        if operation.changes or operation.role is Role.EVERYBODY or operation.path in NEVER_THE_SAME:
            continue
        headers = ADMIN if operation.role in OF_THE_WHOLE or operation.takes_root else tenant.headers
        answer = await asked(target, operation, headers, tenant.ids)
        seen[str(operation)] = (answer.status, LAST_USED.sub(b"", answer.body))
    return seen


def fault(operation: Operation, answer: Answer, expected: set[int] | None, mark: str) -> str:
    """What is wrong with an answer to somebody who may not see what bears the mark; nothing if nothing is."""
    if answer.status >= 500:
        return f"{operation}: {answer}"
    if expected is not None and answer.status not in expected:
        return f"{operation}: {sorted(expected)} expected, not {answer}"
    if str(answer.status) not in operation.statuses:
        return f"{operation}: the document does not know {answer}"
    if mark.encode() in answer.body and operation.path not in SHOWN_TO_ALL:
        return f"{operation}: shows what is the victim's: {answer}"
    return ""


def refused(operation: Operation, *, known: bool) -> set[int] | None:
    """With which statuses the operation is refused to who has no right to what stands in its path; `None`: it is
    theirs to ask, and what they see is their own."""
    if operation.role is Role.EVERYBODY:
        return None
    if not known:
        return {401}
    if operation.role is Role.ON_BUS:
        return {401} if operation.takes_root else None
    if operation.role in OF_THE_WHOLE | {Role.OF_APP}:
        return {403}
    if operation.path in SHOWN_TO_ALL and not operation.changes:
        return None
    return {404} if operation.parameters and not operation.makes else None


async def test_the_suite_can_fill_every_operation(town: Town, api: list[Operation]) -> None:
    tenant = await town.tenant()
    assert len(api) > 40
    for operation in api:
        operation.filled(tenant.ids)
        operation.valid(tenant.ids)


@pytest.mark.parametrize(
    "who", and_rarely("nobody", rarely=["a revoked token", "an unknown token", "an unknown user", "two tokens"])
)
async def test_who_is_not_known_gets_nowhere(
    target: Target, town: Town, api: list[Operation], database: Database, who: str
) -> None:
    victim = await town.tenant()
    callers = {
        "nobody": NOBODY,
        "an unknown token": UNKNOWN,
        "a revoked token": await revoked(target, town),
        "an unknown user": {"x-forwarded-email": "nobody@example.com"},
        "two tokens": {"authorization": victim.headers["authorization"] + f", {UNKNOWN['authorization']}"},
    }
    before, seen = database.snapshot(), await views(target, api, victim)
    written = database.database["audit"].count_documents({})
    faults = [
        fault(
            operation,
            await asked(target, operation, callers[who], victim.ids),
            refused(operation, known=False),
            victim.mark,
        )
        for operation in api
    ]
    assert [each for each in faults if each] == []
    assert await views(target, api, victim) == seen
    assert before.differences(database.snapshot()) == []
    assert database.database["audit"].count_documents({}) == written


async def revoked(target: Target, town: Town) -> dict[str, str]:
    id, secret = await town.token(isAdmin=True)
    assert (await target.call("DELETE", f"/tokens/{id}", headers=ADMIN)).status == 204
    return bearer(secret)


@pytest.mark.parametrize("who", and_rarely("another tenant", rarely=["a token without apps"]))
@pytest.mark.parametrize("asking", ["as it is", "for the victim's namespace"])
async def test_another_tenants_things_are_out_of_reach(
    target: Target, town: Town, api: list[Operation], database: Database, who: str, asking: str
) -> None:
    victim = await town.tenant()
    intruder = await (town.tenant() if who == "another tenant" else town.stranger())
    query = {} if asking == "as it is" else {"namespace": victim.namespace}
    subscribed = database.of_subscriptions(intruder.namespace)
    before, seen = database.snapshot(), await views(target, api, victim)
    faults = []
    # What makes something of the intruder's own under the victim's names comes last: what follows would find it.
    for operation in sorted(api, key=lambda each: each.makes):
        # The body bears the intruder's own mark: what comes back with the victim's was the victim's.
        path, body = operation.filled(victim.ids, **query), operation.valid(victim.ids | intruder.ids | {"mark": "own"})
        answer = await target.call(operation.method, path, body, shown_to(operation, intruder.headers))
        expected = refused(operation, known=True)
        unknown = {422} if query else set()  # a route that takes no namespace refuses the parameter
        faults.append(fault(operation, answer, expected and expected | {403} | unknown, victim.mark))
    assert [each for each in faults if each] == []
    assert await views(target, api, victim) == seen
    own = {intruder.namespace, *intruder.ids.values()} | subscribed | database.of_subscriptions(intruder.namespace)
    assert [harm for harm in before.harmed(database.snapshot()) if not any(id in harm for id in own)] == []


async def test_ones_own_app_does_not_open_another_tenants_things(
    target: Target, town: Town, api: list[Operation], database: Database
) -> None:
    victim, intruder = await town.tenant(), await town.tenant()
    ids = victim.ids | {"appId": intruder.ids["appId"]}
    below = [each for each in api if each.role is Role.OF_APP and len({*each.parameters} - NOBODYS_OWN) > 1]
    assert len(below) > 8
    before, seen = database.snapshot(), await views(target, api, victim)
    faults = [
        fault(operation, await asked(target, operation, intruder.headers, ids), {403, 404}, victim.mark)
        for operation in below
    ]
    assert [each for each in faults if each] == []
    assert await views(target, api, victim) == seen
    assert before.differences(database.snapshot()) == []


@pytest.mark.parametrize("caller", and_rarely("the tenant itself", rarely=["an admin"]))
async def test_who_may_is_served(target: Target, town: Town, api: list[Operation], caller: str) -> None:
    tenant = await town.tenant()
    headers, other_kind = (ADMIN, "client") if caller == "an admin" else (tenant.headers, "root")
    faults = []
    for operation in api:
        answer = await asked(target, operation, headers, tenant.ids)
        barred = operation.role in OF_THE_WHOLE and caller != "an admin"
        barred |= operation.path == PUBLISHING and caller == "an admin"
        wrong = operation.role is not Role.EVERYBODY and (answer.status == 403) != barred
        # On the bus, root is no client, and a client is not root.
        is_another_kind = operation.role is Role.ON_BUS and operation.least == other_kind
        # Some of Routemaster's take nobody who shows anything.
        takes_strangers = operation.role is Role.EVERYBODY and is_published(operation.path)
        is_another_kind |= takes_strangers and caller != "an admin"
        if wrong or (answer.status == 401) != is_another_kind:
            faults.append(f"{operation}: {answer}")
        if answer.status >= 500 or str(answer.status) not in operation.statuses:
            faults.append(f"{operation}: the document does not know {answer}")
    assert faults == []


async def test_an_app_does_not_take_over_anothers_audience_by_its_name(target: Target, town: Town) -> None:
    victim, intruder = await town.tenant(), await town.tenant()
    name = (await target.call("GET", f"/apps/{victim.ids['appId']}", headers=ADMIN)).json["name"]
    app = f"/apps/{intruder.ids['appId']}"
    own = (await target.call("GET", app, headers=intruder.headers)).json
    for wanted in (name, name.upper()):
        body = {"name": wanted, "bundleId": own["bundleId"]}
        by_intruder = await target.call("PUT", app, body, intruder.headers)
        by_admin = await target.call("PUT", app, body, ADMIN)
        assert (by_intruder.status, by_admin.status) == (403, 409)
    assert (await target.call("GET", app, headers=intruder.headers)).json["name"] == own["name"]
