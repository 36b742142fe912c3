"""`/uploadurl`, `/uploads` and `/apps/{appId}/uploads`: the ways by which clients bring files with audiences.

A client puts a file straight into S3 by a signed URL; where S3 is out of its reach, it sends the file in numbered
parts through this API.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct, field

from services.api.accounts.apps import app_of
from services.api.http import bodies, paging
from services.api.http.acts import UNRECORDED
from services.api.http.identity import caller_of
from services.api.http.rights import EVERYBODY, KNOWN, OPERATE_APP
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import check_not_deleting
from shared.core.errors import Invalid, TooMany, Unavailable
from shared.core.ids import read_uuid
from shared.drivers.blobs import Blobs, Uploads
from shared.jobs.rules.uploads import MAX_BYTES, MAX_PART_BYTES, MAX_PARTS, MIN_PART_BYTES, FileUpload
from shared.jobs.uploads import UploadFlow
from shared.runtime.clock import Clock
from shared.store import Store

_SECONDS = 300
EXPIRES = Parameter(name="expires", description="As it was given.", schema={"type": "string"}, required=True)
SIGNATURE = Parameter(name="signature", description="As it was given.", schema={"type": "string"}, required=True)


class UploadUrlView(Struct, frozen=True):
    """A URL that takes one file by PUT for five minutes, and the `csvPath` for a job."""

    url: str
    csv_path: str = field(name="csvPath")


class UploadUrlResource(Resource):
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
        return bodies.answer(UploadUrlView(url, path))


class UploadsResource(Resource):
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
        return bodies.empty()


UPLOADS = "/apps/{app_id:str}/uploads"
UPLOAD = UPLOADS + "/{upload_id:str}"
CSV = "text/csv"
PARTS_AT_ONCE = 8
"""How many parts a process takes at the same time: each is in memory until it is stored."""
PARTS_OF_A_CALLER = 4
"""How many of them may be one caller's: a slow sender keeps others waiting."""
PART_SECONDS = 120.0
"""How long a part may take to come: 8 MiB at some 70 KB a second."""
_SEGMENTS = {"upload_id": {"type": "string", "format": "uuid", "description": "The id of the upload."}}
_PART = Parameter(
    name="part",
    description="The number of the part. The first one begins the upload; after it, the others come in any order.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_PARTS},
    required=True,
)
_UPLOAD = Parameter(
    name="upload",
    description="Which upload it belongs to. The first part may choose the id: then it can be repeated without a "
    "second upload.",
    schema={"type": "string", "format": "uuid"},
    may_be_empty=True,  # begins an upload
)


class UploadCompletion(bodies.Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The completion of an upload."""

    bytes: Annotated[
        int | None, Meta(description="How many bytes it has: an upload of another size is not completed.")
    ] = None


class UploadPartView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part that is stored, and the upload that it belongs to."""

    upload_id: str
    number: int
    bytes: int


class UploadView(Struct, frozen=True, kw_only=True, rename="camel"):
    """An upload, and the `bytes` and `lines` (the header among them) that it has so far. A job can name its `csvPath`
    once it is `completed`; it is empty until then."""

    id: str
    app_id: str
    completed: bool
    csv_path: str
    bytes: int
    lines: int
    parts: list[UploadPartView]


class PartUploadsResource(Resource):
    def __init__(self, store: Store, flow: UploadFlow) -> None:
        self._store = store
        self._flow = flow
        self._underway: Counter[str] = Counter()

    @Route(
        "PUT", UPLOADS,
        summary=f"Take a part of a CSV file of up to {MAX_BYTES:,} bytes. All but the last have {MIN_PART_BYTES:,} to "
        f"{MAX_PART_BYTES:,} bytes.",
        act=UNRECORDED, who=OPERATE_APP, body=str, body_media=(CSV,), answers={HTTPStatus.OK: UploadPartView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(_PART, _UPLOAD),
        max_body_bytes=MAX_PART_BYTES,
    )  # fmt: skip
    async def put_upload_part(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        rule = f"part is an integer from 1 to {MAX_PARTS}"
        number = paging.read_integer(request, _PART.name, most=MAX_PARTS, default=0, rule=rule)
        if not number:
            raise Invalid(rule, field=_PART.name)
        named = paging.first(request, _UPLOAD.name)
        upload_id = read_uuid(named, field=_UPLOAD.name) if named else str(uuid.uuid4())
        app = await app_of(self._store, app_id)
        check_not_deleting(app, app.id)
        caller = caller_of(request)
        with self._make_room(caller.namespace):
            content = await _read_part(request)
            part = await self._flow.put_part(app.id, upload_id, number, content, by=caller.name)
        return bodies.answer(UploadPartView(upload_id=upload_id, number=number, bytes=part.size))

    @Route(
        "GET", UPLOAD, summary="Show an upload: which parts of it are there.",
        who=OPERATE_APP, answers={HTTPStatus.OK: UploadView}, problems=(HTTPStatus.NOT_FOUND,), segments=_SEGMENTS,
    )  # fmt: skip
    async def get_upload(self, app_id: FromPath[str], upload_id: FromPath[str]) -> Response[bytes]:
        upload_id = read_uuid(upload_id, field="uploadId")
        upload = await self._flow.require(read_uuid(app_id, field="appId"), upload_id)
        return bodies.answer(_view(upload, upload_id))

    @Route(
        "POST", UPLOAD + "/complete", summary="Make the parts of an upload a file that jobs can read.",
        act="upload.complete", who=OPERATE_APP, body=UploadCompletion, body_required=False,
        answers={HTTPStatus.OK: UploadView}, problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), segments=_SEGMENTS,
    )  # fmt: skip
    async def complete_upload(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], upload_id: FromPath[str]
    ) -> Response[bytes]:
        content = await request.body()
        body = bodies.read(content, UploadCompletion) if content.strip() else UploadCompletion()
        upload_id = read_uuid(upload_id, field="uploadId")
        upload = await self._flow.complete(read_uuid(app_id, field="appId"), upload_id, size=body.bytes)
        return bodies.answer(_view(upload, upload_id))

    @contextmanager
    def _make_room(self, namespace: str) -> Iterator[None]:
        """Reserve memory for a part of this caller. Raises `TooMany` before anything of the part is read."""
        if self._underway.total() >= PARTS_AT_ONCE:
            raise TooMany(f"{PARTS_AT_ONCE} parts of files are underway in this process", retry_after_seconds=1)
        if self._underway[namespace] >= PARTS_OF_A_CALLER:
            raise TooMany(f"{PARTS_OF_A_CALLER} parts of this caller are underway already", retry_after_seconds=1)
        self._underway[namespace] += 1
        try:
            yield
        finally:
            self._underway[namespace] -= 1
            self._underway += Counter()  # forgets who has none


async def _read_part(request: Request[Any, Any, Any]) -> bytes:
    """The content of a part. Raises `Unavailable` if it takes too long to come."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            return await request.body()
    except TimeoutError:
        raise Unavailable(f"the part did not come within {PART_SECONDS:g} s") from None


def _view(upload: FileUpload, upload_id: str) -> UploadView:
    return UploadView(
        id=upload_id,
        app_id=upload.app_id,
        completed=upload.completed,
        csv_path=upload.path if upload.completed else "",
        bytes=upload.size,
        lines=upload.lines,
        parts=[UploadPartView(upload_id=upload_id, number=number, bytes=part.size) for number, part in upload.in_order],
    )
