"""What a file meets on its way: a server that gives out URLs of its own, and takes files by a script."""

import asyncio
import errno
import io
import logging
import os
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from carillon import AsyncCarillon, CarillonError, Conflict, Forbidden, Invalid, Unavailable
from carillon.async_runtime import AsyncRuntime, _Timeout
from carillon.blocking_runtime import BlockingRuntime, Deadline
from tests.client.both import Limits, connect
from tests.tiers import and_rarely

pytestmark = pytest.mark.usefixtures("each_client")

Step = Callable[[web.BaseRequest], Awaitable[web.Response]]
SIGNED = "X-Amz-Credential=me%2F20260101%2Fs3&X-Amz-Security-Token=a%2Bb%2Fc%3D%3D&X-Amz-Signature=0f"


INTERNAL_ERROR = "<Error><Code>InternalError</Code><Message>Please try again.</Message></Error>"


async def busy(_: web.BaseRequest) -> web.Response:
    return web.Response(status=503)


async def failing(request: web.BaseRequest) -> web.Response:
    await request.read()
    return web.Response(status=500, text=INTERNAL_ERROR)


async def taking(request: web.BaseRequest) -> web.Response:
    while await request.content.readany():
        pass
    return web.Response()


class Store:
    """Answers each PUT by the next step and keeps what it was asked; how it consents is for a test to change."""

    def __init__(self, *steps: Step) -> None:
        self.asked: list[web.BaseRequest] = []
        self.told = 0
        self._steps = list(steps)

    async def url(self, request: web.BaseRequest) -> web.Response:
        self.told += 1
        path = f"bucket/jobs/{self.told}.csv"
        return web.json_response({"url": f"{request.url.origin()}/{path}?{SIGNED}", "csvPath": path})

    async def put(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request)
        return await self._steps.pop(0)(request)

    async def consent(self, request: web.Request) -> web.StreamResponse | None:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None


@asynccontextmanager
async def storing(store: Store, *, attempts: int = 5, timeout_seconds: float = 30) -> AsyncIterator[AsyncCarillon]:
    app = web.Application(client_max_size=0)
    app.router.add_get("/uploadurl", store.url)
    app.router.add_put("/{path:.*}", store.put, expect_handler=store.consent)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        async with connect(url, token="secret", attempts=attempts, timeout_seconds=timeout_seconds) as client:
            yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """64 MiB that take no room on the disk."""
    path = tmp_path / "users.csv"
    with path.open("wb") as made:
        made.truncate(64 * 2**20)
    return path


async def test_every_attempt_has_a_url_of_its_own_and_tells_nobody_who_asks(tmp_path: Path) -> None:
    path, content = tmp_path / "users.csv", os.urandom(700_000)
    path.write_bytes(content)
    bodies: list[bytes] = []

    async def kept(request: web.BaseRequest) -> web.Response:
        bodies.append(await request.read())
        return web.Response(status=200 if len(bodies) > 1 else 503)

    store = Store(kept, kept)
    async with storing(store) as client:
        assert await client.uploads.put(path) == "bucket/jobs/2.csv"
    assert bodies == [content, content]
    assert [request.path for request in store.asked] == ["/bucket/jobs/1.csv", "/bucket/jobs/2.csv"]
    for request in store.asked:
        assert request.headers["Content-Length"] == str(len(content))
        assert request.headers.keys().isdisjoint({"Authorization", "Transfer-Encoding", "Idempotency-Key"})
        assert dict(request.query) == {
            "X-Amz-Credential": "me/20260101/s3", "X-Amz-Security-Token": "a+b/c==", "X-Amz-Signature": "0f",
        }  # fmt: skip


async def test_memory_is_bounded(file: Path) -> None:
    async def poured(request: web.BaseRequest) -> web.Response:
        got = sum([len(part) async for part in request.content.iter_any()])
        return web.Response(status=200 if got == 64 * 2**20 else 400)

    async with storing(Store(poured)) as client:
        tracemalloc.start()
        await client.uploads.put(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * 2**20


async def test_a_file_may_take_longer_than_an_attempt_if_only_it_moves(file: Path) -> None:
    """The time limit begins anew with each part."""
    async with storing(Store(taking), attempts=1) as client:
        limits = Limits(client)
        await client.uploads.put(file)
    assert limits.restarted >= 64


async def test_a_limit_that_begins_anew_ends_later() -> None:
    async with AsyncRuntime().limit(50) as limit:
        assert isinstance(limit, _Timeout)
        before = limit._timeout.when() or 0.0
        await asyncio.sleep(0.05)
        limit.restart()
        assert (limit._timeout.when() or 0.0) > before > 0.0
    async with BlockingRuntime().limit(50) as deadline:
        assert isinstance(deadline, Deadline)
        before = deadline._end
        await asyncio.sleep(0.05)
        deadline.restart()
        assert deadline._end > before


async def test_a_file_that_stands_still_is_given_up(file: Path) -> None:
    over = asyncio.Event()

    async def stuck(_: web.BaseRequest) -> web.Response:
        await over.wait()
        return web.Response()

    async with storing(Store(stuck), attempts=1, timeout_seconds=0.5) as client:
        Limits(client, short=2)  # the first is that of the question where to put it
        with pytest.raises(Unavailable, match=r"PUT .*/bucket/jobs/1\.csv after 1 of 1") as caught:
            await client.uploads.put(file)
        over.set()
    assert "X-Amz" not in str(caught.value)


async def test_who_refuses_a_file_is_heard_before_it_is_sent(file: Path) -> None:
    class Refusing(Store):
        async def consent(self, request: web.Request) -> web.StreamResponse | None:
            body = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
            raise web.HTTPForbidden(text=body)

    store = Refusing()
    async with storing(store) as client:
        with pytest.raises(Forbidden, match="AccessDenied: Request has expired"):
            await client.uploads.put(file)
    assert (store.asked, store.told) == ([], 1)


async def test_who_never_consents_gets_it_all_the_same(file: Path) -> None:
    class Silent(Store):
        async def consent(self, request: web.Request) -> web.StreamResponse | None:
            return None

    async def whole(request: web.BaseRequest) -> web.Response:
        await request.content.readexactly(64 * 2**20)
        return web.Response()

    store = Silent(whole, whole)
    async with storing(store, timeout_seconds=1) as client:
        Limits(client, short=2)
        assert await client.uploads.put(file) == "bucket/jobs/2.csv"
    assert store.asked[-1].headers.get("Expect") is None
    assert all(request.headers["Expect"] == "100-continue" for request in store.asked[:-1])


@pytest.mark.parametrize("size", and_rarely(1_000, rarely=(65 * 2**20,)))
async def test_a_file_that_changes_on_its_way_is_refused(file: Path, size: int) -> None:
    async def changing(request: web.BaseRequest) -> web.Response:
        os.truncate(file, size)
        return await taking(request)

    store = Store(changing)
    async with storing(store) as client:
        with pytest.raises(Invalid, match="changed while") as caught:
            await client.uploads.put(file)
    assert caught.value.field == "source"
    assert len(store.asked) == 1


async def test_a_file_that_cannot_be_sent_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    store = Store()
    async with storing(store) as client:
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(ValueError, match="no regular file"):
                await client.uploads.put(path)
        with pytest.raises(FileNotFoundError):
            await client.uploads.put(tmp_path / "none")
    assert store.told == 0


async def test_attempts_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(b"id\n")
    store = Store(busy, busy, busy)
    async with storing(store, attempts=2) as client:
        with pytest.raises(Unavailable, match="after 2 of 2") as caught:
            await client.uploads.put(path)
    assert (caught.value.status, len(store.asked)) == (503, 2)


async def given_up(store: Store, file: Path) -> Unavailable:
    async with storing(store, attempts=2) as client:
        with pytest.raises(Unavailable, match=r"^gave up PUT .*/bucket/jobs/2\.csv after 2 of 2 attempts: ") as caught:
            await client.uploads.put(file)
    return caught.value


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


async def test_a_signature_is_not_shown_where_the_connection_breaks(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaking(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with caplog.at_level(logging.DEBUG):
        error = await given_up(Store(breaking, breaking), file)
    assert isinstance(error.__cause__, OSError)
    assert "X-Amz" not in shown(error)
    assert "X-Amz" not in "".join(record.getMessage() for record in caplog.records if "aiohttp" not in record.name)


async def test_a_signature_is_not_shown_where_the_url_is_none(file: Path) -> None:
    class Nowhere(Store):
        async def url(self, request: web.BaseRequest) -> web.Response:
            self.told += 1
            path = f"bucket/jobs/{self.told}.csv"
            return web.json_response({"url": f"http:///{path}?{SIGNED} x", "csvPath": path})

    error = await given_up(Nowhere(), file)
    assert "InvalidURL: the URL names no host" in str(error)
    assert "X-Amz" not in shown(error)


async def test_an_internal_error_of_s3_is_no_reason_to_give_up(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(b"id\n")
    async with storing(Store(failing, failing, taking)) as client:
        assert await client.uploads.put(path) == "bucket/jobs/3.csv"
    error = await given_up(Store(failing, failing), path)
    assert str(error).endswith("InternalError: Please try again.")
    assert error.status == 500


async def test_an_internal_error_of_the_api_is_final(file: Path) -> None:
    class Broken(Store):
        async def url(self, request: web.BaseRequest) -> web.Response:
            self.told += 1
            return web.Response(status=500)

    store = Broken()
    async with storing(store) as client:
        with pytest.raises(CarillonError) as caught:
            await client.uploads.put(file)
    assert (caught.value.status, store.told) == (500, 1)


class TakenByAnother:
    """An API where another one, who sends the same file, completes it between our last part and our completion."""

    def __init__(self, *, completed: bool) -> None:
        self._completed = completed
        self._refused = False

    async def get(self, request: web.Request) -> web.Response:
        if not self._refused:
            return web.json_response({"reason": "there is no such upload", "field": "uploadId"}, status=404)
        upload = {
            "id": request.match_info["id"],
            "appId": "app",
            "csvPath": "bucket/jobs/a.csv",
            "bytes": 3,
            "lines": 1,
        }
        return web.json_response(upload | {"completed": self._completed, "parts": []})

    async def put(self, request: web.Request) -> web.Response:
        size = len(await request.read())
        return web.json_response({"uploadId": request.query["upload"], "number": 1, "bytes": size})

    async def complete(self, _: web.Request) -> web.Response:
        self._refused = True
        return web.json_response({"reason": "a part is just being replaced", "field": "csvPath"}, status=409)


@asynccontextmanager
async def serving(api: TakenByAnother) -> AsyncIterator[AsyncCarillon]:
    app = web.Application()
    app.router.add_get("/apps/app/uploads/{id}", api.get)
    app.router.add_put("/apps/app/uploads", api.put)
    app.router.add_post("/apps/app/uploads/{id}/complete", api.complete)
    async with TestServer(app) as server, connect(str(server.make_url("/")), token="secret") as client:
        yield client


async def test_a_completion_behind_another_ones_gets_its_upload(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(b"id\n")
    async with serving(TakenByAnother(completed=True)) as client:
        assert (await client.uploads.upload_csv("app", path)).csv_path == "bucket/jobs/a.csv"
    async with serving(TakenByAnother(completed=False)) as client:
        with pytest.raises(Conflict, match="just being replaced"):
            await client.uploads.upload_csv("app", path)


@pytest.mark.parametrize("good_bytes", [0, 2**20])
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
async def test_a_file_that_cannot_be_read_on_its_way_is_told_at_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, code: int, good_bytes: int
) -> None:
    class Disk(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() == good_bytes:
                raise OSError(code, os.strerror(code))
            return super().read(size)

    monkeypatch.setattr(Path, "open", lambda *_: Disk(bytes(good_bytes)))
    store = Store(taking)
    async with storing(store) as client:
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            await client.uploads.put(file)
    assert (caught.value.errno, store.told) == (code, 1)
    assert "X-Amz" not in shown(caught.value)


async def test_a_file_that_is_gone_on_its_way_has_changed(file: Path) -> None:
    async def removing(_: web.BaseRequest) -> web.Response:
        file.unlink()
        return web.Response(status=503)

    store = Store(removing)
    async with storing(store) as client:
        with pytest.raises(Invalid, match="changed while"):
            await client.uploads.put(file)
    assert store.told == 1
