"""Occurrences: everything timed, one document an instant.

An occurrence belongs to an `owner`, which names a kind and a thing of that kind: a user's schedule, a stage of a job, a
batch that is tried again. Its life is one field, `visible_at`:

    due ──claim──> end of the lease ──fired──> deleted, or moved to the next instant of its series
                        │      ├──an answer that refuses──> the time of the next attempt, or a dead letter
                        │      └──no answer──> soon again, not counted
                        └──its process died──> visible again when the lease ends
    pause ──> HELD_BACK ──resume──> due

An occurrence may be what its processes die of. `claims` counts claims in a row that ended in nothing. They prove
little: a death counts against all that the process held, and a store that answers too late counts too. So many claims
only make a *suspect*. A suspect is fired alone, and whoever attempts it stores first that the attempt begins (`begun`).
Any end of an attempt resets both counts, also that no answer came. An occurrence that is let go without an attempt has
only its `claims` reset. A suspect of which five attempts began and none ended is *poisonous*: it becomes a dead letter.

Whatever is visible (`visible_at` has come) may be claimed by anybody; a claim marks it with a fresh token, and all that
follows is fenced by that token. So an expired lease needs no sweeper and a late process can do no harm.

An occurrence's id is a hash of (owner, generation, due), so that inserting it again does nothing. A generation is a
fresh random value; what is replaced gets a new one, and occurrences of another generation never fire. A recurring
schedule has one document that moves (its id is a hash of the series); the message id is that of the instant in every
case.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.instants import ms

SHARDS = 32
HELD_BACK = datetime(9999, 1, 1, tzinfo=UTC)
SCHEDULE = "schedule"
"""The kind of owner that users' schedules are. Other kinds belong to whoever has handlers for them."""

_OF_SCHEDULE = f"{SCHEDULE}/"
_FRUITLESS_CLAIMS = 20
_UNENDED_ATTEMPTS = 5


class OccurrenceKind(StrEnum):
    """The kind of an occurrence."""

    ONCE = "once"  # one instant, deleted when it has fired
    SERIES = "series"  # the next instant of a recurrence: moves when it has fired
    ASKED = "asked"  # fired by hand: neither a pause nor the misfire rule holds it


class Occurrence(Struct, frozen=True, kw_only=True):
    """One instant of one owner. Times are UTC, by the database's clock, to the millisecond.

    `fires_at` is `due`, or the time of the next attempt. `accepted_at` is when it was asked for: lateness counts from
    one tick later, if that is after `due`. `attempts` counts answers that refused; `claims` counts claims that ended in
    nothing, and `begun` the attempts of a suspect that began and have not ended; `runs` the instants of a series before
    this one. `size` is about that of its message, in bytes: what is fired at once must fit into memory. `trace` says
    where it was asked for (`shared.runtime.tracing`).
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

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what its processes die of."""
        return self.claims > _FRUITLESS_CLAIMS or self.begun > 0

    @property
    def is_poisonous(self) -> bool:
        """Whether it is not attempted any more."""
        return self.begun >= _UNENDED_ATTEMPTS

    @property
    def may_be_early(self) -> bool:
        """Whether a deployment may choose to fire it early: not what is tried again, nor our own work."""
        return self.attempts == 0 and self.fires_at == self.due and self.owner.startswith(_OF_SCHEDULE)

    @property
    def message_id(self) -> str:
        """The id by which a receiver can recognise a repeat: the same on every attempt. If an occurrence has one
        instant, it is the occurrence's id."""
        if self.kind is not OccurrenceKind.SERIES:
            return self.id
        return occurrence_id(self.owner, self.generation, self.due)


def occurrence_id(owner: str, generation: str, due: datetime) -> str:
    """The id of one instant: 32 hex digits."""
    return _hash(owner, generation, str(ms(due)))


def once(
    owner: str,
    generation: str,
    due: datetime,
    *,
    accepted_at: datetime,
    kind: OccurrenceKind = OccurrenceKind.ONCE,
    size: int = 0,
) -> Occurrence:
    """An occurrence that fires once."""
    return _make(occurrence_id(owner, generation, due), owner, generation, due, accepted_at, kind, size)


def series(owner: str, generation: str, first: datetime, *, accepted_at: datetime, size: int = 0) -> Occurrence:
    """The one moving document of a recurrence, at its first instant."""
    return _make(_hash(owner, generation, "series"), owner, generation, first, accepted_at, OccurrenceKind.SERIES, size)


def retry_entry(occurrence: Occurrence, *, fires_at: datetime, attempts: int) -> Occurrence:
    """A separate entry for the instant at which a series stands, to be tried again at `fires_at`."""
    entry = once(occurrence.owner, occurrence.generation, occurrence.due, accepted_at=occurrence.accepted_at)
    entry = replace(entry, size=occurrence.size, trace=occurrence.trace)
    return replace(entry, fires_at=fires_at, visible_at=fires_at, attempts=attempts)


def handed_over(occurrence: Occurrence, token: str, *, leased_until: datetime) -> Occurrence:
    """A separate entry for the instant at which a claimed series stands, claimed by this token."""
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
    """How late a firing at `now` is: counted from `due`, or from one tick after it was accepted if that is later."""
    return max(now - max(due, accepted_at + tick), timedelta(0))


class Owner(Struct, frozen=True):
    """The owner of an occurrence. `kind` says who is called when it is due; what `id` means, only they know."""

    kind: str
    id: str


def owner_text(owner: Owner) -> str:
    """The owner as it is stored."""
    return f"{owner.kind}/{owner.id}"


def owner_group(owner: str) -> str:
    """The group that this owner belongs to: the schedules of a namespace, or what a job has pending. It is all but the
    last part of `schedule/<namespace>/<key>` and its like."""
    return owner.rpartition("/")[0]


def read_owner(text: str) -> Owner:
    """The owner whose text `owner_text` wrote. Raises `ValueError` for anything else."""
    kind, slash, id_ = text.partition("/")
    if not kind or not slash:
        raise ValueError(f"no owner of occurrences: {text!r}")
    return Owner(kind, id_)


def _hash(owner: str, generation: str, instant: str) -> str:
    text = f"{owner}\0{generation}\0{instant}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
