"""What a web page in a user's browser can make that browser send: every operation refuses it, and nothing is stored."""

from collections.abc import Mapping

import pytest

from tests.security.operations import Operation
from tests.security.raw import exchange
from tests.security.stores import Database
from tests.security.target import Target
from tests.security.tenants import ADMIN, Tenant, Town, admin_or_client
from tests.tiers import and_rarely

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native]

FOREIGN = {
    "a foreign origin": {"origin": "https://evil.example"},
    "an origin that hides itself": {"origin": "null"},
    "an origin that begins like ours": {"origin": "http://localhost.evil.example"},
    "another port of this machine": {"origin": "http://localhost:1"},
    "another site": {"sec-fetch-site": "cross-site"},
    "another host of the same site": {"sec-fetch-site": "same-site"},
    "a cookie, and no word of the page": {"cookie": "__Host-carillon=1"},
    "a form": {
        "origin": "https://evil.example",
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "content-type": "text/plain",
    },
}
# Balancers ask it by whatever name they have, and it tells nothing.
BY_ANY_NAME = {"/healthcheck"}
# The token in the path is the authority: a browser adds none.
BY_TOKEN = {"/u/{token}"}
HOSTS = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
OUR_HOSTS = ["localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"]


@pytest.mark.parametrize("name", and_rarely("a form", rarely=[name for name in FOREIGN if name != "a form"]))
async def test_another_sites_page_changes_nothing(
    target: Target, town: Town, api: list[Operation], database: Database, name: str
) -> None:
    tenant = await town.tenant()
    before = database.snapshot()
    for operation in api:
        if operation.changes and operation.path not in BY_TOKEN:
            answer = await asked(target, operation, tenant, FOREIGN[name])
            assert answer == 403, f"{operation}: {answer}"
    assert before.differences(database.snapshot()) == []


@pytest.mark.slow  # services/api/http/test_guards.py has each header on one route
async def test_our_own_page_and_programs_are_served(target: Target, town: Town, api: list[Operation]) -> None:
    ours = [
        {"origin": f"http://localhost:{target.port}", "host": f"localhost:{target.port}"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "cookie": "__Host-carillon=1"},
        {},
    ]
    for headers in ours:
        tenant = await town.tenant()
        for operation in api:
            if operation.changes and operation.role != "everybody":
                answer = await asked(target, operation, tenant, headers)
                assert answer not in {401, 403, 421}, f"{operation} with {headers}: {answer}"


@pytest.mark.parametrize("host", and_rarely(HOSTS[0], rarely=HOSTS[1:]))
async def test_a_foreign_host_name_gets_nothing(
    target: Target, town: Town, api: list[Operation], database: Database, host: str
) -> None:
    tenant = await town.tenant()
    before = database.snapshot()
    for operation in api:
        answer = await asked(target, operation, tenant, {"host": host})
        assert answer == 421 or operation.path in BY_ANY_NAME, f"{operation}: {answer}"
    assert before.differences(database.snapshot()) == []


@pytest.mark.parametrize("host", OUR_HOSTS)
async def test_our_own_host_names_are_served(target: Target, town: Town, host: str) -> None:
    assert (await target.call("GET", "/schedules", headers={**ADMIN, "host": host})).status == 200


@pytest.mark.parametrize("lines", ["", "Host:\r\n", "Host: localhost\r\nHost: evil.example\r\n"])
async def test_a_request_names_one_host(target: Target, town: Town, lines: str) -> None:
    request = f"GET /schedules HTTP/1.1\r\n{lines}x-forwarded-email: admin@example.com\r\nConnection: close\r\n\r\n"
    [status] = await exchange(target.port, request.encode())
    assert status in {400, 421}


async def asked(target: Target, operation: Operation, tenant: Tenant, headers: Mapping[str, str]) -> int:
    who = admin_or_client(operation, tenant)
    path, body = operation.filled(tenant.ids), operation.valid(tenant.ids)
    return (await target.call(operation.method, path, body, {**who, **headers})).status
