"""Every operation that changes something is written down, once, whichever person does it.

Which act it is follows from the OpenAPI document. A new route is covered by being in the document.
"""

from typing import Any

import pytest

from tests.security.operations import Operation, Role
from tests.security.target import Target
from tests.security.tenants import ADMIN, Tenant, Town, admin_or_client

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

CHANGING_NOTHING = {
    "POST /apps/{appId}/jobs/preview",
    "POST /apps/{appId}/templates/render",
    "POST /schedules/preview",
}
# So many that they are counted and not written down.
COUNTED = {"POST /topics/{topic}", "POST /bus/topics/{topic}/events"}
# Nothing of a part can be read before its upload is completed, which is written down.
SHOWING_NOTHING = {"PUT /apps/{appId}/uploads"}
WITHOUT_A_CALLER = {
    "PUT /uploads/{path}",
    "POST /u/{token}",
    "POST /callbacks/{credentialId}",
    "POST /callbacks/{credentialId}/{messageId}",
}


async def records(target: Target) -> list[dict[str, Any]]:
    answer = await target.call("GET", "/audit", headers=ADMIN)
    assert answer.status == 200
    return list(answer.json)


async def asked(target: Target, operation: Operation, tenant: Tenant) -> int:
    query = {"namespace": tenant.namespace} if operation.role is Role.OF_NAMESPACE else {}
    path = operation.filled(tenant.ids, **query)
    who = admin_or_client(operation, tenant)
    return (await target.call(operation.method, path, operation.valid(tenant.ids), who)).status


@pytest.mark.slow
async def test_what_is_not_written_down_is_known(api: list[Operation]) -> None:
    silent = {str(operation) for operation in api if operation.changes and not operation.act}
    assert silent == CHANGING_NOTHING | COUNTED | SHOWING_NOTHING | WITHOUT_A_CALLER
    assert [str(operation) for operation in api if operation.act and not operation.changes] == []


@pytest.mark.slow
async def test_each_act_of_a_person_is_written_down_once(target: Target, town: Town, api: list[Operation]) -> None:
    tenant, faults = await town.tenant(), []
    for operation in api:
        if operation.role is Role.EVERYBODY:
            continue
        before = {record["id"] for record in await records(target)}
        status = await asked(target, operation, tenant)
        new = [record for record in await records(target) if record["id"] not in before]
        expected = [operation.act] if operation.act else []
        if [record["act"] for record in new] != expected or any(record["status"] != status for record in new):
            faults.append(f"{operation} was answered {status}, and {new} written down")
    assert faults == []
