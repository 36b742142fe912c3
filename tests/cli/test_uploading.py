"""`--csv`: on again after a broken connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from carillon.templates import SLICE_BYTES
from services.cli.api import Api
from services.cli.exits import Exit, Failure
from services.cli.job_options import upload_file
from services.cli.session import CommonOptions, Session
from shared.runtime.serving import HttpServer
from tests.client.cutting import CuttingProxy
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ATTEMPTS = 4


class BreakingProxy(CuttingProxy):
    """Loses so many answers in a row, once a megabyte has gone through."""

    def __init__(self, target: int, row: int) -> None:
        self._carried = 0
        self._row = row
        super().__init__(target)

    @property
    def carried(self) -> int:
        return self._carried

    @carried.setter
    def carried(self, count: int) -> None:
        if self._carried < 2**20 <= count:
            self.to_lose = self._row
        self._carried = count


@pytest_asyncio.fixture(loop_scope="module")
async def port(house: House) -> AsyncIterator[int]:
    server = HttpServer("api", rebuilt(house), host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    yield server.port
    await server.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_bytes(b"id\n" + b"u1\n" * (SLICE_BYTES // 3 + 1_000))
    return path


async def upload(proxy: CuttingProxy, app_id: str, file: Path) -> str:
    session = Session(CommonOptions())
    url = f"http://127.0.0.1:{proxy.port}"
    session._opened = Api.connect(url, token="", user=ADMIN, reason="", agent="test", patient=True)
    try:
        return await asyncio.to_thread(upload_file, session, app_id, file)
    finally:
        await asyncio.to_thread(session.close)


async def test_an_upload_goes_on_after_a_broken_connection(
    house: House, port: int, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("services.cli.job_options.PAUSES", (0, 0))
    proxy = BreakingProxy(port, ATTEMPTS)
    async with proxy.running():
        path = await upload(proxy, await house.app_with_template(), file)
    assert len(proxy.lost) == ATTEMPTS
    err = capsys.readouterr().err
    assert err.count("; going on in 0 s.") == 1
    assert "users.csv  uploading  100.0%" in err
    assert (await house.blobs.stat(path)).size == file.stat().st_size


@pytest.mark.slow
async def test_a_connection_that_stays_broken_is_given_up_with_what_to_type(
    house: House, port: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.job_options.PAUSES", (0,))
    app_id, proxy = await house.app_with_template(), BreakingProxy(port, 1_000)
    async with proxy.running():
        with pytest.raises(Failure, match="the same command goes on where this one stood") as caught:
            await upload(proxy, app_id, file)
    assert caught.value.exit_code == Exit.UNREACHABLE
    sound = CuttingProxy(port)
    async with sound.running():
        path = await upload(sound, app_id, file)
    assert sound.carried < SLICE_BYTES  # the first part is there
    assert (await house.blobs.stat(path)).size == file.stat().st_size
