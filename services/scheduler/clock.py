"""The clock claims occurrences that come due, holds them, and fires each at its own instant.

Every tick asks one question: is anything visible until the end of the look-ahead (two ticks)? Only then the shards are
claimed, in random order, each by a slice up to a moment; after a slice that was too large, the next ones end at an
earlier moment. A slice that is larger than the room in memory is read as room appears, while its lease is trusted.

A backlog is claimed last: occurrences that come due now go first, and some memory is kept for them. A namespace that
already has a quarter of the memory is a crowd: its occurrences wait behind those of the others, like a backlog.
Namespaces fire in turn. So a namespace with too many occurrences delays no other.

A lease is trusted for less than it lasts, counted from before the round trip. An occurrence that is held longer is let
go, and another scheduler claims it.

Suspects are held apart and fired one at a time, each after everything that was firing before it is settled. So nothing
else fails with a suspect, and a suspect does not fail with something else. The oldest `_SUSPECTS` are held: an
occurrence that kills its processes is among these, because it stays while others come and go. The others are let go,
which clears them of suspicion. So a crash loop with another cause leaves no backlog that is fired one by one.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from services.scheduler.hold import FairHold, Held, Hold
from shared.clock.rules.occurrences import SHARDS, Occurrence, lateness
from shared.clock.store_occurrences import Heads, Visible, fresh_token
from shared.core.errors import Unavailable
from shared.runtime.faults import fault
from shared.runtime.lifecycle import Background
from shared.runtime.loops import Backoff, Outage, pause
from shared.runtime.metrics import CLAIMED, HELD, OLDEST_VISIBLE, SUSPECTS
from shared.runtime.settings import SchedulerSettings
from shared.runtime.tracing import root
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)

_GROUP = 1_000
_GROUP_BYTES = 4 * 2**20
_GROUPS_IN_FLIGHT = 4
_CROWDED_GROUPS = 2
_SUSPECTS = 500
_PAGE = 2_000
_SLICE = 2_000
_WIDEST = timedelta(days=365)
_NARROWEST = timedelta(milliseconds=1)
_SMALL_SLICES_AT_ONCE = 8
_KEPT_FOR_NOW = 0.125
_FIRST_SPAN = timedelta(minutes=1)
# The clock looks this far back for other namespaces beside a crowd; it scans all of the crowd in that time.
_RECENT = timedelta(seconds=10)
_AWAY = Backoff(first_seconds=0.5, cap_seconds=5)


class Firing(Protocol):
    """Fires occurrences whose moment has come."""

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        """Fire these; return whether something is due again at once. No callback goes out after `trusted_until` (the
        loop's clock). After `Unavailable`, the leases decide."""


class _Slice(Struct, eq=False):
    """The occurrences that one claim has marked, read page by page. `is_late`: they are part of a backlog."""

    visible: Visible
    trusted_until: float
    is_late: bool
    token: str = field(default_factory=fresh_token)
    count: int = 0
    after: str = ""


class TickingClock(Background):
    """The component that claims, holds and fires. Any number of processes may run it."""

    def __init__(self, store: Store, time: DatabaseTime, firing: Firing, settings: SchedulerSettings) -> None:
        super().__init__("clock", self._work)
        self._store = store
        self._time = time
        self._firing = firing
        self._settings = settings
        self._lookahead = timedelta(seconds=settings.lookahead_seconds)
        # Other schedulers look ahead and claim what becomes visible by then, so a lease ends that much earlier.
        self._lease = timedelta(seconds=settings.lease_seconds) + self._lookahead
        self._tick = timedelta(seconds=settings.tick_seconds)
        self._kept_for_now = int(settings.hold_limit * _KEPT_FOR_NOW)
        early = timedelta(seconds=settings.early_seconds)
        self._hold = FairHold(settings.hold_limit, early)
        self._suspects = Hold(_SUSPECTS, early)
        self._unread: list[_Slice] = []
        self._span = _FIRST_SPAN
        self._slices_at_once = 1
        self._something = asyncio.Event()
        self._look = asyncio.Event()
        self._firings: set[asyncio.Task[None]] = set()
        self._groups: set[asyncio.Task[None]] = set()

    async def _work(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            loops = (self._ticks(), self._fire_on_time(), self._fire_suspects())
            tasks = [group.create_task(each) for each in loops]
            await stopping.wait()
            for task in tasks:
                task.cancel()
        await asyncio.gather(*self._firings, return_exceptions=True)
        await self._give_back()

    async def _ticks(self) -> None:
        tick = self._settings.tick_seconds
        outage = Outage("clock waits for the store", self._look, _AWAY, least_seconds=tick)
        while not self._stopping.is_set():
            self._look.clear()
            try:
                await self.tick()
            except Unavailable as error:
                await outage.wait(error)
            else:
                outage.end()
                await pause(self._look, tick)

    async def tick(self) -> int:
        """Claim and hold what comes due; return the number."""
        claimed = await self._read_on()
        while self._hold.room:
            now = await self._time.now()
            heads = await self._store.occurrences.heads(Visible(now + self._lookahead))
            late = 0.0 if heads is None else max((now - heads.oldest).total_seconds(), 0.0)
            OLDEST_VISIBLE.set(late)
            if heads is None:
                break
            with root("claim", lateness=late) as span:
                found = await self._claim_some(heads, now)
                span.set(occurrences=found)
            claimed += found
            if not found:
                break
        HELD.set(len(self._hold) + len(self._suspects))
        return claimed

    async def _claim_some(self, heads: Heads, now: datetime) -> int:
        """Claim what comes due, then some of the backlog or of a crowd, if there is one."""
        all_ = Visible(now + self._lookahead)
        crowds, late_since = frozenset(self._hold.crowds), now - self._tick
        if heads.oldest >= late_since and not crowds:
            return await self._claim_round(heads, all_)
        first = replace(all_, since=now - _RECENT if crowds else late_since, without=crowds)
        first_heads = await self._store.occurrences.heads(first)
        claimed = 0 if first_heads is None else await self._claim_round(first_heads, first)
        return claimed + await self._claim_round(heads, all_, is_late=True)

    async def _claim_round(self, heads: Heads, visible: Visible, *, is_late: bool = False) -> int:
        """Claim each shard up to a moment. A backlog gets one tick of time, because more comes due meanwhile."""
        visible = replace(visible, until=min(visible.until, heads.oldest + self._span))
        shards = list(range(SHARDS) if heads.shards is None else heads.shards)
        random.shuffle(shards)
        ends = asyncio.get_running_loop().time() + self._settings.tick_seconds if is_late else float("inf")
        claimed = 0
        while shards and self._room(is_late=is_late) and asyncio.get_running_loop().time() < ends:
            at_once = 1 if is_late and self._hold.is_crowded else self._slices_at_once
            group, shards = shards[:at_once], shards[at_once:]
            claimed += await self._claim(group, visible, is_late=is_late)
            if not is_late and self._has_crowd(visible):
                break
        return claimed

    def _room(self, *, is_late: bool) -> int:
        return max(self._hold.room - (self._kept_for_now if is_late else 0), 0)

    def _has_crowd(self, visible: Visible) -> bool:
        """Whether these include a crowd, which must wait behind the others."""
        return not self._hold.crowds <= visible.without

    async def _claim(self, shards: Sequence[int], visible: Visible, *, is_late: bool) -> int:
        claims = (self._claim_slice(shard, visible, is_late=is_late) for shard in shards)
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        counts = [outcome for outcome in outcomes if isinstance(outcome, int)]
        self._adapt(max(counts))
        if claimed := sum(counts):
            CLAIMED.inc(claimed)
            await fault("clock.after_claim")
            await self._read_on()
        return claimed

    async def _claim_slice(self, shard: int, visible: Visible, *, is_late: bool) -> int:
        before = asyncio.get_running_loop().time()
        leased_until = await self._time.now() + self._lease
        trusted_until = before + self._settings.lease_seconds - self._settings.firing_seconds
        slice_ = _Slice(visible, trusted_until, is_late)
        # Registered before the claim, so that a stop during the claim releases it.
        self._unread.append(slice_)
        slice_.count = await self._store.occurrences.claim(shard, slice_.token, visible, leased_until=leased_until)
        if not slice_.count:
            self._unread.remove(slice_)
        return slice_.count

    def _adapt(self, count: int) -> None:
        """Adapt to `count`, the size of the largest slice. Small slices are claimed concurrently: each costs a round
        trip."""
        self._slices_at_once = _SMALL_SLICES_AT_ONCE if count < _SLICE // _SMALL_SLICES_AT_ONCE else 1
        if count > _SLICE:
            self._span = max(self._span / 2, _NARROWEST)
        elif count < _SLICE // 4:
            self._span = min(self._span * 2, _WIDEST)

    async def _read_on(self) -> int:
        """Read claimed slices as far as there is room; return the number."""
        read = 0
        while (slice_ := self._readable()) is not None:
            if self._is_over(slice_):
                await self._store.occurrences.release_rest(slice_.token, after=slice_.after)
                self._unread.remove(slice_)
                continue
            limit = min(self._room_for(slice_), _PAGE)
            page = await self._store.occurrences.read(slice_.token, after=slice_.after, limit=limit)
            for occurrence in page:
                hold = self._suspects if occurrence.is_suspect else self._hold
                hold.add(Held(occurrence, slice_.trusted_until))
            read += len(page)
            self._something.set()
            if len(page) == limit:
                slice_.after = page[-1].id
            else:
                self._unread.remove(slice_)
            # A suspect whose attempt began would be suspect again at once, so it is left to its lease.
            await self._let_go([held.occurrence for held in self._suspects.take_excess() if not held.occurrence.begun])
        return read

    def _readable(self) -> _Slice | None:
        return next((slice_ for slice_ in self._unread if self._is_over(slice_) or self._room_for(slice_)), None)

    def _room_for(self, slice_: _Slice) -> int:
        return self._room(is_late=slice_.is_late or self._has_crowd(slice_.visible))

    def _is_over(self, slice_: _Slice) -> bool:
        """Whether to stop reading the slice: its lease ends, or much of it must wait behind the others."""
        if asyncio.get_running_loop().time() >= slice_.trusted_until:
            return True
        return not slice_.is_late and slice_.count > _SLICE and self._has_crowd(slice_.visible)

    async def _fire_on_time(self) -> None:
        while not self._stopping.is_set():
            self._something.clear()
            await self._until_due(self._hold)
            # Wait for a free group first: occurrences that come due meanwhile go along. If the hold is crowded, fewer
            # groups fire, so that the store answers others soon.
            while len(self._groups) >= (_CROWDED_GROUPS if self._hold.is_crowded else _GROUPS_IN_FLIGHT):
                await asyncio.wait(self._groups, return_when=asyncio.FIRST_COMPLETED)
            if due := self._hold.due(self._time.reckon(), _GROUP, _GROUP_BYTES):
                group = self._start(due)
                self._groups.add(group)
                group.add_done_callback(self._groups.discard)

    async def _fire_suspects(self) -> None:
        while not self._stopping.is_set():
            await self._until_due(self._suspects)
            if self._firings:
                await asyncio.wait(self._firings)
            late = self._suspects.take_expired(asyncio.get_running_loop().time())
            suspects = self._suspects.due(self._time.reckon(), 1, _GROUP_BYTES)
            SUSPECTS.inc(len(suspects))
            await asyncio.wait({self._start(late + suspects)})

    def _start(self, due: list[Held]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._fire(due))
        self._firings.add(task)
        task.add_done_callback(self._end_firing)
        return task

    async def _until_due(self, hold: Hold | FairHold) -> None:
        while True:
            due = hold.next_due
            wait = None if due is None else (due - self._time.reckon()).total_seconds()
            if wait is not None and wait <= 0:
                return
            await pause(self._something, wait)
            self._something.clear()

    async def _fire(self, due: list[Held]) -> None:
        now = asyncio.get_running_loop().time()
        trusted = [held for held in due if now < held.trusted_until]
        late = [held.occurrence for held in due if now >= held.trusted_until]
        try:
            await self._let_go(late)
            if trusted and await self._fire_all(trusted):
                self._look.set()
        except Unavailable as error:
            log.warning("what is due waits for the end of its lease", occurrences=len(due), reason=str(error))
        except Exception:
            log.exception("a group cannot be fired", occurrences=len(due))
            await self._one_by_one(trusted)

    async def _fire_all(self, group: Sequence[Held]) -> bool:
        trusted_until = min(held.trusted_until for held in group)
        due = [held.occurrence for held in group]
        traces = (occurrence.trace for occurrence in due)
        with root("fire", traces, occurrences=len(due), lateness=partial(self._lateness, due)):
            return await self._firing.fire(due, trusted_until=trusted_until)

    def _lateness(self, due: Sequence[Occurrence]) -> float:
        now = self._time.reckon()
        late = (lateness(occurrence.fires_at, occurrence.accepted_at, now, self._tick) for occurrence in due)
        return max(late).total_seconds()

    async def _one_by_one(self, group: Sequence[Held]) -> None:
        """Fire one by one, so that an unforeseen error in one does not hold up the others."""
        for held in group if len(group) > 1 else ():
            try:
                await self._fire_all([held])
            except Exception:
                occurrence = held.occurrence
                log.exception("an occurrence cannot be fired", occurrence_id=occurrence.id, owner=occurrence.owner)

    def _end_firing(self, task: "asyncio.Task[None]") -> None:
        self._firings.discard(task)
        if self._unread:
            self._look.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a group could not be fired", exc_info=error)

    async def _give_back(self) -> None:
        """Let other schedulers fire the held occurrences without waiting for the leases."""
        with suppress(Unavailable):
            await self._let_go([held.occurrence for held in [*self._hold.clear(), *self._suspects.clear()]])
            for slice_ in self._unread:
                await self._store.occurrences.release_rest(slice_.token, after=slice_.after)

    async def _let_go(self, held: Sequence[Occurrence]) -> None:
        """Release these claims: no attempt was made, and no process died of them."""
        for start in range(0, len(held), _PAGE):
            await self._store.occurrences.release(held[start : start + _PAGE])
