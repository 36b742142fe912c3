"""Objects that S3 gets in parts: those that we write ourselves, and uploads, whose parts come one by one, each to any
process."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from shared.blobs.paths import Place, find_place

if TYPE_CHECKING:  # stubs, which only development has
    from types_aiobotocore_s3 import S3Client


class S3Parts:
    """Writes parts. `connect` gives the client for one call about a path, and translates what S3 refuses."""

    def __init__(
        self, connect: Callable[[str], AbstractAsyncContextManager["S3Client"]], buckets: Collection[str]
    ) -> None:
        self._connect = connect
        self._buckets = buckets

    async def begin(self, path: str) -> str:
        """The id that S3 gives to a new upload to this path."""
        place = find_place(path, self._buckets)
        async with self._connect(path) as client:
            return (await client.create_multipart_upload(Bucket=place.bucket, Key=place.key))["UploadId"]

    async def put(self, path: str, token: str, number: int, content: bytes) -> str:
        """Store a part, in the place of what had its number; the ETag that it has now."""
        async with self._connect(path) as client:
            return (await client.upload_part(**self._upload(path, token), PartNumber=number, Body=content))["ETag"]

    async def join(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        """Make the object of these parts, each with its ETag."""
        listed: Any = [{"PartNumber": number, "ETag": version} for number, version in parts]
        async with self._connect(path) as client:
            await client.complete_multipart_upload(**self._upload(path, token), MultipartUpload={"Parts": listed})

    async def drop(self, path: str, token: str) -> None:
        """Abort the upload."""
        async with self._connect(path) as client:
            await client.abort_multipart_upload(**self._upload(path, token))

    def _upload(self, path: str, token: str) -> dict[str, Any]:
        return upload_of(find_place(path, self._buckets), token)


def upload_of(place: Place, token: str) -> dict[str, Any]:
    """The arguments that name an upload in every call about it."""
    return {"Bucket": place.bucket, "Key": place.key, "UploadId": token}
