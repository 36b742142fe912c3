"""`/uploadurl` and `/uploads`: how clients bring files with audiences.

A client puts files into S3 itself; where they lie in a folder, this API takes them.
"""

import uuid
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct, field

from services.api.http import paging, wire
from services.api.http.acts import UNRECORDED
from services.api.http.rights import EVERYBODY, KNOWN
from services.api.http.routes import Parameter, Resource, Route
from shared.blobs import Blobs, Uploads
from shared.runtime.clock import Clock

_SECONDS = 300

EXPIRES = Parameter(name="expires", description="As it was given.", schema={"type": "string"}, required=True)
SIGNATURE = Parameter(name="signature", description="As it was given.", schema={"type": "string"}, required=True)


class UploadUrlView(Struct, frozen=True):
    """A URL that takes one file by PUT for five minutes, and the `csvPath` for a job."""

    url: str
    csv_path: str = field(name="csvPath")


class UploadUrlResource(Resource):
    """The route that tells where to put a file."""

    def __init__(self, blobs: Blobs, clock: Clock, *, folder: str, public_url: str) -> None:
        self._blobs = blobs
        self._clock = clock
        self._folder = folder
        self._public_url = public_url

    @Route(
        "GET", "/uploadurl", summary="Give out a URL at which a file can be put without further credentials.",
        who=KNOWN, answers={HTTPStatus.OK: UploadUrlView},
    )  # fmt: skip
    async def get_upload_url(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        seconds = self._clock.now_ns() // 10**9
        path = f"{self._blobs.bucket}/{self._folder}/job-{seconds}-{uuid.uuid4()}.csv"
        url = await self._blobs.upload_url(path, seconds=_SECONDS)
        if url.startswith("/"):  # S3 gives whole URLs
            url = (self._public_url or str(request.base_url)).rstrip("/") + url
        return wire.answer(UploadUrlView(url, path))


class UploadsResource(Resource):
    """The route that takes files, where there is no S3 that takes them."""

    def __init__(self, uploads: Uploads, *, max_file_bytes: int) -> None:
        self._uploads = uploads
        self.max_file_bytes = max_file_bytes

    @Route(
        "PUT", "/uploads/{path:path}", summary="Take a file at the URL that was given for it.",
        act=UNRECORDED, who=EVERYBODY, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.FORBIDDEN,),
        parameters=(EXPIRES, SIGNATURE), segments={"path": {"type": "string", "description": "As it was given."}},
        max_body_bytes=lambda uploads: uploads.max_file_bytes, streams=True,
    )  # fmt: skip
    async def upload_file(self, request: Request[Any, Any, Any], path: FromPath[str]) -> Response[None]:
        await self._uploads.accept_upload(
            path.lstrip("/"),
            expires=paging.first(request, "expires"),
            signature=paging.first(request, "signature"),
            parts=request.stream(),
            max_bytes=self.max_file_bytes,
        )
        return wire.empty()
