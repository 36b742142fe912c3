"""Occurrences: everything timed, one document for each instant.

An occurrence belongs to an `owner`, which names a kind and a thing of that kind: a user's schedule, a stage of a
job, a batch that is tried again. Its life is one field, `visible_at`:

    due ──claim──> end of the lease ──fired──> deleted, or moved to the next instant of its series
          │      ├──an answer that refuses──> the time of the next attempt, or a dead letter
          │      └──no answer──> soon again, not counted
          └──its process died──> visible again when the lease ends
    pause ──> HELD_BACK ──resume──> due

An occurrence may kill its processes. `claims` counts claims in a row without a result. Such a claim can have many
causes: a crash, another occurrence's crash, a slow store. After 20 of them the scheduler treats the occurrence as a
*suspect*: it fires the suspect alone, and the process first stores that the attempt begins (`begun`). If the attempt
ends, even without an answer, both counts begin anew. A release without an attempt resets only `claims`. A suspect with
five begun attempts and no end is *poisonous*: it becomes a dead letter.

Any process may claim a visible occurrence (`visible_at` has come); a claim writes a fresh token, which fences all
later writes. So an expired lease needs no sweeper, and a late process does no harm.

An occurrence's id is a hash of (owner, generation, due), so that a repeated insert does nothing. A generation is a
random value; a replacement gets a new one, and occurrences of another generation never fire. A recurring schedule
has one document that moves (its id is a hash of the series); the message id is always that of the instant. Around an
anchor the offset takes the place of `due`: an occurrence that moves with its anchor stays the same one.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from shared.core.instants import ms

SHARDS = 32
HELD_BACK = datetime(9999, 1, 1, tzinfo=UTC)
PARKED = datetime(9998, 1, 1, tzinfo=UTC)
"""`visible_at` of an offset's occurrence that waits for its schedule: it was past when it was given, or was dropped, or
is about to be given."""
SCHEDULE = "schedule"
"""The kind of owner of users' schedules. Other kinds have handlers elsewhere."""
_OF_SCHEDULE = f"{SCHEDULE}/"
_FRUITLESS_CLAIMS = 20
_UNENDED_ATTEMPTS = 5


class OccurrenceKind(StrEnum):
    """The kind of an occurrence."""

    ONCE = "once"  # one instant, deleted after it has fired
    SERIES = "series"  # the next instant of a recurrence: moves after it has fired
    OFFSET = "offset"  # at an offset from its schedule's anchor: moves with the anchor until it has fired
    ASKED = "asked"  # fired by hand: neither a pause nor the misfire rule holds it


class Passed(Struct, frozen=True):
    """How far a series that excludes days has come: nothing fires again up to `moment`. Raw instants up to `raw` do not
    fire any more, and neither do those in `later`, which have fired before their turn. All are without delay."""

    moment: datetime
    raw: datetime
    later: tuple[datetime, ...] = ()


class Occurrence(Struct, frozen=True, kw_only=True):
    """One instant of one owner. Times are UTC, by the database's clock, to the millisecond.

    `fires_at` is `due`, or the time of the next attempt. `accepted_at` is the time of the request: lateness counts from
    one tick after it, if that is after `due`. `attempts` counts refusals, `claims` claims without a result, `begun` the
    unfinished attempts of a suspect, and `runs` the earlier instants of a series. `size` is the approximate size of its
    message in bytes, because everything fired at once must fit into memory. `trace` is that of the request
    (`shared.runtime.tracing`).

    `offset_ms`: for `OFFSET`, the offset from the anchor. `raws`: the raw instants of a `SERIES` that fire at `due`,
    without delay; empty if `due` is the only one.
    """

    id: str
    owner: str
    generation: str
    due: datetime
    fires_at: datetime
    visible_at: datetime
    accepted_at: datetime
    shard: int
    kind: OccurrenceKind = OccurrenceKind.ONCE
    token: str = ""
    attempts: int = 0
    claims: int = 0
    begun: int = 0
    runs: int = 0
    size: int = 0
    trace: str = ""
    offset_ms: int = 0
    raws: tuple[datetime, ...] = ()
    passed: Passed | None = None

    @property
    def place(self) -> tuple[datetime, tuple[datetime, ...]]:
        """Its instants: an anchor or a calendar moves it from one place to another."""
        return self.due, self.raws

    @property
    def is_suspect(self) -> bool:
        return self.claims > _FRUITLESS_CLAIMS or self.begun > 0

    @property
    def is_poisonous(self) -> bool:
        return self.begun >= _UNENDED_ATTEMPTS

    @property
    def may_be_early(self) -> bool:
        """Whether a deployment may fire it early: neither retries nor Carillon's own work."""
        return self.attempts == 0 and self.fires_at == self.due and self.owner.startswith(_OF_SCHEDULE)

    @property
    def message_id(self) -> str:
        """The id by which a receiver recognises a repeat: the same on every attempt. For an occurrence with one instant
        it is the occurrence's id."""
        if self.kind is not OccurrenceKind.SERIES:
            return self.id
        return occurrence_id(self.owner, self.generation, self.due)


def occurrence_id(owner: str, generation: str, due: datetime) -> str:
    return _hash(owner, generation, str(ms(due)))


def job_id_of(message_id: str) -> str:
    """The id of the job that the occurrence with this message id starts."""
    return str(UUID(hex=message_id))


def once(
    owner: str,
    generation: str,
    due: datetime,
    *,
    accepted_at: datetime,
    kind: OccurrenceKind = OccurrenceKind.ONCE,
    size: int = 0,
) -> Occurrence:
    return _make(occurrence_id(owner, generation, due), owner, generation, due, accepted_at, kind, size)


def series(owner: str, generation: str, first: datetime, *, accepted_at: datetime, size: int = 0) -> Occurrence:
    """The one moving document of a recurrence, at its first instant."""
    return _make(_hash(owner, generation, "series"), owner, generation, first, accepted_at, OccurrenceKind.SERIES, size)


def offset_id(owner: str, generation: str, offset_ms: int) -> str:
    return _hash(owner, generation, f"offset/{offset_ms}")


def at_backfill(owner: str, generation: str, due: datetime, *, at: datetime, size: int) -> Occurrence:
    """A past instant that a request of the time `at` fires. Its id differs from that of the instant itself."""
    asked = once(owner, generation, due, accepted_at=at, kind=OccurrenceKind.ASKED, size=size)
    return replace(asked, id=_hash(owner, generation, f"backfill/{ms(due)}"), fires_at=at, visible_at=at)


def at_offset(
    owner: str, generation: str, offset_ms: int, due: datetime, *, accepted_at: datetime, size: int
) -> Occurrence:
    """The occurrence at an offset from an anchor. Its id does not depend on the anchor."""
    id_ = offset_id(owner, generation, offset_ms)
    made = _make(id_, owner, generation, due, accepted_at, OccurrenceKind.OFFSET, size)
    return replace(made, offset_ms=offset_ms, visible_at=due if due > accepted_at else PARKED)


def retry_entry(occurrence: Occurrence, *, fires_at: datetime, attempts: int) -> Occurrence:
    """A separate entry for the present instant of a series, due again at `fires_at`."""
    owner, generation, due = occurrence.owner, occurrence.generation, occurrence.due
    entry = once(owner, generation, due, accepted_at=occurrence.accepted_at, size=occurrence.size)
    return replace(entry, trace=occurrence.trace, fires_at=fires_at, visible_at=fires_at, attempts=attempts)


def handed_over(occurrence: Occurrence, token: str, *, leased_until: datetime) -> Occurrence:
    """A separate entry for the present instant of a claimed series, claimed by this token."""
    entry = retry_entry(occurrence, fires_at=occurrence.due, attempts=0)
    return replace(entry, visible_at=leased_until, token=token)


def _make(
    id: str, owner: str, generation: str, due: datetime, accepted_at: datetime, kind: OccurrenceKind, size: int
) -> Occurrence:
    return Occurrence(
        id=id,
        owner=owner,
        generation=generation,
        due=due,
        fires_at=due,
        visible_at=due,
        accepted_at=accepted_at,
        shard=int(id[:8], 16) % SHARDS,
        kind=kind,
        size=size,
    )


def lateness(due: datetime, accepted_at: datetime, now: datetime, tick: timedelta) -> timedelta:
    """The lateness of a firing at `now`: from `due`, or from one tick after `accepted_at` if that is later."""
    return max(now - max(due, accepted_at + tick), timedelta(0))


class Owner(Struct, frozen=True):
    """The owner of an occurrence. `kind` selects the handler, which alone interprets `id`."""

    kind: str
    id: str


def owner_group(owner: str) -> str:
    """The group of this owner: the schedules of a namespace, or the occurrences of a job. It is all but the last part,
    as in `schedule/<namespace>/<key>`."""
    return owner.rpartition("/")[0]


def read_owner(text: str) -> Owner:
    kind, slash, id_ = text.partition("/")
    if not kind or not slash:
        raise ValueError(f"no owner of occurrences: {text!r}")
    return Owner(kind, id_)


def _hash(owner: str, generation: str, instant: str) -> str:
    text = f"{owner}\0{generation}\0{instant}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
