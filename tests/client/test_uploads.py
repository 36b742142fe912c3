"""Files for jobs: against the real API with S3 and with a folder."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from carillon import AsyncCarillon, Invalid, NotFound, PushJob
from carillon.templates import SLICE_BYTES
from shared.drivers.blobs.s3 import S3Blobs
from shared.runtime.serving import HttpServer
from tests.client.both import connect
from tests.client.cutting import CuttingProxy
from tests.drivers.blobs.owners import BucketOwner
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt
from tests.stack import Endpoints

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

LINES = b"id\n" + b"".join(b"u%d\n" % n for n in range(100_000))


@pytest.fixture
def owner(stack: Endpoints) -> BucketOwner:
    return BucketOwner(stack.s3_url)


@pytest.fixture
def bucket(owner: BucketOwner) -> str:
    return f"uploads-{secrets.token_hex(6)}"


@pytest_asyncio.fixture(loop_scope="module")
async def with_s3(house: House, stack: Endpoints, bucket: str) -> AsyncIterator[AsyncCarillon]:
    """A client of a deployment whose files lie in S3, which outside has another name."""
    blobs = S3Blobs(
        f"s3://{bucket}",
        endpoint_url=stack.s3_url,
        public_endpoint_url=stack.s3_url.replace("127.0.0.1", "localhost"),
        region="us-east-1",
        access_key="anybody",
        secret_key="anything",
    )
    server = HttpServer("api", rebuilt(house, blobs=blobs, uploads=None), host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    async with connect(f"http://127.0.0.1:{server.port}", user=ADMIN) as client:
        yield client
    await server.stop()
    await blobs.close()


async def in_lines(content: bytes) -> AsyncIterator[bytes]:
    for line in content.splitlines(keepends=True):
        yield line


async def test_a_file_and_a_stream_are_put_where_a_job_finds_them(
    with_s3: AsyncCarillon,
    house: House,
    owner: BucketOwner,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner.make(bucket)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "users.csv"
    file.write_bytes(LINES)
    app_id = await house.app_with_template()
    paths = [await with_s3.uploads.put(source) for source in (file, str(file), in_lines(LINES))]
    assert len(set(paths)) == 3
    for path in paths:
        assert path.startswith(f"{bucket}/jobs/")
        assert owner.get(path) == LINES
        job = PushJob(service="apns", template="like", csv_path=path, control_group=0.1)
        assert (await with_s3.jobs.create(app_id, job)).csv_path == path
    assert list(tmp_path.iterdir()) == [file]
    owner.remove(bucket)


@pytest.mark.slow
async def test_a_file_in_parts_is_sent_once_whatever_it_is_called_and_a_job_finds_it(
    with_s3: AsyncCarillon, house: House, owner: BucketOwner, bucket: str, tmp_path: Path
) -> None:
    owner.make(bucket)
    app_id = await house.app_with_template()
    content = b"id\n" + b"u1\n" * (SLICE_BYTES // 3 + 1_000)
    (tmp_path / "users.csv").write_bytes(content)
    (tmp_path / "again.csv").write_bytes(content)
    told: list[tuple[int, int]] = []
    upload = await with_s3.uploads.upload_csv(
        app_id, tmp_path / "users.csv", on_progress=lambda *each: told.append(each)
    )
    assert (upload.completed, upload.bytes, upload.lines) == (True, len(content), content.count(b"\n"))
    assert [part.bytes for part in upload.parts] == [SLICE_BYTES, len(content) - SLICE_BYTES]
    assert owner.get(upload.csv_path) == content
    assert told == sorted(told)
    assert told[-1] == (len(content), len(content))
    silent: list[int] = []
    again = await with_s3.uploads.upload_csv(
        app_id, tmp_path / "again.csv", on_progress=lambda done, _: silent.append(done)
    )
    assert (again, silent) == (upload, [])
    assert (await with_s3.uploads.upload_csv(app_id, in_lines(LINES))).csv_path != upload.csv_path
    job = PushJob(service="apns", template="like", csv_path=upload.csv_path)
    assert (await with_s3.jobs.create(app_id, job)).csv_path == upload.csv_path
    owner.remove(bucket)


async def test_an_upload_in_parts_goes_on_where_it_stood(
    with_s3: AsyncCarillon, house: House, owner: BucketOwner, bucket: str, tmp_path: Path
) -> None:
    owner.make(bucket)
    app_id = await house.app_with_template()
    content = b"id\n" + b"u2\n" * (SLICE_BYTES // 3 + 1_000)
    file = tmp_path / "users.csv"
    file.write_bytes(content)

    def break_off(done: int, _: int) -> None:
        if done > SLICE_BYTES:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await with_s3.uploads.upload_csv(app_id, file, on_progress=break_off)
    told: list[int] = []
    upload = await with_s3.uploads.upload_csv(app_id, file, on_progress=lambda done, _: told.append(done))
    assert told[0] == SLICE_BYTES  # nothing of the first part was read again
    assert owner.get(upload.csv_path) == content
    owner.remove(bucket)


@pytest.mark.slow
async def test_two_who_send_the_same_at_once_both_get_it(
    with_s3: AsyncCarillon, house: House, owner: BucketOwner, bucket: str, tmp_path: Path
) -> None:
    owner.make(bucket)
    app_id = await house.app_with_template()
    file = tmp_path / "users.csv"
    file.write_bytes(b"id\n" + secrets.token_hex(8).encode())
    one, other = await asyncio.gather(*(with_s3.uploads.upload_csv(app_id, file) for _ in range(2)))
    assert one.csv_path == other.csv_path
    assert owner.get(one.csv_path) == file.read_bytes()
    owner.remove(bucket)


async def test_answers_that_are_lost_double_nothing(
    cut_off: AsyncCarillon, proxy: CuttingProxy, house: House, tmp_path: Path
) -> None:
    app_id = await house.app_with_template()
    file = tmp_path / "users.csv"
    file.write_bytes(b"id\n" + secrets.token_hex(8).encode())
    proxy.to_lose = 3  # of the question, the part and the completion
    upload = await cut_off.uploads.upload_csv(app_id, file)
    assert (proxy.to_lose, upload.completed, len(upload.parts)) == (0, True, 1)
    assert (await house.blobs.stat(upload.csv_path)).size == file.stat().st_size


async def test_an_empty_file_is_refused(client: AsyncCarillon, house: House, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(b"")
    with pytest.raises(Invalid, match="the file is empty") as caught:
        await client.uploads.upload_csv(await house.app_with_template(), file)
    assert caught.value.field == "body"


async def test_what_s3_refuses_is_told_in_its_words(with_s3: AsyncCarillon, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(LINES)
    with pytest.raises(NotFound, match="NoSuchBucket: ") as caught:
        await with_s3.uploads.put(file)
    assert caught.value.status == 404


async def test_a_file_is_put_into_a_folder(client: AsyncCarillon, house: House, tmp_path: Path) -> None:
    for content in (b"id\nu1\n", b""):
        file = tmp_path / "users.csv"
        file.write_bytes(content)
        assert (await house.blobs.stat(await client.uploads.put(file))).size == len(content)


async def test_a_file_that_is_too_large_for_the_deployment_is_not_sent(
    cut_off: AsyncCarillon, proxy: CuttingProxy, tmp_path: Path
) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(LINES)
    with pytest.raises(Invalid, match="larger than this server takes") as caught:
        await cut_off.uploads.put(file)
    assert caught.value.status == 413
    assert proxy.carried < len(LINES) // 10


async def test_an_error_of_a_stream_is_its_own(
    client: AsyncCarillon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def broken() -> AsyncIterator[bytes]:
        yield b"id\n"
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        await client.uploads.put(broken())
    assert list(tmp_path.iterdir()) == []
