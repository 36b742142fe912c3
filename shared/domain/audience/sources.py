"""The sources of a job's audience, fixed before the first cut: what is added or changed later does not count."""

from msgspec import Struct


class PushTable(Struct, frozen=True, tag="table"):
    """The rows of the push table up to `highest`, the greatest `seq_id` when planning began."""

    highest: int


class File(Struct, frozen=True, tag="file"):
    """One version of an object of `size` bytes at `path`, which is "<bucket>/<key>"."""

    path: str
    size: int
    version: str


Source = PushTable | File
