"""What the OpenAPI document says is what the routes do."""

import re
from typing import Any

import pytest

from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

KEY = "training-invitations-42"


async def document(house: House) -> dict[str, Any]:
    return dict((await house.admin.get("/openapi.json")).json)


def path_parameters(document: dict[str, Any], path: str) -> dict[str, dict[str, Any]]:
    [parameters] = {
        str(found): found
        for operation in document["paths"][path].values()
        if (found := [each for each in operation["parameters"] if each["in"] == "path"])
    }.values()
    return {each["name"]: each["schema"] for each in parameters}


async def test_a_path_parameter_is_described_as_what_it_is(house: House) -> None:
    described = await document(house)
    instant = path_parameters(described, "/schedules/{key}/occurrences/{timestamp}")
    assert re.search(instant["key"]["pattern"], KEY)
    assert not re.search(instant["key"]["pattern"], "a b")
    assert instant["timestamp"] == {"type": "string", "format": "date-time"}
    assert path_parameters(described, "/dead-letters/{letterId}/retry") == {"letterId": {"type": "string"}}
    uuid = {"type": "string", "format": "uuid"}
    assert path_parameters(described, "/apps/{appId}/jobs/{jobId}") == {"appId": uuid, "jobId": uuid}
    assert path_parameters(described, "/users/{userId}") == {"userId": uuid}


async def test_operations_have_ids_that_are_names_in_every_language(house: House) -> None:
    described = await document(house)
    ids = {
        operation["operationId"]: (method, path)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert [id for id in ids if not re.fullmatch(r"[a-z][A-Za-z0-9]*", id)] == []
    assert ids["retryAllDeadLetters"] == ("post", "/dead-letters/retry")
    assert ids["discardDeadLetters"] == ("post", "/dead-letters/{letterId}/discard")
    assert ids["cancelSchedules"] == ("delete", "/schedules/{key}/occurrences/{timestamp}")


async def test_unknown_fields_are_refused_where_the_document_says_so(house: House) -> None:
    schemas = (await document(house))["components"]["schemas"]
    assert schemas["ScheduleBody"]["additionalProperties"] is False
    assert schemas["RetryFilter"]["additionalProperties"] is False
    assert "additionalProperties" not in schemas["TokenBody"]
    for path in ("/schedules", "/schedules/preview", "/dead-letters/retry"):
        reply = await house.admin.post(path, {"nobody_knows": 1})
        assert (reply.status, reply.json["field"]) == (422, "nobody_knows")
    assert (await house.admin.post("/tokens", {"name": "x", "nobodyKnows": 1})).status == 201


async def test_who_may_use_an_operation_is_told_by_the_role_of_its_security(house: House) -> None:
    paths = (await house.admin.get("/openapi.json")).json["paths"]

    def roles(method: str, path: str) -> list[dict[str, list[str]]]:
        return list(paths[path][method]["security"])

    assert roles("get", "/healthcheck") == []
    assert roles("get", "/uploadurl") == [{"token": []}, {"person": []}]
    assert roles("get", "/schedules") == [{"token": ["namespace/viewer"]}, {"person": ["namespace/viewer"]}]
    assert roles("get", "/apps/{appId}/jobs") == [{"token": ["app/viewer"]}, {"person": ["app/viewer"]}]
    assert roles("post", "/tokens") == [{"token": ["admin"]}, {"person": ["admin"]}]


async def test_only_bulk_takes_large_bodies(house: House) -> None:
    body = b" " * (2**20 + 1)
    for path, status in (("/schedules", 413), ("/schedules/bulk", 422), ("/tokens", 413)):
        assert (await house.admin.post(path, body)).status == status
    assert (await house.admin.post("/schedules/bulk", b" " * (32 * 2**20 + 1))).status == 413


async def test_bodies_are_described_as_what_is_taken(house: House) -> None:
    paths = (await house.admin.get("/openapi.json")).json["paths"]
    assert set(paths["/schedules/bulk"]["post"]["requestBody"]["content"]) == {
        "application/json",
        "application/x-ndjson",
    }
    assert not paths["/dead-letters/retry"]["post"]["requestBody"]["required"]
    assert paths["/schedules"]["post"]["requestBody"]["required"]
