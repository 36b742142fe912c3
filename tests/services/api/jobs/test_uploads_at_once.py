"""Uploads in parts: several at once, what dies in between, and what is dropped."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from shared.core.errors import Conflict, Unavailable
from shared.jobs.rules.uploads import measure_part
from shared.jobs.uploads import UploadFlow
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt
from tests.services.api.jobs.in_parts import LARGE, content_of, known_of, put

pytestmark = [pytest.mark.later("waits for time-outs of a whole upload"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def api(house: House) -> Client:
    """An admin of an API that takes files of 100 GiB."""
    return Client(rebuilt(house), house.admin.headers)


@pytest_asyncio.fixture(loop_scope="module")
async def app_id(house: House) -> str:
    return await house.app_with_template()


@pytest.fixture
def flow(house: House) -> UploadFlow:
    return UploadFlow(house.store, house.blobs, house.servers.time, folder="jobs", max_bytes=2**30)


async def test_what_nobody_completes_is_dropped_after_its_time(
    house: House, api: Client, app_id: str, flow: UploadFlow
) -> None:
    left, done = [(await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"] for _ in range(2)]
    path = (await api.post(f"/apps/{app_id}/uploads/{done}/complete")).json["csvPath"]
    assert (await flow.drop_abandoned()).discarded == 0
    assert (await flow.drop_abandoned(after=timedelta(seconds=-60))).discarded >= 2
    for upload in (left, done):
        assert (await api.get(f"/apps/{app_id}/uploads/{upload}")).status == 404
        assert (await put(api, app_id, 2, b"u2\n", upload)).status == 404
    assert await content_of(house, path) == b"id\nu1\n"
    assert not [*(house.blobs._folder / ".parts").iterdir()]


async def test_an_upload_whose_parts_are_gone_begins_again(house: House, api: Client, app_id: str) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    known = await known_of(house, app_id, upload)
    await house.blobs.drop_parts(known.path, known.token)  # as a rule of the bucket does
    assert (await api.post(f"/apps/{app_id}/uploads/{upload}/complete")).status == 404
    assert (await put(api, app_id, 1, b"id\nu1\n", upload)).status == 200
    assert (await api.post(f"/apps/{app_id}/uploads/{upload}/complete")).status == 200


async def test_a_file_that_somebody_deletes_can_be_brought_again(house: House, api: Client, app_id: str) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    file = (await api.post(f"{path}/complete")).json["csvPath"]
    (house.blobs._folder / file).unlink()
    assert (await api.get(path)).status == 404
    assert (await put(api, app_id, 1, b"id\nu1\n", upload)).status == 200
    again = (await api.post(f"{path}/complete")).json["csvPath"]
    assert again != file
    assert await content_of(house, again) == b"id\nu1\n"


async def test_a_completion_that_died_before_its_note_is_done_by_the_next(
    house: House, api: Client, app_id: str
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    known = await known_of(house, app_id, upload)
    await house.blobs.join_parts(known.path, known.token, [(1, known.parts["1"].version)])
    done = await api.post(f"/apps/{app_id}/uploads/{upload}/complete")
    assert (done.status, done.json["csvPath"]) == (200, known.path)
    assert (await api.get(f"/apps/{app_id}/uploads/{upload}")).json == done.json


async def test_a_part_behind_a_joining_that_nobody_noted_does_not_begin_anew(
    house: House, api: Client, app_id: str
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    known = await known_of(house, app_id, upload)
    await house.blobs.join_parts(known.path, known.token, [(1, known.parts["1"].version)])
    late = await put(api, app_id, 1, b"id\nu1\n", upload)
    assert (late.status, late.json["field"]) == (409, "upload")
    assert (await api.post(f"/apps/{app_id}/uploads/{upload}/complete")).status == 200


async def test_a_completion_that_s3_refuses_because_another_was_faster_gets_its_answer(
    house: House, api: Client, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    join = house.blobs.join_parts

    async def join_and_refuse(*args: Any) -> None:
        await join(*args)
        raise Conflict("a part is not there")

    monkeypatch.setattr(house.blobs, "join_parts", join_and_refuse)
    done = await api.post(f"/apps/{app_id}/uploads/{upload}/complete")
    assert (done.status, done.json["completed"], done.json["bytes"]) == (200, True, 6)
    assert await content_of(house, done.json["csvPath"]) == b"id\nu1\n"


async def test_completions_at_once_get_one_answer_and_one_file(house: House, api: Client, app_id: str) -> None:
    upload = (await put(api, app_id, 1, LARGE)).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    answers = await asyncio.gather(*(api.post(f"{path}/complete", {"bytes": len(LARGE)}) for _ in range(4)))
    assert [answer.status for answer in answers] == [200] * 4
    assert all(answer.json == answers[0].json for answer in answers)
    assert await content_of(house, answers[0].json["csvPath"]) == LARGE


async def test_a_completion_behind_another_ones_joining_does_not_replace_the_file(
    house: House, api: Client, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    join, read = house.blobs._parts.join, asyncio.Event()
    leave, loop = threading.Event(), asyncio.get_running_loop()

    def join_and_wait(*args: Any) -> None:
        join(*args)
        loop.call_soon_threadsafe(read.set)
        assert leave.wait(30)

    monkeypatch.setattr(house.blobs._parts, "join", join_and_wait)
    slow = asyncio.create_task(api.post(f"{path}/complete"))
    await read.wait()
    monkeypatch.setattr(house.blobs._parts, "join", join)
    fast = await api.post(f"{path}/complete")
    blob = await house.blobs.stat(fast.json["csvPath"])
    leave.set()
    assert (await slow).json == fast.json
    assert await house.blobs.stat(fast.json["csvPath"]) == blob


async def test_a_file_that_is_brought_again_leaves_the_one_alone_that_jobs_read(
    house: House, api: Client, app_id: str, flow: UploadFlow
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    first = (await api.post(f"{path}/complete")).json["csvPath"]
    blob = await house.blobs.stat(first)
    await flow.drop_abandoned(after=timedelta(seconds=-60))
    assert (await put(api, app_id, 1, b"id\nu1\n", upload)).status == 200
    assert (await api.post(f"{path}/complete")).json["csvPath"] != first
    assert await house.blobs.stat(first) == blob


async def test_a_file_in_whose_place_another_one_lies_is_not_the_uploads(
    house: House, api: Client, app_id: str
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    file = (await api.post(f"{path}/complete")).json["csvPath"]
    (house.blobs._folder / file).write_bytes(b"id\nanother\n")
    assert (await api.post(f"{path}/complete")).status == 404
    assert (await put(api, app_id, 1, b"id\nu1\n", upload)).status == 200


async def test_a_part_that_is_not_what_was_noted_of_it_is_sent_again(house: House, api: Client, app_id: str) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    known = await known_of(house, app_id, upload)
    await house.blobs.write_part(known.path, known.token, 1, b"id\nu2\n")  # by one who died before the note
    refused = await api.post(f"{path}/complete")
    assert (refused.status, refused.json["field"]) == (409, "part")
    assert "send all parts again" in refused.json["reason"]
    assert (await api.get(path)).json["parts"] == []
    assert (await put(api, app_id, 1, b"id\nu1\n", upload)).status == 200
    done = await api.post(f"{path}/complete")
    assert await content_of(house, done.json["csvPath"]) == b"id\nu1\n"


async def test_a_part_that_is_replaced_during_the_joining_stays_noted(
    house: House, api: Client, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = (await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    join = house.blobs.join_parts

    async def join_after_a_part(*args: Any) -> None:
        monkeypatch.setattr(house.blobs, "join_parts", join)
        assert (await put(api, app_id, 1, b"id\nu22\n", upload)).status == 200
        await join(*args)

    monkeypatch.setattr(house.blobs, "join_parts", join_after_a_part)
    assert (await api.post(f"{path}/complete")).status == 409
    done = await api.post(f"{path}/complete")
    assert (done.status, done.json["bytes"]) == (200, 7)


async def test_a_part_that_is_noted_behind_the_joining_is_not_in_the_answer(
    house: House, api: Client, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = (await put(api, app_id, 1, LARGE)).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    join = house.blobs.join_parts

    async def join_before_a_note(*args: Any) -> None:
        await join(*args)
        late = measure_part(b"u2\n", "version")
        assert await house.store.uploads.note_part(await known_of(house, app_id, upload), 2, late)

    monkeypatch.setattr(house.blobs, "join_parts", join_before_a_note)
    done = await api.post(f"{path}/complete")
    assert (done.status, done.json["bytes"], len(done.json["parts"])) == (200, len(LARGE), 1)
    assert (await api.get(path)).json == done.json


async def test_a_file_that_parts_sent_at_once_make_too_large_is_not_completed(
    house: House, api: Client, app_id: str
) -> None:
    upload = (await put(api, app_id, 1, LARGE)).json["uploadId"]
    path = f"/apps/{app_id}/uploads/{upload}"
    refused = await house.admin.post(f"{path}/complete")  # 100 bytes are all that it takes
    assert (refused.status, refused.json["field"]) == (422, "body")
    assert (await api.get(path)).json["completed"] is False
    assert (await api.post(f"{path}/complete")).status == 200
    assert (await house.admin.post(f"{path}/complete")).status == 200  # as it is complete


async def test_an_upload_that_cannot_be_dropped_keeps_no_other(
    house: House, api: Client, app_id: str, flow: UploadFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await flow.drop_abandoned(after=timedelta(seconds=-60))
    stuck, other = [(await put(api, app_id, 1, b"id\nu1\n")).json["uploadId"] for _ in range(2)]
    stuck_path = (await known_of(house, app_id, stuck)).path
    drop = house.blobs.drop_parts

    async def refuse_one(path: str, token: str) -> None:
        if path == stuck_path:
            raise Unavailable("S3 gave no answer within 60 s")
        await drop(path, token)

    monkeypatch.setattr(house.blobs, "drop_parts", refuse_one)
    before = (await known_of(house, app_id, stuck)).changed_at
    swept = await flow.drop_abandoned(after=timedelta(seconds=-60))
    assert (swept.discarded, swept.retried) == (1, 1)
    assert (await api.get(f"/apps/{app_id}/uploads/{other}")).status == 404
    assert (await known_of(house, app_id, stuck)).changed_at > before
    monkeypatch.setattr(house.blobs, "drop_parts", drop)
    assert (await flow.drop_abandoned(after=timedelta(seconds=-60))).discarded == 1


async def test_a_place_of_files_that_is_down_is_not_asked_for_every_upload(
    house: House, api: Client, app_id: str, flow: UploadFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        assert (await put(api, app_id, 1, b"id\nu1\n")).status == 200

    async def refuse(*_: Any) -> None:
        raise Unavailable("S3 gave no answer within 60 s")

    with monkeypatch.context() as patch:
        patch.setattr(house.blobs, "drop_parts", refuse)
        swept = await flow.drop_abandoned(after=timedelta(seconds=-60))
    assert swept.retried == 5  # completed ones of other tests are only forgotten
    assert (await flow.drop_abandoned(after=timedelta(seconds=-60))).discarded >= 7
