"""Places: the batches of an account's jobs that are being sent, and the calls that their workers may have in flight.

A batch needs a place before it is queued. It keeps the place, whichever worker has it, until its last call has begun or
it returns to its plan. There are few places, so the account's order decides: `age` takes the oldest job, `shares` the
one with the smallest used share. If no place is free and a job comes before a holder, the last holder in order
*yields*: its worker puts the batch back at its next grant.

A holder with instants for all its messages *ends*: its place no longer counts, so that the next batch is prepared
during the last calls of this one.

Each place also limits the `calls` of its worker, so that `max_in_flight` holds over all workers. A place counts until
`until_us`, and every grant renews it, so dead workers hold nothing. It also has the `turn` of its batch, which rises
with each message of the batch: a late worker whose place was taken over can neither reserve by it nor give it up.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from shared.messages.rules.pacing import Limit

_CALLS_A_PLACE = 1_000
_SLOW_RATE = 10
_FEWEST, _MOST = 2, 10
_MOST_ENDING = 32
_BATCH_SECONDS = 60
_SMALLEST_BATCH, _LARGEST_BATCH = 20, 1_000
Rank = tuple[float, int, str]
"""The order of an account's jobs: the used share (0 if only age counts), the creation (ns), and the key."""
FIRST_IN_LINE: Rank = (-1.0, 0, "")
"""The rank of single messages."""


class AccountPlace(Struct, frozen=True, kw_only=True):
    """A place of an account. `holder` is the id of a batch, which has this `turn`, or of the sender of single messages.
    Times are the database's, in microseconds. `limit` is the holder's latest limit."""

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
    """The number of places of an account. Grants follow each other, so one holder calls while the next one prepares.
    More would not be faster, and would leave fewer calls for each. A slow account needs only one batch: it occupies a
    worker for long, and the next one is prepared between two calls."""
    if rate < _SLOW_RATE:
        return 1
    return min(max_in_flight, max(_FEWEST, min(ceil(rate / _CALLS_A_PLACE), _MOST)))


def batch_size(rate: float) -> int:
    """The recipients of a batch: about a minute of the rate."""
    return round(max(_SMALLEST_BATCH, min(_BATCH_SECONDS * rate, _LARGEST_BATCH)))


def drop_expired(places: Places, now_us: int, *, keep: str = "") -> Places:
    """The places without those of dead holders; `keep` stays, because it is alive."""
    return tuple(place for place in places if place.until_us > now_us or place.holder == keep)


def enter(places: Places, holder: str, rank: Rank, *, until_us: int, most: int, turn: int = 0) -> Places | None:
    """The places with this holder's own or a new one, with at least this turn; `None` if none is free."""
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
    return sum(not place.ends for place in places)


def last_rank(places: Places) -> Rank | None:
    """The rank of the last holder in order, of those that do not end."""
    return max((place.rank for place in places if not place.ends), default=None)


def floor(places: Places) -> float | None:
    """The smallest used share of a job with a place: a job that has waited long need not catch up beyond it."""
    return min((place.rank[0] for place in places if place.rank != FIRST_IN_LINE), default=None)


def leave(places: Places, holder: str, *, turn: int = 0) -> Places:
    return tuple(place for place in places if place.holder != holder or place.turn > turn)


def have_one_yield(places: Places, rank: Rank) -> Places:
    """Make the last holder in order yield its place to a job of this rank. Nothing changes if no holder comes after
    that job, or one yields already."""
    last = max((place for place in places if not place.ends), key=lambda place: place.rank, default=None)
    if last is None or last.rank <= rank or any(place.yields and not place.ends for place in places):
        return places
    return tuple(replace(place, yields=True) if place is last else place for place in places)


def take_over(places: Places, holder: str, *, until_us: int, turn: int = 0) -> Places:
    """Give this holder's place to another worker, with this turn. Calls of the former worker may still be in flight, so
    they count until its time is over. Nothing changes if the place has a later turn."""
    mine = place_of(places, holder)
    if mine is None or mine.turn > turn:
        return places
    former = replace(mine, holder=f"{holder}/{mine.until_us}", ends=True, yields=False)
    fresh = replace(mine, until_us=until_us, calls=0, ends=False, limit=Limit.RATE, turn=turn)
    return (*leave(places, holder, turn=turn), *((former,) if mine.calls else ()), fresh)


def room(places: Places, holder: str, *, wanted: int, max_in_flight: int) -> int:
    """The number of the `wanted` calls that the others leave to this holder: at most its part of all, so that no holder
    waits for another longer than one grant. A holder first in line without calls counts as one."""
    mine, others = place_of(places, holder), [place for place in places if place.holder != holder]
    has_priority = mine is not None and mine.rank == FIRST_IN_LINE
    taken = sum(place.calls or (place.rank == FIRST_IN_LINE and not has_priority) for place in others)
    sharing = 1 + sum(not place.ends for place in others)
    return max(min(wanted, max(max_in_flight // sharing, 1), max_in_flight - taken), 0)


def renew(
    places: Places, holder: str, *, until_us: int, calls: int, limit: Limit = Limit.RATE, ends: bool = False
) -> Places:
    """The places in which this holder's counts, or `ends`, at `until_us`, with this number of calls."""
    return tuple(
        replace(place, until_us=until_us, calls=calls, limit=limit, ends=ends) if place.holder == holder else place
        for place in places
    )


def place_of(places: Iterable[AccountPlace], holder: str, *, turn: int | None = None) -> AccountPlace | None:
    mine = next((place for place in places if place.holder == holder), None)
    return mine if mine is None or turn in (None, mine.turn) else None


class Share(Struct, frozen=True):
    """The recipients that a job has had, for each of its shares (stride scheduling)."""

    had: float = 0.0
    share: int = 1

    def after(self, size: int) -> "Share":
        return replace(self, had=self.had + size / self.share)


def join(running: Sequence[Share]) -> float:
    """The used share of a job that begins now: the smallest of the others, so that it has nothing to catch up."""
    return min((one.had for one in running), default=0.0)
