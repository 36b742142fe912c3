"""The receivers' feedback about pushes: reading records of a feedback topic, and folding them into counts.

Two generations of Pusher write these records. The old one answers every push, the current one only failures. APNS and
GCM records differ: a GCM record has a `message_id` and its failure in `error`, an APNS record in `Err.Key`. Current FCM
failures name no job at all. Names of fields are matched without regard to case; the usual spelling wins.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from shared.core.documents import Position
from shared.jobs.rules.batches import OTHER

ACK = "ack"
MAX_OUTCOME_CHARACTERS = 64
MAX_JOB_ID_CHARACTERS = 64
MAX_KEYS = 2_000


class Skip(StrEnum):
    EMPTY = "empty"  # no value at all: a tombstone
    UNREADABLE = "unreadable"  # not JSON, not an object, or nested too deep
    NO_JOB = "no-job"  # names no job, as all current FCM failures
    BAD_JOB = "bad-job"  # the value of the job cannot be an id
    NO_OUTCOME = "no-outcome"  # an error without a text, or one that is no text


class CountedPush(Struct, frozen=True, gc=False):
    """One push of this job had this outcome: `ack`, or the error's name."""

    job_id: str
    outcome: str


class Skipped(Struct, frozen=True, gc=False):
    """A record with nothing to count, and the reason."""

    reason: Skip


Key = tuple[str, str]
"""A job's id and an outcome."""


class _Metadata(Struct, gc=False):
    jobId: str | None = None  # noqa: N815 - the name in the record


class _Err(Struct, gc=False):
    Key: str | None = None


class _Record(Struct, gc=False):
    message_id: str | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    Err: _Err | UnsetType | None = UNSET
    metadata: _Metadata | None = None


_typed = msgspec.json.Decoder(_Record)
_untyped = msgspec.json.Decoder()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SKIPPED = {reason: Skipped(reason) for reason in Skip}


def read(value: bytes | None) -> CountedPush | Skipped:
    """The push of a record, or the reason to skip it. It never raises."""
    if not value:
        return _SKIPPED[Skip.EMPTY]
    try:
        return _read_usual(_typed.decode(value), value) or _read_folded(_untyped.decode(value))
    except msgspec.ValidationError:
        pass  # JSON of another shape
    except _UNREADABLE:
        return _SKIPPED[Skip.UNREADABLE]
    try:
        return _read_folded(_untyped.decode(value))
    except _UNREADABLE:
        return _SKIPPED[Skip.UNREADABLE]


def _read_usual(record: _Record, value: bytes) -> CountedPush | None:
    """The answer, if the usual spellings suffice for certainty."""
    job_id = record.metadata.jobId if record.metadata is not None else None
    if not job_id or len(job_id) > MAX_JOB_ID_CHARACTERS:
        return None
    message_id, error, err = record.message_id, record.error, record.Err
    if message_id:
        outcome = error
    elif message_id is UNSET and b"_" in value and b'"message_id"' in value.lower():
        return None
    else:
        outcome = err.Key if err else None
    if outcome:
        return CountedPush(job_id, outcome[:MAX_OUTCOME_CHARACTERS])
    if error or err or _spelt_otherwise(error, err, value):
        return None
    return CountedPush(job_id, ACK)


def _spelt_otherwise(error: str | UnsetType | None, err: _Err | UnsetType | None, value: bytes) -> bool:
    if err is not UNSET and error is not UNSET:
        return False
    lowered = value.lower()
    if b'"err' not in lowered:
        return False
    return (err is UNSET and b'"err"' in lowered) or (error is UNSET and b'"error"' in lowered)


def _read_folded(record: Any) -> CountedPush | Skipped:
    if not isinstance(record, dict):
        return _SKIPPED[Skip.UNREADABLE]
    metadata = _field(record, "metadata")
    job_id = _field(metadata, "jobId") if isinstance(metadata, dict) else None
    if not job_id:
        return _SKIPPED[Skip.NO_JOB]
    if not isinstance(job_id, str) or len(job_id) > MAX_JOB_ID_CHARACTERS:
        return _SKIPPED[Skip.BAD_JOB]
    outcome = _outcome(record)
    if not outcome or not isinstance(outcome, str):
        return _SKIPPED[Skip.NO_OUTCOME]
    return CountedPush(job_id, outcome[:MAX_OUTCOME_CHARACTERS])


def _outcome(record: Mapping[str, Any]) -> Any:
    error, err = _field(record, "error"), _field(record, "Err")
    if not error and not err:
        return ACK
    if _field(record, "message_id"):
        return error
    return _field(err, "Key") if isinstance(err, dict) else None


def _field(record: Mapping[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    folded = name.lower()
    return next((value for key, value in record.items() if key.lower() == folded), None)


class Fold:
    """The counts of one partition's log: from `first`, which follows from the stored position `start`, to `end`, the
    next offset to read. A `full` fold must be stored before more is added. A chunk adds at most a key for each record.
    """

    def __init__(self, start: Position, log: str) -> None:
        self.start = start
        self._beginning = start.begin(log)
        self.end = self.first
        self.counts: dict[Key, int] = {}
        self.skipped: dict[Skip, int] = {}

    @property
    def log(self) -> str:
        return self._beginning.log

    @property
    def first(self) -> int:
        return self._beginning.offset

    @property
    def moved(self) -> bool:
        """Whether there is a step to store, even without counts."""
        return self.end != self.first

    @property
    def stop(self) -> Position:
        return replace(self._beginning, offset=self.end)

    @property
    def full(self) -> bool:
        return len(self.counts) >= MAX_KEYS

    @property
    def counted(self) -> int:
        return sum(self.counts.values())

    def add(self, values: Iterable[bytes | None], upto: int) -> None:
        """Count the records between `end` and `upto`, which becomes the end.

        Offsets without a record (transaction markers, compaction, a log cut at its head) count nothing. An end before
        the first is a log that lost its end, and is stored like any other.
        """
        counts, skipped = self.counts, self.skipped
        for value in values:
            record = read(value)
            if isinstance(record, CountedPush):
                key = (record.job_id, record.outcome)
                counts[key] = counts.get(key, 0) + 1
            else:
                skipped[record.reason] = skipped.get(record.reason, 0) + 1
        self.end = upto


def by_job(counts: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    """The counts of each job, in the order of the jobs' ids, so that all writers lock them in the same order."""
    jobs: dict[str, dict[str, int]] = {}
    for (job_id, outcome), count in sorted(counts.items()):
        jobs.setdefault(job_id, {})[outcome] = count
    return jobs


def admit_outcomes(present: Iterable[str], new: Mapping[str, int], most: int) -> dict[str, int]:
    """The increments for a job with the `present` outcomes: at most `most` different ones, the rest is `other`.

    An outcome keeps its place. Free places go to the most frequent of the new ones; `other` needs none.
    """
    places = set(present) - {OTHER}
    increments: dict[str, int] = {}
    for outcome, count in sorted(new.items(), key=lambda item: (-item[1], item[0])):
        if outcome not in places and outcome != OTHER and len(places) < most:
            places.add(outcome)
        name = outcome if outcome in places else OTHER
        increments[name] = increments.get(name, 0) + count
    return increments
