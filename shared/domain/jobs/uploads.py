"""Uploads: files that come to the API in parts, numbered from 1, and that jobs can read once they are whole.

The sizes are S3's rules for an upload in parts, and hold wherever files lie: so a program that works on a laptop works
in production.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.errors import Conflict, Invalid

MIN_PART_BYTES = 5 * 2**20
"""The least size of all parts but the last."""

MAX_PART_BYTES = 8 * 2**20
MAX_BYTES = 2**30
MAX_PARTS = -(-MAX_BYTES // MIN_PART_BYTES)
ABANDONED_AFTER = timedelta(days=1)
"""For how long an upload is kept to which nothing is added; a completed one is remembered for so long, too."""

_FIELD = "body"
_PART = "part"


class UploadedPart(Struct, frozen=True, kw_only=True):
    """A part that is stored. `version` is what its store calls this content; `lines` counts line ends, and the part
    is `open_ended` where none stands at its end."""

    size: int
    lines: int
    open_ended: bool
    version: str


class FileUpload(Struct, frozen=True, kw_only=True):
    """An upload to `path`, which its store knows by the `token`. `id` names its app, too. The `parts` stand by their
    numbers. `changed_at` is the database's time."""

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
        """The parts, each with its number."""
        return sorted((int(number), part) for number, part in self.parts.items())

    @property
    def size(self) -> int:
        """How many bytes there are so far."""
        return sum(part.size for part in self.parts.values())

    @property
    def lines(self) -> int:
        """How many lines there are so far, the header among them."""
        parts = self.in_order
        return sum(part.lines for _, part in parts) + (parts[-1][1].open_ended if parts else 0)


def upload_key(app_id: str, upload_id: str) -> str:
    """The key that an upload of this app is stored under: another app's has another one, whatever its id."""
    return f"{app_id}/{upload_id}"


def measure_part(content: bytes, version: str) -> UploadedPart:
    """The facts about a part that are kept."""
    return UploadedPart(
        size=len(content), lines=content.count(b"\n"), open_ended=not content.endswith(b"\n"), version=version
    )


def check_part(upload: FileUpload, number: int, content: bytes, *, most: int) -> None:
    """Raise where this cannot be a part of the upload.

    Raises:
        Conflict: the upload is completed.
        Invalid: it is empty or too large, or the file would have more than `most` bytes.
    """
    if upload.completed:
        raise Conflict("this upload is completed: begin another one", field="upload")
    if not 0 < len(content) <= MAX_PART_BYTES:
        rule = "the file is empty" if not content and number == 1 else f"a part has 1 to {MAX_PART_BYTES:,} bytes"
        raise Invalid(rule, field=_FIELD, value=len(content))
    others = sum(part.size for other, part in upload.in_order if other != number)
    check_size(others + len(content), most=most)


def check_size(size: int, *, most: int) -> None:
    """Raise `Invalid` where a file would have more than `most` bytes."""
    if size > most:
        raise Invalid(f"the file must have at most {most:,} bytes", field=_FIELD, value=size)


def check_whole(upload: FileUpload, size: int | None) -> None:
    """Raise `Conflict` where the parts do not make a file, or not one of this size."""
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
