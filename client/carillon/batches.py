"""The inside of a job: its batches, how fast it was, and what its records look like."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from carillon.displays import Short
from carillon.previews import Sample


class Batch(Short, frozen=True, kw_only=True, rename="camel"):
    """A part of a job's audience, sent as one. It counts devices: `planned` ones were `sent`, `failed` (for `reasons`),
    `skipped`, `held_out`; `unknown` users of a file have none."""

    ordinal: int
    state: str
    zone: str = ""
    planned: int
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0
    attempts: int = 0
    error: str = ""
    reasons: Mapping[str, int] = {}
    changed_at: datetime | None = None


class RatePoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many devices a second a job sent to from `at` on, until the next point."""

    at: datetime
    per_second: float


class Rate(Short, frozen=True, kw_only=True, rename="camel"):
    """How fast a job was, in points of like length."""

    points: tuple[RatePoint, ...]


class Samples(Struct, frozen=True, kw_only=True, rename="camel"):
    """The records that the templates of a job make for made-up devices; larger ones than `max_record_bytes` are not
    sent."""

    samples: tuple[Sample, ...]
    max_record_bytes: int
