"""The id of a request: the same in its answer, its problem, its lines of the log and its record of the audit."""

import re
from typing import Any

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from services.api.http.errors import current_request_id
from shared.core.errors import Unavailable
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = re.compile(r"[0-9a-f]{32}")


async def test_a_callers_id_is_borne_by_the_answer(house: House) -> None:
    for given in ("7", "a1:b/c+d=e~f.g_h-i", "x" * 128):
        assert (await house.admin.get("/apps", x_request_id=given)).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "<script>", 'a"b', "a\tb", "é", "a,b", "a;b=c", "%0a"])
async def test_an_id_that_is_none_is_replaced_and_told_nowhere(house: House, given: str) -> None:
    answer = await house.admin.get("/nowhere", x_request_id=given)
    assert OURS.fullmatch(answer.headers["x-request-id"])
    assert answer.json["requestId"] == answer.headers["x-request-id"]


async def test_of_two_ids_none_is_taken(house: House) -> None:
    twice = [(b"x-request-id", b"one"), (b"x-request-id", b"two")]
    answer = await house.admin.exchange("GET", "/healthcheck", b"", twice)
    assert OURS.fullmatch(answer.headers["x-request-id"])


async def test_each_request_without_an_id_gets_one_of_its_own(house: House) -> None:
    ids = {(await house.admin.get("/apps")).headers["x-request-id"] for _ in range(10)}
    assert len(ids) == 10
    assert all(map(OURS.fullmatch, ids))
    assert current_request_id() == ""


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/apps/none", {}, 422),
        ("/nowhere", {}, 404),
        ("/apps", {"x-forwarded-email": "stranger@example.com"}, 401),
        ("/apps", {"host": "elsewhere"}, 421),
    ],
    ids=["a route", "no route", "nobody known", "another host"],
)
async def test_a_problem_names_its_request(house: House, path: str, headers: dict[str, str], status: int) -> None:
    sent = [
        (name.encode(), value.encode()) for name, value in (house.admin.headers | headers).items() if name != "host"
    ]
    answer = await house.admin.exchange("GET", path, b"", sent, host=headers.get("host", "localhost"))
    assert answer.status == status
    assert answer.json["requestId"] == answer.headers["x-request-id"]


async def test_lines_of_the_log_name_the_request(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("MongoDB is away")

    monkeypatch.setattr(house.store.apps, "page", refuse)
    with capture_logs(processors=[merge_contextvars]) as lines:
        assert (await house.admin.get("/apps", x_request_id="quoted")).status == 503
        structlog.get_logger().info("outside")
    assert {line["event"]: line.get("request_id") for line in lines} == {
        "a server is unavailable": "quoted",
        "request answered": "quoted",
        "outside": None,
    }


async def test_the_audit_names_the_request_and_its_trace(house: House) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for given, expected in ((f"00-{trace}-00f067aa0ba902b7-00", trace), ("nonsense", ""), ("", "")):
        app_id = await house.app()
        sent = {"x-request-id": f"delete-{app_id}", "traceparent": given}
        answer = await house.admin.send("DELETE", f"/apps/{app_id}", headers=sent)
        assert answer.status == 204
        [record] = (await house.admin.get(f"/audit?on={app_id}")).json
        assert (record["requestId"], record["trace"]) == (f"delete-{app_id}", expected)
        assert answer.headers["x-request-id"] == record["requestId"]
