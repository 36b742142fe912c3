"""What the OpenAPI document says is what the routes do."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from tests.rules.test_pages import find_backward_sentences
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

KEY = "training-invitations-42"
PROBLEM = "application/problem+json"


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
    assert ids["discardDeadLetter"] == ("post", "/dead-letters/{letterId}/discard")
    assert ids["cancelOccurrence"] == ("delete", "/schedules/{key}/occurrences/{timestamp}")


async def test_unknown_fields_are_refused_where_the_document_says_so(house: House) -> None:
    schemas = (await document(house))["components"]["schemas"]
    assert schemas["ScheduleBody"]["additionalProperties"] is False
    assert schemas["RetryFilter"]["additionalProperties"] is False
    assert schemas["TokenBody"]["additionalProperties"] is False
    assert "additionalProperties" not in schemas["UserBody"]
    for path in ("/schedules", "/schedules/preview", "/dead-letters/retry", "/tokens"):
        reply = await house.admin.post(path, {"nobody_knows": 1})
        assert (reply.status, reply.json["field"]) == (422, "nobody_knows")
    assert (await house.admin.post("/users", {"email": "x@example.com", "nobodyKnows": 1})).status == 201


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


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in document["paths"].values() for operation in methods.values()]


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """All schemas of a part of the document."""
    if isinstance(node, list):
        for each in node:
            yield from schemas(each)
    if isinstance(node, dict):
        is_schema = isinstance(node.get("type"), str | list) or bool({"$ref", "oneOf", "anyOf", "enum"} & node.keys())
        if is_schema:
            yield node
        for name, each in node.items():
            if not (is_schema and name in {"default", "discriminator", "enum", "examples"}):
                yield from schemas(each)


async def test_every_operation_tells_what_it_does_who_may_use_it_and_how_it_fails(house: House) -> None:
    for operation in operations(await document(house)):
        told = operation["operationId"]
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", told), f"{told} is no verb with what it is about"
        assert operation["summary"].endswith("."), told
        assert operation["description"].endswith("."), told
        assert all(parameter["description"] for parameter in operation["parameters"]), told
        answers = operation["responses"]
        assert [status for status in answers if status < "300"], told
        problems = {status for status, answer in answers.items() if PROBLEM in answer.get("content", {})}
        assert {status for status in answers if status >= "400"} - problems <= {"500"}, told
        wanted = {"421"}
        wanted |= {"401", "429", "500", "503"} if operation["security"] else set()
        is_published = any("basic" in way for way in operation["security"])
        wanted |= {"400" if is_published else "422"} if operation["parameters"] or "requestBody" in operation else set()
        wanted |= {"413"} if "requestBody" in operation else set()
        wanted |= {"403"} if "x-act" in operation else set()
        assert wanted <= problems, told


async def test_examples_and_defaults_are_what_their_schemas_allow(house: House) -> None:
    described = await document(house)
    checked = 0
    for schema in schemas(described):
        for value in [*schema.get("examples", []), *([schema["default"]] if "default" in schema else [])]:
            OAS31Validator({**schema, "components": described["components"]}).validate(value)
            checked += 1
    assert checked > 50


async def test_generators_are_told_a_type_for_every_value_and_a_name_for_every_union(house: House) -> None:
    """A number without a width has 32 bits in Go; a union without a name has an ugly one, and may have several."""
    described = await document(house)
    named = described["components"]["schemas"]
    assert [name for name, schema in named.items() if not schema["description"]] == []
    for schema in schemas(described):
        assert "anyOf" not in schema, schema
        assert "type" in schema or "enum" not in schema, schema
        for number, width in (("integer", "int64"), ("number", "double")):
            assert number not in schema.get("type", "") or schema["format"] == width, schema
        if "oneOf" in schema and schema not in named.values():
            [kind, null] = schema["oneOf"]
            assert "$ref" in kind and null == {"type": "null"}, schema


async def test_successes_of_several_kinds_are_one_named_union(house: House) -> None:
    described = await document(house)
    answers = described["paths"]["/bulk-actions"]["post"]["responses"]
    [told] = {answers[status]["content"]["application/json"]["schema"]["$ref"] for status in ("200", "202")}
    assert told == "#/components/schemas/BulkActionOrBulkFigures"
    assert [each["$ref"] for each in described["components"]["schemas"]["BulkActionOrBulkFigures"]["oneOf"]] == [
        "#/components/schemas/BulkAction",
        "#/components/schemas/BulkFigures",
    ]


def descriptions_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for name in ("description", "summary") if isinstance(text := value.get(name), str))
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from descriptions_in(each)


async def test_descriptions_open_with_their_subject(house: House) -> None:
    described = await document(house)
    assert {found for text in descriptions_in(described) for found in find_backward_sentences(text)} == set()
