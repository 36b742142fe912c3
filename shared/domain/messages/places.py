"""Places: which batches of an account's jobs are on their way, and how many calls their workers may have under way.

A batch needs a place before it is queued. It keeps the place, whoever works on it, until its last call has begun or it
is put back into its plan. There are few places, so that what comes first by the account's order goes first: `age` takes
the oldest job, `shares` the one that has had least for its share. Where no place is free and a job comes before one
that has a place, the last holder in order *yields*: its worker puts the batch back at its next grant.

A holder that has instants for all its messages *ends*: its place counts no more among the few, so that the next batch
is prepared while the last calls of this one are made.

Each place also says how many `calls` its worker may have under way, so that `max_in_flight` holds over all workers. A
place counts until `until_us` only, and every grant renews it: the dead hold nothing.
"""

from collections.abc import Iterable
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.messages.pacing import Limit

_CALLS_A_PLACE = 1_000
_SLOW_RATE = 10
_FEWEST, _MOST = 2, 10
_MOST_ENDING = 32
_BATCH_SECONDS = 60
_SMALLEST_BATCH, _LARGEST_BATCH = 20, 1_000

Rank = tuple[float, int, str]
"""By what jobs of an account are ordered: what a job has had for its share (0 where age alone counts), its creation
(ns), and its key."""


class AccountPlace(Struct, frozen=True, kw_only=True):
    """One of an account's places. `holder` is the id of a batch, or of a worker that sends single messages. Times are
    the database's, in microseconds. `limit` is what has bounded the holder of late."""

    holder: str
    rank: Rank
    until_us: int
    calls: int = 0
    yields: bool = False
    ends: bool = False
    limit: Limit = Limit.RATE


Places = tuple[AccountPlace, ...]


def capacity(rate: float, max_in_flight: int) -> int:
    """How many places an account has. Grants follow each other, so one holder calls while the next one prepares. More
    would not be faster, and would leave each other fewer calls. Of a slow account one batch is enough: it takes a
    worker's room for long, and the next one is prepared between two calls."""
    if rate < _SLOW_RATE:
        return 1
    return min(max_in_flight, max(_FEWEST, min(ceil(rate / _CALLS_A_PLACE), _MOST)))


def batch_size(rate: float) -> int:
    """How many recipients a batch has: about a minute of the rate."""
    return round(max(_SMALLEST_BATCH, min(_BATCH_SECONDS * rate, _LARGEST_BATCH)))


def drop_expired(places: Places, now_us: int, *, keep: str = "") -> Places:
    """The places without those whose holders are gone; who looks is there, and keeps its own."""
    return tuple(place for place in places if place.until_us > now_us or place.holder == keep)


def enter(places: Places, holder: str, rank: Rank, *, until_us: int, most: int) -> Places | None:
    """The places with one for this holder; `None` where none is free. Who has one keeps it."""
    if any(place.holder == holder for place in places):
        return places
    if count(places) >= most or len(places) >= most + _MOST_ENDING:
        return None
    return (*places, AccountPlace(holder=holder, rank=rank, until_us=until_us))


def count(places: Places) -> int:
    """How many places are taken: those that end count no more."""
    return sum(not place.ends for place in places)


def leave(places: Places, holder: str) -> Places:
    """The places without this holder's."""
    return tuple(place for place in places if place.holder != holder)


def have_one_yield(places: Places, rank: Rank) -> Places:
    """The places of which the last in order yields to a job of this rank; as they are where none comes behind it, or
    where one yields already."""
    last = max((place for place in places if not place.ends), key=lambda place: place.rank, default=None)
    if last is None or last.rank <= rank or any(place.yields for place in places):
        return places
    return tuple(replace(place, yields=True) if place is last else place for place in places)


def room(places: Places, holder: str, *, wanted: int, max_in_flight: int, under_way: int = 0) -> int:
    """How many of the `wanted` calls the others leave to this holder: no more than its part of all, so that nobody
    waits for one that took too many for longer than that one's grant. But those that are `under_way` count, however
    long they last."""
    others = sum(place.calls for place in places if place.holder != holder)
    sharing = sum(place.holder == holder or not place.ends for place in places)
    part = max(max_in_flight // sharing, 1) if sharing else 0
    return max(min(wanted, part, max_in_flight - others), under_way, 0)


def renew(
    places: Places, holder: str, *, until_us: int, calls: int, limit: Limit = Limit.RATE, ends: bool = False
) -> Places:
    """The places in which this holder's counts until then, or `ends` then, with so many calls."""
    return tuple(
        replace(place, until_us=until_us, calls=calls, limit=limit, ends=ends) if place.holder == holder else place
        for place in places
    )


def place_of(places: Iterable[AccountPlace], holder: str) -> AccountPlace | None:
    """The place of this holder."""
    return next((place for place in places if place.holder == holder), None)
