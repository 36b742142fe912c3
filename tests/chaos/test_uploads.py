"""A file that comes in parts while processes of the API die: another one takes the next part, and the file is whole."""

import asyncio
import signal
import urllib.request
from pathlib import Path

import pytest

from carillon import AsyncCarillon, Unavailable
from carillon.templates import SLICE_BYTES
from services.embedded.processes import free_port
from tests.e2e.house import House, Process
from tests.e2e.test_over_http import Customer, an_app
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

ADMIN = "admin@example.com"


async def an_api(house: House, *, fault: str = "") -> tuple[Process, int]:
    port = free_port()
    process = await house.start("api", fault=fault, CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN=ADMIN)
    return process, port


def client_of(port: int) -> AsyncCarillon:
    return AsyncCarillon(f"http://127.0.0.1:{port}", user=ADMIN, attempts=2)


@pytest.fixture
async def app_id(house: House) -> str:
    bucket = f"{house.environment['CARILLON_BLOBS_ENDPOINT_URL']}/{house.servers.blobs.bucket}"
    request = urllib.request.Request(bucket, method="PUT")
    (await asyncio.to_thread(urllib.request.urlopen, request, timeout=30)).close()
    _, port = await an_api(house)
    return await an_app(house, Customer(port))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three parts."""
    path = tmp_path / "users.csv"
    path.write_bytes(b"id\n" + b"".join(b"u%07d\n" % number for number in range(2 * SLICE_BYTES // 9 + 1_000)))
    return path


async def finish(house: House, port: int, app_id: str, file: Path) -> None:
    """Take the upload up at this process: the first part is there, and it becomes the file."""
    told: list[int] = []
    async with client_of(port) as client:
        upload = await client.uploads.upload_csv(app_id, file, on_progress=lambda done, _: told.append(done))
        assert (await client.uploads.get(app_id, upload.id)).csv_path == upload.csv_path
    assert told[0] == SLICE_BYTES
    assert upload.lines == file.read_bytes().count(b"\n")
    assert await house.content(upload.csv_path) == file.read_bytes()


@pytest.mark.slow
async def test_the_api_is_killed_between_two_parts(house: House, app_id: str, file: Path) -> None:
    first, port = await an_api(house)
    _, other = await an_api(house)

    def kill(done: int, _: int) -> None:
        if done > SLICE_BYTES:  # the second part has begun, so the first one was answered
            first.send(signal.SIGKILL)

    async with client_of(port) as client:
        with pytest.raises(Unavailable):
            await client.uploads.upload_csv(app_id, file, on_progress=kill)
    assert await first.gone() == -signal.SIGKILL
    await finish(house, other, app_id, file)


@pytest.mark.parametrize("fault", and_rarely("upload.after_join=kill", rarely=["upload.after_part@2=kill"]))
async def test_the_api_is_killed_before_it_can_note_what_it_did(
    house: House, app_id: str, file: Path, fault: str
) -> None:
    doomed, port = await an_api(house, fault=fault)
    _, other = await an_api(house)
    async with client_of(port) as client:
        with pytest.raises(Unavailable):
            await client.uploads.upload_csv(app_id, file)
    assert await doomed.gone() == -signal.SIGKILL
    await finish(house, other, app_id, file)
