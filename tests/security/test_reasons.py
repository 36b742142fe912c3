"""Where a deployment demands reasons, nothing ends without one; and bulk actions have one everywhere.

Which operations end something follows from their acts in the OpenAPI document. A new route is covered by being in the
document, and an act that nobody has thought of before is told.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from services.api.http.acts import REASON_HEADER
from shared.console.rules.audit import ENDING_VERBS, ends_something
from tests.security.operations import Operation, Role, operations
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import ADMIN, Tenant, Town

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

BULK = "bulk-action.create"
LASTING_VERBS = {
    "activate", "backfill", "complete", "create", "create-many", "fire", "issue", "move", "move-many", "pause",
    "reencrypt", "replace", "replace-secret", "resume", "retry", "retry-many", "rotate", "send", "send-many", "suspend",
    "test", "update",
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demanding(target: Target) -> AsyncIterator[Target]:
    """A process beside the other one, on the same servers, that demands reasons."""
    made = replace(target, environment={**target.environment, "CARILLON_AUDIT_REASONS": "required"})
    made.folder = target.folder / "demanding"
    made.folder.mkdir()
    made._running = None
    await made.whole()
    yield made
    await made.end()


async def records(target: Target) -> list[dict[str, Any]]:
    answer = await target.call("GET", "/audit", headers=ADMIN)
    assert answer.status == 200
    return list(answer.json)


async def ask(target: Target, operation: Operation, tenant: Tenant, *, reason: str = "") -> Answer:
    query = {"namespace": tenant.namespace} if operation.role is Role.OF_NAMESPACE else {}
    headers = ADMIN | ({REASON_HEADER: reason} if reason else {})
    body = operation.valid(tenant.ids)
    if operation.act == BULK and isinstance(body, dict):
        body["reason"] = reason
    return await target.call(operation.method, operation.filled(tenant.ids, **query), body, headers)


def takes_reason(operation: Operation) -> bool:
    """Whether it ends something. Routemaster's clients have no way to say why."""
    return operation.role is not Role.ON_BUS and (operation.act == BULK or ends_something(operation.act))


def demands_reason(answer: Answer) -> bool:
    return answer.status == 422 and answer.json["field"] == "reason" and "reason" in answer.json["detail"]


async def test_each_act_is_known_to_end_something_or_not(api: list[Operation]) -> None:
    verbs = {operation.act.rpartition(".")[2] for operation in api if operation.act}
    assert verbs == ENDING_VERBS | LASTING_VERBS
    assert [str(each) for each in api if each.method == "DELETE" and not ends_something(each.act)] == []


@pytest.mark.slow
async def test_nothing_ends_without_a_reason_where_one_is_demanded(
    demanding: Target, town: Town, database: Database
) -> None:
    tenant = await town.tenant()
    api = operations((await demanding.call("GET", "/openapi.json")).json)
    ending = [operation for operation in api if takes_reason(operation)]
    assert len(ending) > 10
    faults = []
    before, known = database.snapshot(), {record["id"] for record in await records(demanding)}
    for operation in ending:
        answer = await ask(demanding, operation, tenant)
        new = [record for record in await records(demanding) if record["id"] not in known]
        if not demands_reason(answer) or any(record["outcome"] != "refused" for record in new):
            faults.append(f"{operation}: {answer}, and {new} written down")
        known |= {record["id"] for record in new}
    assert faults == []
    assert before.differences(database.snapshot()) == []


@pytest.mark.slow  # the gate has the refusals above
async def test_with_a_reason_each_is_done_and_the_reason_kept(demanding: Target, town: Town) -> None:
    tenant = await town.tenant()
    api = operations((await demanding.call("GET", "/openapi.json")).json)
    faults = []
    for operation in api:
        if not takes_reason(operation):
            continue
        known = {record["id"] for record in await records(demanding)}
        answer = await ask(demanding, operation, tenant, reason="a test")
        new = [record["reason"] for record in await records(demanding) if record["id"] not in known]
        if answer.status == 422 or new != ["a test"]:
            faults.append(f"{operation}: {answer}, and {new} written down")
    assert faults == []


async def test_a_bulk_action_needs_a_reason_everywhere(target: Target, town: Town, api: list[Operation]) -> None:
    tenant = await town.tenant()
    [bulk] = [operation for operation in api if operation.act == BULK]
    assert demands_reason(await ask(target, bulk, tenant))


async def test_elsewhere_a_reason_is_left_to_the_caller(target: Target, town: Town, api: list[Operation]) -> None:
    tenant = await town.tenant()
    [stop] = [operation for operation in api if operation.act == "job.stop"]
    assert (await ask(target, stop, tenant)).status == 200
