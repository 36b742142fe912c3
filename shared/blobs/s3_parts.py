"""Objects that S3 gets in parts: Carillon's own large writes, and uploads whose parts come to any process."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from shared.blobs.paths import Place, find_place

if TYPE_CHECKING:  # stubs, which are installed only for development
    from types_aiobotocore_s3 import S3Client


class S3Parts:
    """Writes parts. `connect` gives the client for one call about a path, and translates S3's refusals."""

    def __init__(
        self, connect: Callable[[str], AbstractAsyncContextManager["S3Client"]], buckets: Collection[str]
    ) -> None:
        self._connect = connect
        self._buckets = buckets

    async def begin(self, path: str) -> str:
        """Begin an upload to this path; return S3's id."""
        place = find_place(path, self._buckets)
        async with self._connect(path) as client:
            return (await client.create_multipart_upload(Bucket=place.bucket, Key=place.key))["UploadId"]

    async def put(self, path: str, token: str, number: int, content: bytes) -> str:
        """Store a part, in place of an earlier one of its number; return its ETag."""
        async with self._connect(path) as client:
            return (await client.upload_part(**self._upload(path, token), PartNumber=number, Body=content))["ETag"]

    async def join(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        listed: Any = [{"PartNumber": number, "ETag": version} for number, version in parts]
        async with self._connect(path) as client:
            await client.complete_multipart_upload(**self._upload(path, token), MultipartUpload={"Parts": listed})

    async def drop(self, path: str, token: str) -> None:
        async with self._connect(path) as client:
            await client.abort_multipart_upload(**self._upload(path, token))

    def _upload(self, path: str, token: str) -> dict[str, Any]:
        return upload_of(find_place(path, self._buckets), token)


def upload_of(place: Place, token: str) -> dict[str, Any]:
    """The arguments that name an upload in every call."""
    return {"Bucket": place.bucket, "Key": place.key, "UploadId": token}
