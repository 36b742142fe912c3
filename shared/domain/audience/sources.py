"""The sources of a job's audience, fixed before the first cut: later additions and changes do not count."""

from msgspec import Struct


class PushTable(Struct, frozen=True, tag="table"):
    """The rows of the push table up to `highest`, the greatest `seq_id` at the beginning of the plan."""

    highest: int


class File(Struct, frozen=True, tag="file"):
    """One version of an object of `size` bytes at `path`, which is "<bucket>/<key>"."""

    path: str
    size: int
    version: str


Source = PushTable | File
