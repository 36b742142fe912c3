"""The inside of a job: its batches, and how fast it was."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct


class Batch(Struct, frozen=True, kw_only=True, rename="camel"):
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
    """How many devices a second a job sent to at that moment."""

    at: datetime
    per_second: float
