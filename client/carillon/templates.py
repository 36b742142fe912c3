"""`client.templates`: texts of an app's messages; and `client.uploads`: CSV files, in parts."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from carillon.attempts import path_of, query_of
from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.errors import Conflict, NotFound
from carillon.files import File, Progress, Source, file_of
from carillon.values import UpdatedAt, encode


class Template(Struct, frozen=True, kw_only=True):
    """A template to be made. `locale` is that of the devices that get it; `en` serves all others. `body` becomes `aps`
    (apns) or `data` (gcm); a job's context, else `defaults`, fill its `{{name}}`."""

    name: str
    locale: str
    body: Mapping[str, Any]
    defaults: Mapping[str, Any] = {}

    def is_made_as(self, stored: "StoredTemplate") -> bool:
        """Whether this is what is stored."""
        content = (stored.name, stored.locale, stored.body, stored.defaults)
        return content == (self.name, self.locale, self.body, self.defaults)


class StoredTemplate(UpdatedAt, frozen=True, kw_only=True, rename="camel"):
    """A template of an app."""

    id: str
    app_id: str
    name: str
    locale: str
    body: dict[str, Any]
    defaults: dict[str, Any]
    created_by: str


class Rendering(Struct, frozen=True, kw_only=True, rename="camel"):
    """A rendered template: the value of `aps` or `data`, and its `bytes` as JSON. Or the `fault`, and the `field` that
    has it. `valueless_tags` have no value: they are replaced by nothing."""

    locale: str
    body: dict[str, Any] | None
    bytes: int
    fault: str
    field: str
    valueless_tags: tuple[str, ...] = ()


class Templates(Resource[M]):
    """The templates of apps. All methods raise `CarillonError`."""

    @call
    async def create(self, app_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Make a template. Raises `Invalid`, `Conflict` where the app has one of this name and locale."""
        path, page = ("apps", app_id, "templates"), list[StoredTemplate]
        return await self._create(
            StoredTemplate, page, *path, content=encode(template), reason=reason, is_wanted=template.is_made_as
        )

    @call
    async def create_many(
        self, app_id: str, templates: Sequence[Template], *, reason: str = ""
    ) -> tuple[StoredTemplate, ...]:
        """Make several templates, all or none. Raises as `create`."""
        path, page, query = ("apps", app_id, "templates"), list[StoredTemplate], {"multiple": "true"}
        answer = await self._call(
            "POST", *path, query=query, content=encode(templates), reason=reason, done_before=CONFLICT
        )
        if answer.status not in CONFLICT:
            return tuple(answer.read(page))
        return tuple([await self._find(page, *path, is_wanted=each.is_made_as, conflict=answer) for each in templates])

    @call
    async def get(self, app_id: str, template_id: str) -> StoredTemplate:
        """A template. Raises `NotFound`."""
        return await self._get(StoredTemplate, "apps", app_id, "templates", template_id)

    @listing
    def list(
        self, app_id: str, *, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredTemplate]:
        """An app's templates, the oldest first; read page by page."""
        return self._list(list[StoredTemplate], "apps", app_id, "templates", limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, template_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Change a template; without `defaults`, those of before stay. Raises `NotFound`, `Invalid`, `Conflict`."""
        content = encode(template)
        return await self._put(StoredTemplate, "apps", app_id, "templates", template_id, content=content, reason=reason)

    @call
    async def render(
        self, app_id: str, template: Template | str, *, locale: str = "", context: Mapping[str, Any] | None = None
    ) -> Rendering:
        """Render a template, or the app's template with this name and locale, with a context; nothing is stored. Raises
        `Invalid`, `NotFound`."""
        named = {"name": template} if isinstance(template, str) else {"template": template, "locale": template.locale}
        chosen = {"locale": locale, "context": context}
        content = encode({**named, **{name: given for name, given in chosen.items() if given}})
        return await self._post(Rendering, "apps", app_id, "templates", "render", content=content)

    @call
    async def delete(self, app_id: str, template_id: str, *, reason: str = "") -> None:
        """Delete a template. Raises `NotFound`."""
        await self._delete("apps", app_id, "templates", template_id, reason=reason)


SLICE_BYTES = 8 * 2**20
"""The most that a part has: it is what a process of the API holds in memory."""
_OURS = uuid.UUID("5f1b1a0e-6f5a-5d0c-9a3e-6f7c0a1f5b42")


class UploadPart(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part that is stored, and the upload that it belongs to."""

    upload_id: str
    number: int
    bytes: int


class Upload(Struct, frozen=True, kw_only=True, rename="camel"):
    """An upload in parts, and the `bytes` and `lines` (the header among them) that it has so far. Once it is
    `completed`, its `csv_path` is that of a `PushJob`; it is empty until then."""

    id: str
    app_id: str
    completed: bool
    csv_path: str
    bytes: int
    lines: int
    parts: tuple[UploadPart, ...]


class _Place(Struct, frozen=True):
    """The URL that takes one file, and the path by which a job names it then."""

    url: str
    csv_path: str = field(name="csvPath")


class Uploads(Resource[M]):
    """Files for push jobs."""

    @call
    async def put(self, source: Source, *, on_progress: Progress | None = None) -> str:
        """Upload a CSV file, given as a path or as a stream of bytes: what it returns is the `csv_path` of a `PushJob`.

        A file is read in small pieces and sent with its length, again from its start on each attempt. A stream can be
        read only once, so it is written to a temporary file first (`tempfile` says where).

        Each attempt has a place of its own in the bucket: one whose answer was lost leaves at most a file there that no
        job names.

        AWS takes at most 5 GB in one PUT, which an upload is; it refuses what is larger (`EntityTooLarge`).

        Raises:
            CarillonError: no place was given, or the server there refuses the file; what S3 says is the `reason`.
                `Unavailable` shows the URL and its last cause without the signature.
            Invalid: the file changed meanwhile; `field` is `source`.
            OSError: it cannot be read, be it in the middle (there is no further attempt then), or a stream not be
                written down.
            ValueError: it is a folder, a pipe or the like.
        """
        async with file_of(source, self._transport.runtime) as file:
            file.report(on_progress)
            told = await self._transport.upload("/uploadurl", lambda answer: answer.read(_Place).url, file)
            return told.read(_Place).csv_path

    @call
    async def upload_csv(
        self, app_id: str, source: Source, *, on_progress: Progress | None = None, reason: str = ""
    ) -> Upload:
        """Upload a CSV file of up to 1 GiB through the API, in parts: S3 need not be within reach. Its `csv_path` is
        that of a `PushJob`.

        It takes up what is there: called again within a day, after whatever went wrong, it sends what is missing, and
        nothing of a file that is complete. The name of the file does not matter; the upload is known by its content.

        Raises:
            CarillonError: the API refuses it; `Unavailable` after all attempts at a part.
            Invalid, OSError, ValueError: as `put`.
        """
        async with file_of(source, self._transport.runtime) as file:
            digest = await file.digest(self._transport.runtime)
            file.report(on_progress)
            upload_id = str(uuid.uuid5(_OURS, f"{app_id}/{digest}/{SLICE_BYTES}"))
            there = await self._find_begun(app_id, upload_id)
            if there is not None and there.completed:
                return there
            try:
                await self._send_missing(app_id, upload_id, file, there, on_progress)
                return await self._complete(app_id, upload_id, file.size, reason)
            except Conflict:  # somebody else sends the same, and was faster
                there = await self._read(app_id, upload_id)
                if not there.completed:
                    raise
                return there

    @call
    async def put_part(self, app_id: str, part: int, source: Source, *, upload_id: str = "") -> UploadPart:
        """Send one part; the first one begins an upload, under an id of your choice if you give one. A part that comes
        again replaces itself. All but the last have 5 to 8 MiB.

        Raises:
            NotFound: the upload is gone, or another app's.
            Conflict: it is completed.
            Invalid: the part is empty or too large, or the file would be.
        """
        async with file_of(source, self._transport.runtime) as file:
            return await self._send_part(app_id, part, file, upload_id)

    @call
    async def get(self, app_id: str, upload_id: str) -> Upload:
        """An upload, and which parts of it are there. Raises `NotFound`."""
        return await self._read(app_id, upload_id)

    @call
    async def complete(self, app_id: str, upload_id: str, *, size: int | None = None, reason: str = "") -> Upload:
        """Make the parts a file that jobs can read; again, where they are one already.

        Raises:
            NotFound: the upload is gone, or another app's.
            Conflict: a part is missing or too small, or they do not have this `size` together; or two have sent
                different contents as one part, and all parts must be sent again.
        """
        return await self._complete(app_id, upload_id, size, reason)

    async def _find_begun(self, app_id: str, upload_id: str) -> Upload | None:
        try:
            return await self._read(app_id, upload_id)
        except NotFound as error:
            if error.field is None:  # it is the path that is unknown
                raise
            return None

    async def _send_missing(
        self, app_id: str, upload_id: str, file: File, there: Upload | None, on_progress: Progress | None
    ) -> None:
        known = {part.number: part.bytes for part in there.parts} if there else {}
        sent = 0
        for number, part in enumerate(file.slices(SLICE_BYTES), 1):
            if known.get(number) != part.size:
                await self._send_part(app_id, number, part, upload_id)
            sent += part.size
            if on_progress is not None:
                on_progress(sent, file.size)

    async def _send_part(self, app_id: str, number: int, part: File, upload_id: str) -> UploadPart:
        query = query_of(part=str(number), upload=upload_id)
        return (await self._transport.send_file("PUT", path_of("apps", app_id, "uploads"), query, part)).read(
            UploadPart
        )

    async def _read(self, app_id: str, upload_id: str) -> Upload:
        return await self._get(Upload, "apps", app_id, "uploads", upload_id)

    async def _complete(self, app_id: str, upload_id: str, size: int | None, reason: str) -> Upload:
        content = b"" if size is None else encode({"bytes": size})
        return await self._post(
            Upload, "apps", app_id, "uploads", upload_id, "complete", content=content, reason=reason
        )
