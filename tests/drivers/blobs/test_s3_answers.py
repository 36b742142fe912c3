"""Answers of S3 that mean something else than they say, and answers that do not come."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest

from shared.audience.rules.audiences import File
from shared.core.errors import Conflict, Denied, Hidden, Invalid, NotFound, Unavailable
from shared.drivers.blobs import LateBlobs
from shared.drivers.blobs.s3 import S3Blobs
from tests.drivers.blobs.answers import Answering, Asked, answer, answering, refusal
from tests.drivers.blobs.conftest import closing
from tests.drivers.blobs.owners import parts

PATH = "bucket/jobs/players.csv"
ETAG = '"5d41402abc4b2a76b9719d911017c592"'
CONTENT = bytes(range(250)) * 400
BLOB = File(PATH, len(CONTENT), ETAG)


def opened(url: str, timeout_seconds: float = 40.0, silence_seconds: float = 40.0) -> S3Blobs:
    return S3Blobs(
        "s3://bucket",
        endpoint_url=url,
        access_key="me",
        secret_key="tell-no-one",
        timeout_seconds=timeout_seconds,
        silence_seconds=silence_seconds,
    )


@asynccontextmanager
async def served(how: Answering) -> AsyncIterator[S3Blobs]:
    async with answering(how) as url, closing(opened(url)) as blobs:
        yield blobs


@asynccontextmanager
async def falling_silent(how: Answering) -> AsyncIterator[S3Blobs]:
    """What came before a silence was surely read; before a closing, it may be lost on the way."""
    async with answering(how, closing=False) as url, closing(opened(url, silence_seconds=1.0)) as blobs:
        yield blobs


@contextmanager
def within(seconds: float) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    assert loop.time() - began < seconds


async def read(blobs: S3Blobs) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(BLOB, 0, BLOB.size)])


def ranged(asked: Asked) -> bytes:
    first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked.headers["range"]).groups())  # type: ignore[union-attr]
    return CONTENT[first : last + 1]


async def test_a_refusal_that_may_mean_a_missing_object_says_both() -> None:
    async with served(lambda asked: refusal(asked, 403, "AccessDenied")) as blobs:
        with pytest.raises(Hidden, match="denies access, which is also its answer for a missing object") as caught:
            await blobs.stat(PATH)
        assert caught.value.field == "csvPath"
        with pytest.raises(Denied, match="AccessDenied"):
            await read(blobs)


@pytest.mark.parametrize(
    "code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "RequestTimeTooSkewed"]
)
async def test_credentials_that_do_not_serve_are_not_the_files_fault(code: str) -> None:
    async with served(lambda asked: refusal(asked, 403, code)) as blobs:
        for work in (blobs.stat(PATH), read(blobs)):
            with pytest.raises(Denied, match=code) as caught:
                await work
            assert "tell-no-one" not in str(caught.value)
        with pytest.raises(Unavailable, match=code):
            await read(blobs)
        with pytest.raises(Unavailable, match=code):
            await blobs.write(PATH, parts(b"x"))


@pytest.mark.parametrize("size", [1, 9 * 2**20])
async def test_what_may_not_be_written_is_refused_for_good(size: int) -> None:
    async with served(lambda asked: refusal(asked, 403, "AccessDenied")) as blobs:
        with pytest.raises(Invalid, match=f"^{PATH}: S3 denies access$") as caught:
            await blobs.write(PATH, parts(bytes(size)))
    assert caught.value.field == "csvPath"


async def test_a_write_that_is_refused_half_way_is_cleared_away() -> None:
    methods: list[str] = []

    def refusing(asked: Asked) -> bytes:
        methods.append(asked.method)
        begun = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
        return answer(200, begun) if asked.method == "POST" else refusal(asked, 403, "AccessDenied")

    async with served(refusing) as blobs:
        with pytest.raises(Invalid, match="denies access"):
            await blobs.write(PATH, parts(bytes(9 * 2**20)))
    assert methods == ["POST", "PUT", "DELETE"]


async def test_an_archived_object_cannot_be_read_before_it_is_restored() -> None:
    async with served(lambda asked: refusal(asked, 403, "InvalidObjectState")) as blobs:
        with pytest.raises(Invalid, match="archived"):
            await read(blobs)


@pytest.mark.slow
async def test_a_server_in_trouble_is_asked_again_and_then_told_of() -> None:
    asked_for: list[str] = []

    def troubled(asked: Asked) -> bytes:
        asked_for.append(asked.method)
        if len(asked_for) == 3:
            return answer(200, b"", length=5, ETag=ETAG)
        return refusal(asked, 503, "SlowDown")

    async with served(troubled) as blobs:
        assert await blobs.stat(PATH) == File(PATH, 5, ETAG)
        assert asked_for == ["HEAD"] * 3
        with pytest.raises(Unavailable):
            await blobs.stat(PATH)


async def test_a_broken_read_goes_on_where_it_stopped() -> None:
    versions: set[str] = set()

    def breaking(asked: Asked) -> bytes:
        versions.add(asked.headers["if-match"])
        body = ranged(asked)
        return answer(206, body[:40_000], length=len(body), ETag=ETAG)

    async with falling_silent(breaking) as blobs:
        assert await read(blobs) == CONTENT
    assert versions == {ETAG}


@pytest.mark.slow
async def test_a_read_of_which_next_to_nothing_comes_is_given_up() -> None:
    def trickling(asked: Asked) -> bytes:
        body = ranged(asked)
        return answer(206, body[:3], length=len(body), ETag=ETAG)

    async with falling_silent(trickling) as blobs:
        with within(30), pytest.raises(Unavailable, match="now at byte 9 of"):
            await read(blobs)


async def test_a_read_that_breaks_before_anything_comes_is_given_up() -> None:
    requests: list[Asked] = []

    def breaking(asked: Asked) -> bytes:
        requests.append(asked)
        return answer(206, b"", length=len(ranged(asked)), ETag=ETAG)

    async with served(breaking) as blobs:
        with pytest.raises(Unavailable, match="now at byte 0 of"):
            await read(blobs)
    assert len(requests) == 3


@pytest.mark.slow
async def test_a_long_read_may_break_often() -> None:
    large = File(PATH, 8 * 2**20, ETAG)

    def breaking(asked: Asked) -> bytes:
        first = int(asked.headers["range"].removeprefix("bytes=").split("-")[0])
        return answer(206, bytes(min(2 * 2**20, large.size - first)), length=large.size - first, ETag=ETAG)

    async with falling_silent(breaking) as blobs:
        assert sum([len(chunk) async for chunk in blobs.read(large, 0, large.size)]) == large.size


async def test_an_object_that_changes_while_the_connection_breaks_is_not_read_on() -> None:
    def changing(asked: Asked) -> bytes:
        if asked.headers["range"].startswith("bytes=0-"):
            return answer(206, CONTENT[:1_000], length=len(CONTENT), ETag=ETAG)
        return refusal(asked, 412, "PreconditionFailed")

    async with falling_silent(changing) as blobs:
        chunks = blobs.read(BLOB, 0, BLOB.size)
        assert await anext(chunks) == CONTENT[:1_000]
        with pytest.raises(Invalid, match="has changed"):
            await anext(chunks)


async def test_a_server_that_knows_no_ranges_is_not_believed() -> None:
    async with served(lambda _: answer(200, CONTENT, ETag=ETAG)) as blobs:
        with pytest.raises(Unavailable, match="gives 100000 bytes"):
            await anext(blobs.read(BLOB, 10, 20))


@pytest.mark.slow
async def test_a_server_that_is_away_is_told_of_and_used_once_it_is_there() -> None:
    async with answering(lambda _: b"") as url:
        pass
    async with closing(opened(url)) as blobs:
        with within(30), pytest.raises(Unavailable, match="does not answer"):
            await blobs.stat(PATH)
        async with answering(lambda _: answer(200, b"", length=5, ETag=ETAG), port=int(url.rpartition(":")[2])):
            assert (await blobs.stat(PATH)).size == 5
        with pytest.raises(Unavailable):
            await read(blobs)
        with pytest.raises(Unavailable):
            await blobs.write(PATH, parts(b"x"))


async def test_a_server_that_says_nothing_is_waited_for_just_so_long() -> None:
    async with (
        answering(lambda _: b"", closing=False) as url,
        closing(opened(url, timeout_seconds=1.0)) as blobs,
    ):
        with within(30), pytest.raises(Unavailable, match=r"within 1 s"):
            await blobs.stat(PATH)


async def test_nothing_is_asked_of_a_server_that_only_newer_ones_know() -> None:
    requests: list[Asked] = []

    def note(asked: Asked) -> bytes:
        requests.append(asked)
        return answer(200, b"", ETag=ETAG)

    async with served(note) as blobs:
        await blobs.stat(PATH)
        await blobs.write(PATH, parts(b"x"))
    sent = {name for asked in requests for name in asked.headers if name.startswith(("x-amz-", "content-encoding"))}
    assert [asked.method for asked in requests] == ["HEAD", "PUT"]
    assert sent == {"x-amz-date", "x-amz-content-sha256"}


async def test_without_credentials_it_says_so_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    async with (
        answering(lambda _: answer(200, b"", length=5, ETag=ETAG)) as url,
        closing(S3Blobs("s3://bucket", endpoint_url=url)) as blobs,
    ):
        with pytest.raises(Unavailable, match="no credentials"):
            await blobs.stat(PATH)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tell-no-one")
        assert (await blobs.stat(PATH)).size == 5


async def test_with_a_profile_that_is_not_there_it_says_so_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "of-somebody-else")
    async with answering(lambda _: answer(200, b"", length=5, ETag=ETAG)) as url:
        late = LateBlobs("bucket", lambda: partial(opened, url))
        with pytest.raises(Denied, match="of-somebody-else"):
            await late.stat(PATH)
        monkeypatch.delenv("AWS_PROFILE")
        assert (await late.stat(PATH)).size == 5
        await late.close()


async def test_after_the_end_nothing_is_asked() -> None:
    async with served(lambda _: answer(200, b"", length=5, ETag=ETAG)) as blobs:
        await blobs.stat(PATH)
        await blobs.close()
        with pytest.raises(Unavailable, match="closed"):
            await blobs.stat(PATH)


@pytest.mark.parametrize("url", ["s3://", "s3://bucket/folder", "s3://b", "s3://bucket?x=1", "s3://a:b@bucket"])
def test_a_url_that_names_more_or_less_than_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        S3Blobs(url)


def test_half_a_pair_of_keys_is_refused() -> None:
    with pytest.raises(Invalid, match="the other way round"):
        S3Blobs("s3://bucket", access_key="me")
    with pytest.raises(Invalid, match="the other way round"):
        S3Blobs("s3://bucket", secret_key="tell-no-one")


@pytest.mark.parametrize("name", ["endpoint_url", "public_endpoint_url"])
@pytest.mark.parametrize("url", ["minio:9000", "http://", "http://a b"])
def test_an_endpoint_that_is_no_url_is_refused(name: str, url: str) -> None:
    with pytest.raises(Invalid, match="host") as caught:
        S3Blobs("s3://bucket", **{name: url})  # type: ignore[arg-type]
    assert caught.value.field == f"blobs.{name}"


@pytest.mark.parametrize(
    ("code", "status", "raised"),
    [
        ("NoSuchUpload", 404, NotFound),
        ("InvalidPart", 400, Conflict),
        ("InvalidPartOrder", 400, Conflict),
        ("EntityTooSmall", 400, Conflict),
        ("AccessDenied", 403, Invalid),
        pytest.param("SlowDown", 503, Unavailable, marks=pytest.mark.slow),
    ],
)
async def test_what_s3_says_of_an_upload_in_parts(code: str, status: int, raised: type[Exception]) -> None:
    async with served(lambda asked: refusal(asked, status, code)) as blobs:
        with pytest.raises(raised):
            await blobs.write_part(PATH, "token", 1, b"x")
        with pytest.raises(raised):
            await blobs.join_parts(PATH, "token", [(1, ETAG)])
        if raised is NotFound:
            await blobs.drop_parts(PATH, "token")
        else:
            with pytest.raises(raised):
                await blobs.drop_parts(PATH, "token")
