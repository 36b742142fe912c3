"""Uploads in parts: what the API takes, what it refuses, and what it remembers."""

import asyncio
import re
import uuid
from typing import Any, cast

import pytest
import pytest_asyncio

from services.api.jobs.uploads import _read_part
from services.wiring.api import api_components
from services.wiring.rooms import Rooms
from shared.core.errors import Unavailable
from shared.jobs.rules.uploads import MAX_PART_BYTES
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt
from tests.services.api.jobs.in_parts import LARGE, content_of, put

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(house: House) -> Client:
    """An admin of an API that takes files of 100 GiB."""
    return Client(rebuilt(house), house.admin.headers)


@pytest_asyncio.fixture(loop_scope="module")
async def app_id(house: House) -> str:
    return await house.app_with_template()


async def test_a_file_comes_in_parts_and_a_job_can_read_it(house: House, api: Client, app_id: str) -> None:
    first = await put(api, app_id, 1, LARGE)
    upload = first.json["uploadId"]
    assert (first.status, first.json) == (200, {"uploadId": upload, "number": 1, "bytes": len(LARGE)})
    assert (await put(api, app_id, 2, b"u2\nu3", upload)).status == 200
    path = f"/apps/{app_id}/uploads/{upload}"
    shown = (await api.get(path)).json
    assert (shown["completed"], shown["csvPath"], shown["bytes"]) == (False, "", len(LARGE) + 5)
    assert [(part["number"], part["bytes"]) for part in shown["parts"]] == [(1, len(LARGE)), (2, 5)]
    done = await api.post(f"{path}/complete", {"bytes": len(LARGE) + 5})
    lines = LARGE.count(b"\n") + 2
    assert done.json == shown | {"completed": True, "csvPath": done.json["csvPath"], "lines": lines}
    assert re.fullmatch(f"{house.blobs.bucket}/jobs/{app_id}/{upload}-[0-9a-f]{{8}}.csv", done.json["csvPath"])
    assert await content_of(house, done.json["csvPath"]) == LARGE + b"u2\nu3"
    body = {"service": "apns", "csvPath": done.json["csvPath"]}
    assert (await api.post(f"/apps/{app_id}/jobs?template=like", body)).status == 201


async def test_what_is_repeated_changes_nothing(house: House, api: Client, app_id: str) -> None:
    upload = str(uuid.uuid4())
    for content in (b"wrong", b"id\nu1\n", b"id\nu1\n"):
        assert (await put(api, app_id, 1, content, upload)).json["uploadId"] == upload
    path = f"/apps/{app_id}/uploads/{upload}"
    answers = [await api.post(f"{path}/complete") for _ in range(3)]
    assert {answer.status for answer in answers} == {200}
    assert answers[0].json == answers[1].json == answers[2].json
    assert await content_of(house, answers[0].json["csvPath"]) == b"id\nu1\n"
    late = await put(api, app_id, 1, b"id\nu2\n", upload)
    assert (late.status, late.json["field"]) == (409, "upload")


async def test_two_first_parts_at_once_begin_one_upload(house: House, api: Client, app_id: str) -> None:
    upload = str(uuid.uuid4())
    replies = await asyncio.gather(*(put(api, app_id, 1, b"id\nu1\n", upload) for _ in range(4)))
    assert {reply.status for reply in replies} == {200}
    done = await api.post(f"/apps/{app_id}/uploads/{upload}/complete", {"bytes": 6})
    assert done.status == 200, done.body


async def test_an_upload_of_another_app_is_not_there(house: House, api: Client, app_id: str) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    other = await house.app()
    path = f"/apps/{other}/uploads/{upload}"
    for reply in (
        await put(api, other, 2, b"u2\n", upload),
        await api.get(path),
        await api.post(f"{path}/complete"),
    ):
        assert (reply.status, reply.json["field"]) == (404, "uploadId")
    unknown = await put(api, str(uuid.uuid4()), 1, b"id\n")
    assert (unknown.status, unknown.json["field"]) == (404, "appId")


@pytest.mark.parametrize(
    ("parts", "size", "field"),
    [
        ({1: b"id\nu1\n", 3: b"u2\n"}, None, "part"),
        ({1: b"id\nu1\n", 2: b"u2\n"}, None, "part"),
        ({1: b"id\nu1\n"}, 7, "bytes"),
    ],
)
async def test_what_makes_no_file_is_not_completed(
    api: Client, app_id: str, parts: dict[int, bytes], size: int | None, field: str
) -> None:
    upload = str(uuid.uuid4())
    for number, content in parts.items():
        assert (await put(api, app_id, number, content, upload)).status == 200
    path = f"/apps/{app_id}/uploads/{upload}"
    refused = await api.post(f"{path}/complete", {"bytes": size})
    assert (refused.status, refused.json["field"]) == (409, field)
    assert (await api.get(path)).json["completed"] is False


@pytest.mark.parametrize(
    ("query", "content", "status", "field"),
    [
        ("part=0", b"x", 422, "part"),
        ("part=206", b"x", 422, "part"),
        ("", b"x", 422, "part"),
        ("part=1&upload=../../x", b"x", 422, "upload"),
        ("part=1", b"", 422, "body"),
        ("part=1", bytes(MAX_PART_BYTES + 1), 413, None),
        ("part=2", b"x", 404, "uploadId"),
    ],
)
async def test_a_part_that_cannot_be_is_refused(
    api: Client, app_id: str, query: str, content: bytes, status: int, field: str | None
) -> None:
    refused = await api.send("PUT", f"/apps/{app_id}/uploads?{query}", content)
    assert (refused.status, refused.json["field"]) == (status, field)


async def test_the_first_part_begins_an_upload_and_the_others_come_in_any_order(api: Client, app_id: str) -> None:
    upload = str(uuid.uuid4())
    early = await put(api, app_id, 2, LARGE, upload)
    assert (early.status, early.json["field"], "it begins with part 1" in early.json["reason"]) == (
        404,
        "uploadId",
        True,
    )
    for number, content in ((1, LARGE), (3, b"u3\n"), (2, LARGE)):
        assert (await put(api, app_id, number, content, upload)).status == 200
    done = await api.post(f"/apps/{app_id}/uploads/{upload}/complete", {"bytes": 2 * len(LARGE) + 3})
    assert (done.status, [part["number"] for part in done.json["parts"]]) == (200, [1, 2, 3])


async def test_an_empty_file_is_called_one(api: Client, app_id: str) -> None:
    for number, reason in ((1, "the file is empty"), (2, "a part has 1 to 8,388,608 bytes")):
        upload = (await put(api, app_id, 1, b"id\n")).json["uploadId"]
        refused = await put(api, app_id, number, b"", upload)
        assert (refused.status, refused.json["reason"]) == (422, reason)


async def test_a_first_part_that_cannot_be_begins_nothing(house: House, api: Client, app_id: str) -> None:
    upload = str(uuid.uuid4())
    assert (await put(api, app_id, 1, b"", upload)).status == 422
    assert (await put(house.admin, app_id, 1, bytes(101), upload)).status == 422
    assert (await api.get(f"/apps/{app_id}/uploads/{upload}")).status == 404


async def test_a_file_that_is_too_large_for_the_deployment_is_refused_with_the_part_that_makes_it_so(
    house: House, app_id: str
) -> None:
    upload = (await put(house.admin, app_id, 1, bytes(60))).json["uploadId"]  # 100 bytes are all that it takes
    refused = await put(house.admin, app_id, 2, bytes(60), upload)
    assert (refused.status, refused.json["field"]) == (422, "body")
    assert (await put(house.admin, app_id, 1, bytes(90), upload)).status == 200


@pytest.mark.parametrize(("bound", "for_others"), [("PARTS_AT_ONCE", 429), ("PARTS_OF_A_CALLER", 200)])
async def test_who_comes_while_many_parts_are_underway_is_told_when_to_come_again(
    house: House, api: Client, app_id: str, monkeypatch: pytest.MonkeyPatch, bound: str, for_others: int
) -> None:
    monkeypatch.setattr(f"services.api.jobs.uploads.{bound}", 1)
    entered, leave = asyncio.Event(), asyncio.Event()
    write = house.blobs.write_part

    async def wait_and_write(*args: Any) -> str:
        if not entered.is_set():
            entered.set()
            await leave.wait()
        return await write(*args)

    monkeypatch.setattr(house.blobs, "write_part", wait_and_write)
    first = asyncio.create_task(put(api, app_id, 1, b"id\nu1\n"))
    await entered.wait()
    refused = await put(api, app_id, 1, b"id\nu1\n")
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    made = await house.admin.post("/tokens", {"name": "other", "roles": {"*": "operator"}})
    assert (await put(api.service(made.json["token"]), app_id, 1, b"id\nu1\n")).status == for_others
    leave.set()
    assert (await first).status == 200
    assert (await put(api, app_id, 1, b"id\nu1\n")).status == 200


async def test_a_part_that_does_not_come_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.api.jobs.uploads.PART_SECONDS", 0.01)

    class Silent:
        async def body(self) -> bytes:
            await asyncio.Event().wait()
            return b""

    with pytest.raises(Unavailable, match="did not come within"):
        await _read_part(cast(Any, Silent()))


async def test_a_viewer_brings_no_files(house: House, api: Client, app_id: str) -> None:
    made = await house.admin.post("/tokens", {"name": "viewer", "roles": {f"app/{app_id}": "viewer"}})
    viewer = api.service(made.json["token"])
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    assert (await put(viewer, app_id, 1, b"id\nu1\n")).status == 403
    assert (await viewer.get(f"/apps/{app_id}/uploads/{upload}")).status == 403


async def test_the_api_drops_what_is_abandoned(house: House) -> None:
    assert "abandoned uploads" in {component.name for component in api_components(Rooms(house.servers))}
