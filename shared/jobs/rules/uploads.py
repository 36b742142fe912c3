"""Uploads: files that come to the API in numbered parts, from 1, and that jobs can read after they are complete.

The sizes are S3's rules for uploads in parts, and hold for every store, so that a program that works on a laptop works
in production.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.core.errors import Conflict, Invalid

MIN_PART_BYTES = 5 * 2**20
"""The minimum of all parts but the last."""

MAX_PART_BYTES = 8 * 2**20
MAX_BYTES = 2**30
MAX_PARTS = -(-MAX_BYTES // MIN_PART_BYTES)
ABANDONED_AFTER = timedelta(days=1)
"""The time after which an unchanged upload, or a completed one, is deleted."""

_FIELD = "body"
_PART = "part"


class UploadedPart(Struct, frozen=True, kw_only=True):
    """A stored part. `version` is the store's name of its content; `lines` counts line ends, and the part is
    `open_ended` if its last byte is none."""

    size: int
    lines: int
    open_ended: bool
    version: str


class FileUpload(Struct, frozen=True, kw_only=True):
    """An upload to `path`, with the store's `token`. `id` contains its app. The `parts` are by number. `changed_at` is
    the database's time."""

    id: str
    app_id: str
    path: str
    token: str
    created_by: str
    changed_at: datetime
    parts: dict[str, UploadedPart] = {}
    completed: bool = False

    @property
    def in_order(self) -> Sequence[tuple[int, UploadedPart]]:
        return sorted((int(number), part) for number, part in self.parts.items())

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts.values())

    @property
    def lines(self) -> int:
        parts = self.in_order
        return sum(part.lines for _, part in parts) + (parts[-1][1].open_ended if parts else 0)


def upload_key(app_id: str, upload_id: str) -> str:
    """The stored key of an app's upload, different for each app."""
    return f"{app_id}/{upload_id}"


def measure_part(content: bytes, version: str) -> UploadedPart:
    return UploadedPart(
        size=len(content), lines=content.count(b"\n"), open_ended=not content.endswith(b"\n"), version=version
    )


def check_part(upload: FileUpload, number: int, content: bytes, *, most: int) -> None:
    if upload.completed:
        raise Conflict("this upload is completed: begin another one", field="upload")
    if not 0 < len(content) <= MAX_PART_BYTES:
        rule = "the file is empty" if not content and number == 1 else f"a part has 1 to {MAX_PART_BYTES:,} bytes"
        raise Invalid(rule, field=_FIELD, value=len(content))
    others = sum(part.size for other, part in upload.in_order if other != number)
    check_size(others + len(content), most=most)


def check_size(size: int, *, most: int) -> None:
    if size > most:
        raise Invalid(f"the file must have at most {most:,} bytes", field=_FIELD, value=size)


def check_whole(upload: FileUpload, size: int | None) -> None:
    """Raise `Conflict` if the parts do not make a complete file, or not one of this size."""
    parts = upload.in_order
    last = parts[-1][0] if parts else 1
    for number in range(1, last + 1):
        if str(number) not in upload.parts:
            raise Conflict(f"part {number} is missing", field=_PART, value=number)
    for number, part in parts[:-1]:
        if part.size < MIN_PART_BYTES:
            rule = f"all but the last have at least {MIN_PART_BYTES:,}"
            raise Conflict(f"part {number} has {part.size:,} bytes: {rule}", field=_PART, value=number)
    if size is not None and size != upload.size:
        raise Conflict(f"the parts have {upload.size:,} bytes together, not {size:,}", field="bytes", value=size)
