"""Places: which batches of an account's jobs are on their way, and how many calls their workers may have under way.

A batch needs a place before it is queued. It keeps the place, whoever works on it, until its last call has begun or it
is put back into its plan. There are few places, so that what comes first by the account's order goes first: `age` takes
the oldest job, `shares` the one that has had least for its share. If no place is free and a job comes before one that
has a place, the last holder in order *yields*: its worker puts the batch back at its next grant.

A holder that has instants for all its messages *ends*: its place counts no more among the few, so that the next batch
is prepared while the last calls of this one are made.

Each place also says how many `calls` its worker may have under way, so that `max_in_flight` holds over all workers. A
place counts until `until_us` only, and every grant renews it: the dead hold nothing. It also has the `turn` of its
batch, which rises with each message of the batch: who was overtaken, and wakes up late, reserves nothing by a place
that is another's now, and does not give it up.
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

FIRST_IN_LINE: Rank = (-1.0, 0, "")
"""The rank of single messages."""


class AccountPlace(Struct, frozen=True, kw_only=True):
    """One of an account's places. `holder` is the id of a batch, which has this `turn`, or of who sends single
    messages. Times are the database's, in microseconds. `limit` is what has bounded the holder of late."""

    holder: str
    rank: Rank
    until_us: int
    calls: int = 0
    yields: bool = False
    ends: bool = False
    limit: Limit = Limit.RATE
    turn: int = 0


Places = tuple[AccountPlace, ...]


def capacity(rate: float, max_in_flight: int) -> int:
    """How many places an account has. Grants follow each other, so one holder calls while the next one prepares. More
    would not be faster, and would leave each other fewer calls. A slow account needs one batch only: it takes a
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


def enter(places: Places, holder: str, rank: Rank, *, until_us: int, most: int, turn: int = 0) -> Places | None:
    """The places with this holder's own or a new one, with this turn at least; `None` where none is free."""
    if (mine := place_of(places, holder)) is not None:
        later = replace(mine, turn=max(mine.turn, turn))
        return tuple(later if place is mine else place for place in places)
    if count(places) >= most or len(places) >= most + _MOST_ENDING:
        return None
    return (*places, AccountPlace(holder=holder, rank=rank, until_us=until_us, turn=turn))


def is_behind(places: Places, holder: str) -> bool:
    """Whether a holder with a lower rank still needs instants for some of its messages."""
    mine = place_of(places, holder)
    return mine is not None and any(place.rank < mine.rank and not place.ends for place in places)


def count(places: Places) -> int:
    """How many places are taken: those that end count no more."""
    return sum(not place.ends for place in places)


def last_rank(places: Places) -> Rank | None:
    """The rank of the last holder in order, of those that do not end."""
    return max((place.rank for place in places if not place.ends), default=None)


def floor(places: Places) -> float | None:
    """The least that a job with a place has had for its share: who has waited long has no more to catch up."""
    return min((place.rank[0] for place in places if place.rank != FIRST_IN_LINE), default=None)


def leave(places: Places, holder: str, *, turn: int = 0) -> Places:
    """The places without this holder's, unless that has a later turn."""
    return tuple(place for place in places if place.holder != holder or place.turn > turn)


def have_one_yield(places: Places, rank: Rank) -> Places:
    """Have the last holder in order yield its place to a job of this rank. The places stay as they are where none comes
    behind that job, or where one yields already."""
    last = max((place for place in places if not place.ends), key=lambda place: place.rank, default=None)
    if last is None or last.rank <= rank or any(place.yields and not place.ends for place in places):
        return places
    return tuple(replace(place, yields=True) if place is last else place for place in places)


def take_over(places: Places, holder: str, *, until_us: int, turn: int = 0) -> Places:
    """Give this holder's place to another worker, with this turn. Calls of its former worker may still be under way, so
    they count until that worker's time is over. Nothing changes where the place has a later turn."""
    mine = place_of(places, holder)
    if mine is None or mine.turn > turn:
        return places
    former = replace(mine, holder=f"{holder}/{mine.until_us}", ends=True, yields=False)
    fresh = replace(mine, until_us=until_us, calls=0, ends=False, limit=Limit.RATE, turn=turn)
    return (*leave(places, holder, turn=turn), *((former,) if mine.calls else ()), fresh)


def room(places: Places, holder: str, *, wanted: int, max_in_flight: int) -> int:
    """How many of the `wanted` calls the others leave to this holder: no more than its part of all, so that nobody
    waits for one that took too many for longer than that one's grant. A holder first in line without any gets one."""
    mine, others = place_of(places, holder), [place for place in places if place.holder != holder]
    has_priority = mine is not None and mine.rank == FIRST_IN_LINE
    taken = sum(place.calls or (place.rank == FIRST_IN_LINE and not has_priority) for place in others)
    sharing = 1 + sum(not place.ends for place in others)
    return max(min(wanted, max(max_in_flight // sharing, 1), max_in_flight - taken), 0)


def renew(
    places: Places, holder: str, *, until_us: int, calls: int, limit: Limit = Limit.RATE, ends: bool = False
) -> Places:
    """The places in which this holder's counts until then, or `ends` then, with so many calls."""
    return tuple(
        replace(place, until_us=until_us, calls=calls, limit=limit, ends=ends) if place.holder == holder else place
        for place in places
    )


def place_of(places: Iterable[AccountPlace], holder: str, *, turn: int | None = None) -> AccountPlace | None:
    """The place of this holder, if it has this turn."""
    mine = next((place for place in places if place.holder == holder), None)
    return mine if mine is None or turn in (None, mine.turn) else None
