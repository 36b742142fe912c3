"""Blobs in S3, or a server with its protocol: the only place that knows the driver and translates its errors.

- A version is the object's ETag as the server writes it, and every read demands it (`If-Match`).
- Nothing is connected before it is needed. Missing credentials are looked for again at the next call.
- The driver repeats requests within the deadline of the call; this module resumes the body of an answer.
- A large object is written in parts. A failed write is aborted; a killed one leaves invisible parts that are stored, so
  a bucket should have a lifecycle rule for incomplete uploads.
- Only S3's oldest checksums are used: many other servers do not know the newer ones.
"""

import asyncio
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import aioboto3
import aiohttp
import structlog
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import BotoCoreError, ClientError

from shared.audience.rules.audiences import File
from shared.core.errors import Conflict, Denied, Hidden, Invalid, NotFound, Unavailable
from shared.drivers.blobs import CHUNK_BYTES
from shared.drivers.blobs.paths import (
    CHANGED,
    FIELD,
    MISMATCHED,
    MISSING,
    NO_UPLOAD,
    UNWRITABLE,
    Place,
    check_settings,
    find_place,
    is_denial,
    refusal,
)
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

if TYPE_CHECKING:
    from aiobotocore.response import StreamingBody
    from types_aiobotocore_s3 import S3Client

log = structlog.get_logger(__name__)


CONNECT_SECONDS = 3.0
ATTEMPTS = 3  # of one request
BREAKS = 3  # of the bodies of answers, with less than a chunk in between
PART_BYTES = 8 * 2**20  # 10,000 of them are S3's limit: 80 GB
PART_SECONDS = 60.0
CONNECTIONS = 50
# While a body is read, the driver lets aiohttp's errors through.
FAILURES = (BotoCoreError, aiohttp.ClientError, OSError)


class S3Blobs:
    """See `shared.drivers.blobs.Blobs`. One client serves the process. If S3 has another address for outside callers, a
    second one only signs their URLs."""

    def __init__(
        self,
        url: str,
        *,
        endpoint_url: str = "",
        public_endpoint_url: str = "",
        region: str = "",
        access_key: str = "",
        secret_key: str = "",
        allowed_buckets: Iterable[str] = (),
        timeout_seconds: float = 10.0,
        silence_seconds: float = 10.0,
        tls: TlsSettings = NO_FILES,
    ) -> None:
        """Connects to nothing yet. Empty settings come from the environment, as in AWS's own tools, which is read anew
        each time. URLs for uploads are signed for `public_endpoint_url`, or for `endpoint_url` if that is empty,
        because a signature holds for one host. A call takes at most `timeout_seconds` for all attempts; an attempt
        without a byte for `silence_seconds` is given up."""
        self.bucket, self._buckets = check_settings(
            url,
            endpoint_url=endpoint_url,
            public_endpoint_url=public_endpoint_url,
            access_key=access_key,
            secret_key=secret_key,
            allowed_buckets=[*allowed_buckets],
        )
        try:
            self._session = aioboto3.Session(
                aws_access_key_id=access_key or None,
                aws_secret_access_key=secret_key or None,
                region_name=region or None,
            )
        except FAILURES as error:
            raise Denied(f"what is around the process for S3 cannot be used: {error}") from error
        self._endpoint_url = endpoint_url
        self._public_endpoint_url = public_endpoint_url or endpoint_url
        self._timeout_seconds = timeout_seconds
        self._silence_seconds = silence_seconds
        self._tls = tls
        self._clients: dict[str, S3Client] = {}
        self._connecting = asyncio.Lock()
        self._connections = AsyncExitStack()
        self._closed = False

    async def stat(self, path: str) -> File:
        place = find_place(path, self._buckets)
        async with self._ask(self._timeout_seconds) as client:
            try:
                head = await client.head_object(Bucket=place.bucket, Key=place.key)
            except ClientError:
                await _explain(client, path, place)
                raise
        return File(path, head["ContentLength"], head["ETag"])

    async def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        place = find_place(blob.path, self._buckets)
        at, end = start, min(end, blob.size)
        broken_at, breaks = start, 0
        while at < end:
            body = await self._range(blob, place, at, end)
            try:
                while chunk := await _next_of(body):
                    at += len(chunk)
                    yield chunk
            finally:
                body.close()
            breaks = 1 if at - broken_at > CHUNK_BYTES else breaks + 1
            broken_at = at
            if at < end and breaks == BREAKS:
                raise Unavailable(f"S3 breaks off again and again, now at byte {at} of {blob.path}")

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        place = find_place(path, self._buckets)
        pieces = _pieces(parts)
        first = await anext(pieces, b"")
        if len(first) < PART_BYTES:
            async with self._write_client(path) as client:
                await client.put_object(Bucket=place.bucket, Key=place.key, Body=first)
        else:
            await self._write_in_parts(path, place, first, pieces)

    async def begin_parts(self, path: str) -> str:
        place = find_place(path, self._buckets)
        async with self._part_client(path) as client:
            return (await client.create_multipart_upload(Bucket=place.bucket, Key=place.key))["UploadId"]

    async def write_part(self, path: str, token: str, number: int, content: bytes) -> str:
        async with self._part_client(path) as client:
            part = await client.upload_part(**self._upload(path, token), PartNumber=number, Body=content)
        return part["ETag"]

    async def join_parts(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        listed: Any = [{"PartNumber": number, "ETag": version} for number, version in parts]
        async with self._part_client(path) as client:
            await client.complete_multipart_upload(**self._upload(path, token), MultipartUpload={"Parts": listed})

    async def drop_parts(self, path: str, token: str) -> None:
        with suppress(NotFound):
            async with self._part_client(path) as client:
                await client.abort_multipart_upload(**self._upload(path, token))

    async def upload_url(self, path: str, *, seconds: int) -> str:
        place = find_place(path, self._buckets)
        async with self._ask(self._timeout_seconds, self._public_endpoint_url) as client:
            return await client.generate_presigned_url(
                "put_object", Params={"Bucket": place.bucket, "Key": place.key}, ExpiresIn=seconds, HttpMethod="PUT"
            )

    async def make_bucket(self) -> None:
        async with self._ask(self._timeout_seconds) as client:
            try:
                await client.head_bucket(Bucket=self.bucket)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "404":  # a HEAD has no body
                    raise
                with suppress(client.exceptions.BucketAlreadyOwnedByYou):  # another `init` has just made it
                    await client.create_bucket(Bucket=self.bucket)

    async def verify(self) -> None:
        # An aborted upload in parts leaves no object. Reading proves nothing if the server hides missing objects.
        key = f".carillon-doctor-{secrets.token_hex(8)}"
        try:
            async with self._ask(self._timeout_seconds) as client:
                created = await client.create_multipart_upload(Bucket=self.bucket, Key=key)
                await client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=created["UploadId"])
            with suppress(NotFound):
                await self.stat(f"{self.bucket}/{key}")
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response.get("Error", {}).get("Code") == "NoSuchBucket":
                raise NotFound(f"there is no bucket {self.bucket}") from error
            raise

    async def close(self) -> None:
        self._closed = True
        self._clients.clear()
        await self._connections.aclose()

    async def _range(self, blob: File, place: Place, start: int, end: int) -> "StreamingBody":
        async with self._ask(self._timeout_seconds) as client:
            with _final(blob.path, CHANGED):
                answer = await client.get_object(
                    Bucket=place.bucket, Key=place.key, Range=f"bytes={start}-{end - 1}", IfMatch=blob.version
                )
        if answer["ContentLength"] != end - start:
            answer["Body"].close()
            raise Unavailable(f"S3 gives {answer['ContentLength']} bytes of {blob.path} for {end - start}")
        return answer["Body"]

    async def _write_in_parts(self, path: str, place: Place, first: bytes, rest: AsyncIterator[bytes]) -> None:
        async with self._write_client(path) as client:
            created = await client.create_multipart_upload(Bucket=place.bucket, Key=place.key)
        upload: dict[str, Any] = {"Bucket": place.bucket, "Key": place.key, "UploadId": created["UploadId"]}
        parts: list[Any] = []
        try:
            piece = first
            while piece:
                async with self._write_client(path) as client:
                    part = await client.upload_part(**upload, PartNumber=len(parts) + 1, Body=piece)
                parts.append({"PartNumber": len(parts) + 1, "ETag": part["ETag"]})
                piece = await anext(rest, b"")
            async with self._write_client(path) as client:
                await client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:
            await self._abort(upload)
            raise

    def _upload(self, path: str, token: str) -> dict[str, Any]:
        place = find_place(path, self._buckets)
        return {"Bucket": place.bucket, "Key": place.key, "UploadId": token}

    async def _abort(self, upload: dict[str, Any]) -> None:
        """Abort the upload, if possible. No caller waits for it, and its fault has mostly been reported already."""
        try:
            async with self._ask(self._timeout_seconds) as client:
                await client.abort_multipart_upload(**upload)
        except Unavailable as error:
            log.warning("upload left unfinished", bucket=upload["Bucket"], key=upload["Key"], error=str(error))

    @asynccontextmanager
    async def _part_client(self, path: str) -> AsyncIterator["S3Client"]:
        """As `_write_client`, for an upload whose parts come from outside."""
        async with self._write_client(path) as client:
            try:
                yield client
            except ClientError as error:
                code = refusal(error.response, error.operation_name)
                if code == NO_UPLOAD:
                    raise NotFound(f"{path}: there is no such upload", field=FIELD, value=path) from error
                if reason := MISMATCHED.get(code):
                    raise Conflict(f"{path}: {reason}", field=FIELD, value=path) from error
                raise

    @asynccontextmanager
    async def _write_client(self, path: str) -> AsyncIterator["S3Client"]:
        async with self._ask(PART_SECONDS) as client:
            with _final(path, UNWRITABLE):
                yield client

    @asynccontextmanager
    async def _ask(self, seconds: float, endpoint_url: str | None = None) -> AsyncIterator["S3Client"]:
        """The client of an endpoint (default: the configured one), for `seconds`. The caller first translates
        refusals that are a caller's fault."""
        try:
            async with asyncio.timeout(seconds):
                yield await self._connect(self._endpoint_url if endpoint_url is None else endpoint_url)
        except TimeoutError as error:
            raise Unavailable(f"S3 gave no answer within {seconds:g} s") from error
        except ClientError as error:
            refused = Denied if is_denial(error.response) else Unavailable
            raise refused(f"S3 refuses: {error}") from error
        except FAILURES as error:
            raise Unavailable(f"S3 does not answer: {error}") from error

    async def _connect(self, endpoint_url: str) -> "S3Client":
        async with self._connecting:
            if self._closed:
                raise Unavailable("the connections to S3 are closed")
            if endpoint_url not in self._clients:
                # A client that is made without credentials would never look for them again.
                credentials: Any = self._session.get_credentials()  # a coroutine, unlike boto3's
                if await credentials is None:
                    raise Denied("there are no credentials for S3, neither in the settings nor around the process")
                connection = self._connection(endpoint_url)
                self._clients[endpoint_url] = await self._connections.enter_async_context(connection)
            return self._clients[endpoint_url]

    def _connection(self, endpoint_url: str) -> AbstractAsyncContextManager["S3Client"]:
        return self._session.client(
            "s3",
            endpoint_url=endpoint_url or None,
            config=AioConfig(
                http_session_cls=_session_class(self._tls) if endpoint_url.startswith("https:") else AIOHTTPSession,
                signature_version="s3v4",  # without it, URLs are signed in a way that newer regions refuse
                connect_timeout=CONNECT_SECONDS,
                read_timeout=self._silence_seconds,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=CONNECTIONS,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )


def _session_class(tls: TlsSettings) -> type[AIOHTTPSession]:
    """The driver's connections with the settings' certificates; those to AWS itself trust as AWS's own tools do."""

    class TrustingSession(AIOHTTPSession):
        def _get_ssl_context(self) -> ssl.SSLContext:
            return client_context(tls)

    return TrustingSession if tls.ca_file else AIOHTTPSession


async def _next_of(body: "StreamingBody") -> bytes:
    """The next bytes; none at the end, or if the connection broke."""
    try:
        return await body.read(CHUNK_BYTES)
    except FAILURES as error:
        log.info("reading from S3 broke off", error=str(error) or type(error).__name__)
        return b""


async def _pieces(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `PART_BYTES`, the last one shorter."""
    waiting = bytearray()
    async for part in parts:
        for at in range(0, len(part), PART_BYTES):
            waiting += part[at : at + PART_BYTES]
            if len(waiting) >= PART_BYTES:
                yield bytes(waiting[:PART_BYTES])
                del waiting[:PART_BYTES]
    if waiting:
        yield bytes(waiting)


@contextmanager
def _final(path: str, reasons: Mapping[str, str]) -> Iterator[None]:
    """Raise `Invalid` if S3 refuses for one of these reasons, because it would refuse again."""
    try:
        yield
    except ClientError as error:
        if reason := reasons.get(refusal(error.response, error.operation_name)):
            raise Invalid(f"{path}: {reason}", field=FIELD, value=path) from error
        raise


async def _explain(client: "S3Client", path: str, place: Place) -> None:
    """Ask with a GET why a HEAD was refused: only the refusal of a GET has a body. Raises `NotFound` if the path is at
    fault."""
    try:
        answer = await client.get_object(Bucket=place.bucket, Key=place.key, Range="bytes=0-0")
    except ClientError as error:
        if reason := MISSING.get(refusal(error.response, error.operation_name)):
            missing = Hidden if is_denial(error.response) else NotFound
            raise missing(f"{path}: {reason}", field=FIELD, value=path) from error
        raise
    answer["Body"].close()
