"""Grants of an account for one holder of a place (`shared.messages.rules.pacing`), and the account's clock, which is
read every second while a batch or single messages are sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import Enum
from math import inf

import structlog
from msgspec import Struct
from msgspec.structs import replace

from shared.core.errors import Unavailable
from shared.messages.clock import LOOK_SECONDS, AccountClock
from shared.messages.rules import pacing, places
from shared.messages.rules.clocks import Reading, adopt, is_of_another_clock
from shared.messages.rules.credentials import SendOrder, Traffic
from shared.messages.rules.pacing import Grant, Limit, Pace, PaceGuard, Wait, slow_down
from shared.messages.rules.places import AccountPlace, Places
from shared.messages.store_credentials import Credentials
from shared.runtime.metrics import (
    ACCOUNT_CLOCK_ALLOWED,
    ACCOUNT_CLOCK_BOUND,
    ACCOUNTS_SLOWED,
    CLOCK_ADOPTIONS,
    GRANTS,
    INSTANTS_LOST,
)

log = structlog.get_logger(__name__)
_NOTABLE = 5
_QUICK_US = 5_000
_FEWEST_COUNTED = 20
_SECOND = 1_000_000
_SPELL_US = _SECOND // 2
_FORGOTTEN_US = 10 * _SECOND
_FIRST_MOST = 1_000.0
_SMALLEST_MOST = 100.0
_GROWTH = 1.25
_MOST_GROWTH = 3  # of what was used: a second column is more than twice a first that lost one instant


class LostInstant(Enum):
    LATE = "late"
    NOT_READY = "not_ready"
    NO_PERMIT = "no_permit"


class Speed:
    """How many calls a second this process can make by a quick account. All its batches share this: each reserves
    behind the last instant that any of them holds.

    `most` is the recent maximum. After two spells of half a second that each lost more than a tenth of their instants,
    `most` is the number used in the last one. After a spell that lost less than a twentieth, `most` grows by a quarter.
    """

    def __init__(self) -> None:
        self.most = _FIRST_MOST
        self._held = (0, 0)
        self._is_lagging = False
        self._begin(0)

    def count(self, why: LostInstant | None, now_us: int, interval_us: int) -> None:
        """Count an instant: used, if its call has ended now, or lost for the reason `why`."""
        if interval_us > _QUICK_US:
            return
        if not 0 <= now_us - self._since_us < _SPELL_US:
            self._learn()
            self._is_lagging &= 0 <= now_us - self._since_us < _FORGOTTEN_US
            self._begin(now_us)
        self._until_us = now_us
        self._used += why is None
        self._behind += why in {LostInstant.LATE, LostInstant.NOT_READY}

    def hold(self, until_us: int, generation: int) -> None:
        """Note that a batch holds instants until then, by this generation of the clock."""
        if generation >= self._held[0]:
            self._held = (generation, max(self.after_us(generation), until_us))

    def after_us(self, generation: int) -> int:
        """The last instant that a batch holds by this generation of the clock."""
        known, until_us = self._held
        return until_us if known == generation else 0

    def _begin(self, now_us: int) -> None:
        self._since_us, self._until_us, self._used, self._behind = now_us, now_us, 0, 0

    def _learn(self) -> None:
        counted, lasted_us = self._used + self._behind, self._until_us - self._since_us
        if counted < _FEWEST_COUNTED or lasted_us < _SPELL_US // 2:
            return
        used = self._used * _SECOND / lasted_us
        was_lagging, self._is_lagging = self._is_lagging, 10 * self._behind > counted
        if self._is_lagging and was_lagging:
            self.most = max(min(self.most, used), _SMALLEST_MOST)
        elif 20 * self._behind < counted:
            self.most = max(self.most, min(_GROWTH * self.most, _MOST_GROWTH * used))


class InstantCounts:
    """Counts instants: `lost` since the beginning, and separately since the last grant."""

    def __init__(self, speed: Speed) -> None:
        self.lost = dict.fromkeys(LostInstant, 0)
        self.speed = speed
        self._granted = 0
        self._before = dict(self.lost)

    def use(self, now_us: int, interval_us: int) -> None:
        self.speed.count(None, now_us, interval_us)

    def lose(self, why: LostInstant, now_us: int, interval_us: int) -> None:
        self.lost[why] += 1
        INSTANTS_LOST.labels(why.value).inc()
        self.speed.count(why, now_us, interval_us)

    def begin(self, granted: int) -> None:
        """Begin to count for a new grant."""
        self._granted = granted
        self._before = dict(self.lost)

    @property
    def limit(self) -> Limit:
        """The limit since the last grant: the rate, unless a fifth of the instants was lost."""
        lost = {why: count - self._before[why] for why, count in self.lost.items()}
        notable = max(self._granted, 1) / _NOTABLE
        if lost[LostInstant.NO_PERMIT] > notable:
            return Limit.IN_FLIGHT
        behind = lost[LostInstant.LATE] + lost[LostInstant.NOT_READY]
        return Limit.WORK if behind > notable else Limit.RATE


_TRIES = 20
_SPARE_CALLS = 4
_BUSY_US = 20_000  # an event loop has so much to do now and then that no answer is read for as long
_NO_CALLS_US = 50_000
_BRIEF_US = 100_000
_GRANTED = "granted"


class Reserved(Struct, frozen=True):
    """A grant, the calls that may run meanwhile, whether the holder needs no further grant (`ends`), and the generation
    of its clock."""

    grant: Grant
    calls: int
    ends: bool
    generation: int


class Wish(Struct, frozen=True):
    """A holder's wish: `count` instants at least `ahead_us` from now, and room for calls of `lasting_us` each, of which
    `left` remain. The calls that are `claimed` are running, or may be by earlier grants. `limit` has bounded the holder
    so far. Its process makes at most `most` calls a second and has instants until `after_us`."""

    count: int
    left: int
    ahead_us: int
    lasting_us: int
    claimed: int = 0
    limit: Limit = Limit.RATE
    most: float = inf
    after_us: int = 0


class PlaceLost(Exception):
    """The holder has lost its place, or its account sends nothing now."""


class PlaceYielded(Exception):
    """The holder has yielded its place, except for running calls."""


class AccountPace:
    """Reserves instants of one account."""

    def __init__(
        self,
        credentials: Credentials,
        clock: AccountClock,
        guard: PaceGuard,
        *,
        credential_id: str,
        holder: str,
        turn: int = 0,
        call_us: int,
        first_in_line: bool = False,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._guard = guard
        self._id = credential_id
        self._holder = holder
        self._turn = turn
        self._call_us = call_us
        self._first_in_line = first_in_line
        self._generation = clock.generation

    async def reserve(self, wish: Wish) -> Reserved | Wait:
        """Reserve instants, and room for calls, as far as other holders leave it. Raises `PlaceLost` if nothing may be
        sent any more, `PlaceYielded` if another holder comes first."""
        for _ in range(_TRIES):
            got = await self._reserve_once(wish)
            if got is not None:
                GRANTS.labels(got.limit.value if isinstance(got, Wait) else _GRANTED).inc()
                return got
        raise Unavailable("too many others change this account's pace")

    async def give_back(self, grant: Grant, *, used: int) -> bool:
        """Return the unused end of a grant. `False` if another holder has reserved behind it already."""
        traffic = await self._credentials.get_traffic(self._id)
        pace = None if traffic is None else pacing.give_back(traffic.pace, grant, used=used)
        return traffic is not None and pace is not None and await self._change(traffic, pace, traffic.places)

    async def slow_down(self, *, began_us: int, retry_after: timedelta | None) -> None:
        """Slow the account down: its provider said that this call came too fast."""
        for _ in range(_TRIES):
            traffic = await self._credentials.get_traffic(self._id)
            if traffic is None:
                return
            now = self._clock.now_us()
            pace = slow_down(traffic.pace, began_us=began_us, now_us=now, retry_after=retry_after)
            if await self._change(traffic, pace, traffic.places):
                ACCOUNTS_SLOWED.inc()
                log.warning("account slowed down", credential=self._id, share=pace.share, strikes=pace.strikes)
                return
        raise Unavailable("too many others change this account's pace")

    async def _reserve_once(self, wish: Wish) -> Reserved | Wait | None:
        """`None` if another holder was faster."""
        traffic, now, generation = await self._read(), self._clock.read(), self._clock.generation
        if now.bound_us > self._guard.clock_us:
            await self._note_clock(traffic)
            return Wait(now.now_us + _SECOND, Limit.CLOCK)
        if generation != self._generation or self._goes_by_another_clock(traffic, now):
            return await self._adopt(traffic, now, generation)
        if self._mine(traffic.places).yields:
            await self._yield_place(traffic, wish, now.now_us)
            return None
        got = self._grant(traffic, wish, now, wish.count)
        if isinstance(got, Wait):
            return await self._outlast(traffic, got, wish, now.now_us)
        known = places.drop_expired(traffic.places, now.now_us, keep=self._holder)
        calls = self._room(traffic, known, wish, got[1])
        if not calls:
            return await self._outlast(traffic, Wait(now.now_us + _NO_CALLS_US, Limit.IN_FLIGHT), wish, now.now_us)
        few = max(calls, _BRIEF_US // got[1].spacing_us)
        if calls * got[1].spacing_us < wish.lasting_us and few < got[1].count:
            # Other holders have the calls for now: instants that would be lost without calls are left to them too.
            got = self._grant(traffic, wish, now, few)
            assert not isinstance(got, Wait)
        pace, grant = got
        kept = places.renew(
            known,
            self._holder,
            until_us=grant.last_us + self._call_us + _SECOND,
            calls=max(calls, wish.claimed),
            limit=wish.limit,
            ends=grant.count == wish.count and not self._first_in_line,
        )
        mine = self._mine(kept)
        changed = await self._change(traffic, pace, kept)
        return Reserved(grant, calls, mine.ends, generation) if changed else None

    def _grant(self, traffic: Traffic, wish: Wish, now: Reading, count: int) -> tuple[Pace, Grant] | Wait:
        return pacing.reserve(
            traffic.pace,
            rate=traffic.rate,
            count=count,
            now_us=now.now_us,
            clock=now.clock,
            ahead_us=wish.ahead_us,
            guard=self._guard,
            first_in_line=self._first_in_line,
            behind=traffic.order is SendOrder.AGE and places.is_behind(traffic.places, self._holder),
            most=wish.most,
            after_us=wish.after_us,
        )

    def _room(self, traffic: Traffic, known: Places, wish: Wish, grant: Grant) -> int:
        self._mine(known)
        return places.room(
            known,
            self._holder,
            wanted=min(_SPARE_CALLS + (2 * wish.lasting_us + _BUSY_US) // grant.spacing_us, wish.left),
            max_in_flight=traffic.max_in_flight,
        )

    async def _outlast(self, traffic: Traffic, wait: Wait, wish: Wish, now_us: int) -> Wait | None:
        """Keep the place during the wait, with only the calls that are needed; `None` if another holder was faster."""
        mine = self._mine(traffic.places)
        until, calls = wait.until_us + _SECOND, min(mine.calls, wish.claimed)
        if mine.until_us >= until and (mine.calls == calls or wait.limit is not Limit.IN_FLIGHT):
            return wait
        until = max(until + self._call_us, mine.until_us)
        others = places.drop_expired(traffic.places, now_us, keep=self._holder)
        kept = tuple(replace(one, until_us=until, calls=calls) if one is mine else one for one in others)
        changed = await self._change(traffic, traffic.pace.next_seq(), kept)
        return wait if changed else None

    async def _yield_place(self, traffic: Traffic, wish: Wish, now_us: int) -> None:
        """Yield the place at once, however long running calls last; returns if another holder was faster."""
        known = places.drop_expired(traffic.places, now_us, keep=self._holder)
        until = now_us + self._call_us + _SECOND
        kept = places.renew(known, self._holder, until_us=until, calls=wish.claimed, limit=wish.limit, ends=True)
        if await self._change(traffic, traffic.pace.next_seq(), kept):
            raise PlaceYielded

    async def _note_clock(self, traffic: Traffic) -> None:
        """Show in the place that this process's clock prevents sending, unless it shows that already."""
        mine = places.place_of(traffic.places, self._holder, turn=self._turn)
        if mine is not None and mine.limit is not Limit.CLOCK:
            kept = tuple(replace(one, limit=Limit.CLOCK) if one is mine else one for one in traffic.places)
            await self._change(traffic, traffic.pace.next_seq(), kept)

    def _goes_by_another_clock(self, traffic: Traffic, now: Reading) -> bool:
        return is_of_another_clock(
            traffic.pace, clock=now.clock, rate=traffic.rate, now_us=now.now_us, guard=self._guard
        )

    async def _adopt(self, traffic: Traffic, now: Reading, generation: int) -> Wait | None:
        """Let the pace follow the clock of this process; `None` if another holder was faster."""
        pace = adopt(traffic.pace, clock=now.clock, rate=traffic.rate, now_us=now.now_us, guard=self._guard)
        if not await self._change(traffic, pace, traffic.places):
            return None
        if traffic.pace.clock:
            CLOCK_ADOPTIONS.inc()
        self._generation = generation
        return Wait(pace.free_us, Limit.CLOCK)

    async def _read(self) -> Traffic:
        traffic = await self._credentials.get_traffic(self._id)
        if traffic is None or not traffic.flows:
            raise PlaceLost
        return traffic

    async def _change(self, traffic: Traffic, pace: Pace, kept: Places) -> bool:
        return await self._credentials.change_traffic(self._id, traffic.pace.seq, pace, kept)

    def _mine(self, kept: Places) -> AccountPlace:
        """Raises `PlaceLost`."""
        mine = places.place_of(kept, self._holder, turn=self._turn)
        if mine is None:
            raise PlaceLost
        return mine


class KeptClock:
    """An `AccountClock` that costs nothing while it is unused. Nothing is granted while it may be wrong by more than
    `allowed_us`."""

    def __init__(self, clock: AccountClock, *, allowed_us: int) -> None:
        self._clock = clock
        self._allowed_us = allowed_us
        self._users = 0
        self._looking: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def keep(self) -> AsyncIterator[AccountClock]:
        """The clock, after a fresh look."""
        async with self._lock:
            if self._looking is None:
                await self._clock.look()
                self._tell()
                self._looking = asyncio.create_task(self._keep_looking())
            self._users += 1
        try:
            yield self._clock
        finally:
            self._users -= 1
            if not self._users and self._looking is not None:
                self._looking.cancel()
                self._looking = None
                ACCOUNT_CLOCK_BOUND.set(0)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._clock.look()
            except Unavailable as error:
                # The longer this lasts the less is known of the time, until nothing is granted any more.
                log.warning("the database does not tell its time", reason=str(error))
            except Exception:
                # Without a clock this worker would never send again, unnoticed.
                log.exception("the database's time cannot be read")
            self._tell()

    def _tell(self) -> None:
        ACCOUNT_CLOCK_ALLOWED.set(self._allowed_us / _SECOND)
        ACCOUNT_CLOCK_BOUND.set(self._clock.read().bound_us / _SECOND)
