"""Sending prepared messages by one account, each at an instant of its own.

    reserve instants ──> write ahead ──> call at the instant ──> record the answer

Three loops run side by side. One reserves instants a little ahead of time. One writes: it notes messages as `sending`
shortly before their instants, together with the answers that have come. One calls: at each instant it takes the next
message that is written ahead.

No call begins before its message is noted for certain, and none at an instant that the note does not cover. After a
crash the ledger says which messages may have been sent. A worker stops calling before another worker may judge its
messages. Only messages about to be called are noted, so few can become `unknown`; a message without an instant is given
back. An instant for which no message is ready, or at which no more calls may run, is lost: nothing catches up.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice

import structlog

from services.worker.messages.entries import BatchTaken, EntryWriter, Note, Prepared, Purpose
from services.worker.messages.pace import (
    AccountPace,
    InstantCounts,
    LostInstant,
    PlaceLost,
    PlaceYielded,
    Reserved,
    Speed,
    Wish,
)
from shared.core.errors import Unavailable
from shared.core.instants import EPOCH
from shared.messages.clock import AccountClock
from shared.messages.rules.answers import Answer, CallUnanswered, LoginRefused, NotNow
from shared.messages.rules.pacing import PaceGuard, Wait
from shared.messages.store_ledger import WRITTEN_AT_ONCE
from shared.providers import NotCalled, Provider
from shared.runtime.faults import fault
from shared.runtime.loops import pause
from shared.runtime.metrics import WRITE_AHEAD_SECONDS

log = structlog.get_logger(__name__)

_SECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_AHEAD_US = (80_000, 250_000)
_RESERVED_AHEAD_US = 400_000
_ANSWER_US = 100_000
_TOGETHER_US = 40_000
# A message noted too late for its instant has this long for another one; to note it again would take as long.
_SPARE_US = 2_000_000
_STARVED_US = 10_000
_FIRST_LASTING_US = 500_000
_LONGEST_WAIT_US = 10 * _SECOND
_LEAVING_SECONDS = 10.0
_AWAY_SECONDS = 0.2
_LOOKED_AT_SECONDS = 0.5
_MOMENT_SECONDS = 0.01
# A loop's timers have milliseconds: a shorter sleep returns at once, again and again.
_RESOLUTION_SECONDS = 0.001
_WEIGHT = 0.2  # of the newest in a running mean


class DispatchEnd(Enum):
    """Why sending ended. Except after `DONE`, uncalled messages may be left."""

    DONE = "done"
    STOPPED = "stopped"
    LATER = "later"  # nothing is granted for long: another holder may have the place meanwhile
    YIELDED = "yielded"
    FORBIDDEN = "forbidden"  # the account has lost its place, or sends nothing now
    REJECTED = "rejected"  # the provider refused the account's login
    TAKEN = "taken"  # another worker has the batch


class Dispatch:
    """Sends the messages of one batch; a call lasts `call_us` at most. Once all of them have instants, `let_next_in` is
    called, so that the next batch is prepared. `lost` counts unused instants.

    After the end `LATER`, instants are granted again at `free_us`; after `REJECTED`, `refusal` contains the provider's
    words.
    """

    def __init__(
        self,
        pace: AccountPace,
        writer: EntryWriter,
        provider: Provider,
        clock: AccountClock,
        guard: PaceGuard,
        *,
        call_us: int,
        speed: Speed,
        let_next_in: Callable[[], None] = lambda: None,
    ) -> None:
        self.free_us = 0
        self._counts = InstantCounts(speed)
        self.lost = self._counts.lost
        self.refusal = ""
        self._pace = pace
        self._writer = writer
        self._provider = provider
        self._let_next_in = let_next_in
        self._clock = clock
        self._guard = guard
        self._noted_us = call_us + _SECOND
        self._pending: deque[Prepared] = deque()
        self._ready: deque[Prepared] = deque()
        self._instants: deque[tuple[int, Reserved]] = deque()
        self._answers: deque[tuple[float, Note]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._held: set[str] = set()
        self._expects_more = False
        self._uncalled = 0
        self._calls = 0
        self._lacks_calls = False
        self._end: DispatchEnd | None = None
        self._stopping, self._reserving, self._calling, self._writing = (asyncio.Event() for _ in range(4))
        self._writing_us = _AHEAD_US[0] / 3
        self._lasting_us = float(_FIRST_LASTING_US)

    async def run(self, prepared: Iterable[Prepared], *, expects_more: bool = False) -> DispatchEnd:
        """Send these in order, until all are answered and recorded, or sending has to stop. Then no call is running,
        and uncalled messages are `unsent`. With `expects_more` it goes on until `finish`.

        Raises `Unavailable` if that cannot be recorded: the remaining notes expire by themselves.
        """
        self._expects_more = expects_more
        self.add(prepared)
        loops = [asyncio.create_task(loop()) for loop in (self._keep_reserving, self._keep_calling, self._keep_writing)]
        try:
            await asyncio.gather(*loops)
        except BatchTaken:
            self._end = DispatchEnd.TAKEN
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, *self._under_way, return_exceptions=True)
            await (self._record_late() if self._end is DispatchEnd.TAKEN else self._leave())
        return self._end or DispatchEnd.DONE

    def add(self, prepared: Iterable[Prepared]) -> None:
        """Send these too, after the others."""
        added = list(prepared)
        self._pending.extend(added)
        self._uncalled += len(added)
        self._held.update(one.message.id for one in added)
        self._wake_all()

    def finish(self) -> None:
        """Expect no more messages: end when all are answered."""
        self._expects_more = False
        self._wake_all()

    @property
    def held(self) -> AbstractSet[str]:
        """The ids of messages that are still to be called or recorded."""
        return self._held

    @property
    def uncalled(self) -> int:
        return self._uncalled

    def stop(self, end: DispatchEnd = DispatchEnd.STOPPED) -> None:
        self._end = self._end or end
        self._stopping.set()
        self._wake_all()

    @property
    def _is_over(self) -> bool:
        """Whether no further call begins."""
        return self._end is not None or not (self._uncalled or self._expects_more)

    async def _keep_reserving(self) -> None:
        while not self._is_over:
            missing = len(self._pending) + len(self._ready) - len(self._instants)
            soon_enough = self._instants[-1][0] - _RESERVED_AHEAD_US if self._instants else 0
            if missing <= 0 or soon_enough > self._clock.now_us():
                await self._rest(self._reserving, soon_enough if missing > 0 else None)
                continue
            try:
                got = await self._pace.reserve(self._wish(missing))
            except PlaceLost:
                self.stop(DispatchEnd.FORBIDDEN)
                return
            except PlaceYielded:
                self.stop(DispatchEnd.YIELDED)
                self._let_next_in()
                return
            except Unavailable as error:
                # Running calls have answers, which wait for the store too.
                log.warning("nothing can be reserved", reason=str(error))
                await pause(self._stopping, _AWAY_SECONDS)
                continue
            if isinstance(got, Wait):
                await self._outlast(got)
                continue
            await fault("message.after_grant")
            self._calls = got.calls
            self._counts.begin(got.grant.count)
            self._counts.speed.hold(got.grant.last_us, got.generation)
            self._instants.extend((got.grant.instant(index), got) for index in range(got.grant.count))
            self._wake_all()
            if got.ends:
                self._let_next_in()

    def _wish(self, missing: int) -> Wish:
        return Wish(
            count=missing,
            left=self._uncalled,
            ahead_us=self._ahead_us,
            lasting_us=int(self._lasting_us),
            claimed=max(len(self._under_way), min(self._calls, len(self._under_way) + len(self._instants))),
            limit=self._counts.limit,
            most=self._counts.speed.most,
            after_us=self._counts.speed.after_us(self._clock.generation),
        )

    async def _outlast(self, wait: Wait) -> None:
        """Wait until instants can be reserved. If that takes long, end once no granted instant is left."""
        generation = self._clock.generation
        if wait.until_us - self._clock.now_us() <= _LONGEST_WAIT_US:
            await self._sleep_until(wait.until_us, generation)
        elif self._instants:
            await self._sleep_until(self._instants[-1][0] + self._guard.late_us, generation)
        else:
            self.free_us = wait.until_us
            self.stop(DispatchEnd.LATER)

    async def _keep_calling(self) -> None:
        while not self._is_over:
            if not self._instants:
                await self._rest(self._calling, None)
                continue
            instant, reserved = self._instants[0]
            await self._sleep_until(instant, reserved.generation)
            if not self._instants or self._instants[0][0] != instant or self._end is not None:
                continue
            self._instants.popleft()
            if reserved.generation != self._clock.generation:
                self._instants.clear()
            elif why := self._why_lost(instant, reserved):
                if self._pending or self._ready:
                    self._counts.lose(why, self._clock.now_us(), reserved.grant.interval_us)
                self._reserving.set()
                if why is LostInstant.NOT_READY:
                    self._writing.set()
            else:
                call = asyncio.create_task(self._call(self._ready.popleft(), instant, reserved))
                self._under_way.add(call)
                call.add_done_callback(self._end_call)
                # The call begins before the next one is judged; otherwise a loop that lags makes late calls.
                await asyncio.sleep(0)
            if not self._instants:
                self._wake_all()

    def _end_call(self, call: asyncio.Task[None]) -> None:
        self._under_way.discard(call)
        if not self._under_way:
            self._writing.set()

    def _why_lost(self, instant: int, reserved: Reserved) -> LostInstant | None:
        if not self._is_in_time(instant, reserved):
            return LostInstant.LATE
        if len(self._under_way) >= self._calls:  # nor is anything made ready that may not be called
            return LostInstant.NO_PERMIT
        is_ready = self._ready and self._covered_until_us(self._ready[0]) >= instant
        return None if is_ready else LostInstant.NOT_READY

    def _is_in_time(self, instant: int, reserved: Reserved) -> bool:
        """Whether the instant is still ahead. An instant that another clock granted may only seem to be."""
        is_known = reserved.generation == self._clock.generation
        return self._end is None and is_known and self._clock.now_us() <= instant + self._guard.late_us

    def _covered_until_us(self, prepared: Prepared) -> int:
        """The last instant at which the call may begin, so that it ends before another worker may judge the message."""
        assert prepared.message.until is not None
        return (prepared.message.until - EPOCH) // _MICROSECOND - self._noted_us

    async def _call(self, prepared: Prepared, instant: int, reserved: Reserved) -> None:
        began, attempt = time.monotonic(), prepared.message.attempt
        try:
            given = await self._ask_provider(prepared, instant, reserved)
        except NotCalled:
            self._counts.lose(LostInstant.LATE, self._clock.now_us(), reserved.grant.interval_us)
            self._ready.appendleft(prepared)
            self._wake_all()
            return
        self._counts.use(self._clock.now_us(), reserved.grant.interval_us)
        prepared.forget_content()
        await fault("message.after_call")
        self._lasting_us += _WEIGHT * ((time.monotonic() - began) * _SECOND - self._lasting_us)
        self._uncalled -= 1
        note = Note(prepared, Purpose.ANSWER, given=given, attempt=attempt, at=self.now())
        self._answers.append((time.monotonic(), note))
        if len(self._answers) in {1, WRITTEN_AT_ONCE} or self._lacks_calls or not self._uncalled:
            self._wake_all()
        match given:
            case LoginRefused(detail):
                self.refusal = self.refusal or detail
                self.stop(DispatchEnd.REJECTED)
            case NotNow(too_fast=True, retry_after=retry_after):
                self._instants.clear()
                await self._slow_down(instant, retry_after)
                self._instants.clear()  # what was granted meanwhile lies within the pause
                self._wake_all()
            case _:
                pass

    async def _ask_provider(self, prepared: Prepared, instant: int, reserved: Reserved) -> Answer:
        message = prepared.message
        key = f"{message.id}~{message.attempt}"
        await fault("message.before_bytes")
        try:
            return await self._provider.send(
                prepared.make_content(), prepared.to, key, lambda: self._is_in_time(instant, reserved)
            )
        except NotCalled:
            raise
        except Exception:
            # An internal error: it is not known how far the call came.
            log.exception("a provider failed", message=message.id)
            return CallUnanswered("our side failed")

    async def _slow_down(self, instant: int, retry_after: timedelta | None) -> None:
        try:
            await self._pace.slow_down(began_us=instant, retry_after=retry_after)
        except Unavailable as error:
            log.warning("the account is not slowed down", reason=str(error))

    async def _keep_writing(self) -> None:
        while not self._is_over or self._answers or self._under_way:
            notes = [*self._take_useless(), *self._take_due()]
            if notes or self._has_to_record:
                await self._write([*notes, *self._take_answers()])
            else:
                await self._rest(self._writing, self._next_write_us())

    @property
    def _has_to_record(self) -> bool:
        """Whether answers are many, or have waited."""
        if len(self._answers) >= WRITTEN_AT_ONCE:
            return True
        return bool(self._answers) and self._answer_waits_us <= 0

    @property
    def _answer_waits_us(self) -> int:
        """How long the first answer still waits for others. Not by the account's clock, which may be set back."""
        return int((self._answers[0][0] - time.monotonic()) * _SECOND) + _ANSWER_US

    def _take_due(self) -> list[Note]:
        """The messages to write ahead, if one is needed: those whose instant is near and that may be called then."""
        known, soon = len(self._ready), self._clock.now_us() + self._ahead_us
        if self._end is not None or len(self._instants) <= known or self._instants[known][0] > soon:
            return []
        due = sum(at <= soon + _TOGETHER_US for at, _ in islice(self._instants, known, known + WRITTEN_AT_ONCE))
        # Calls that end before the instant are free by then.
        free = int(self._calls * (1 + self._ahead_us / max(self._lasting_us, 1))) - len(self._under_way) - known
        self._lacks_calls = free < due
        wanted = min(due, free)
        until = _ceil_ms(self._instants[-1][0] + _SPARE_US + self._noted_us)
        return [
            Note(self._pending.popleft(), Purpose.AHEAD, until=until, at=self.now())
            for _ in range(min(max(wanted, 0), len(self._pending)))
        ]

    def _take_useless(self) -> list[Note]:
        """Messages written ahead in vain: their notes cover no present or future instant."""
        first = self._instants[0][0] if self._instants else self._clock.now_us()
        useless = []
        while self._ready and self._covered_until_us(self._ready[0]) < first:
            useless.append(Note(self._ready.popleft(), Purpose.BACK))
        return useless

    def _take_answers(self) -> list[Note]:
        return [self._answers.popleft()[1] for _ in range(min(len(self._answers), WRITTEN_AT_ONCE))]

    async def _write(self, notes: list[Note], *, patience_seconds: float | None = None) -> None:
        """While the store is away no message is ready, so no call begins."""
        purposes = {note.purpose for note in notes}
        if Purpose.ANSWER in purposes:
            await fault("message.before_record")
        began = time.monotonic()
        try:
            await self._writer.write(notes, patience_seconds=patience_seconds)
        except (BatchTaken, asyncio.CancelledError):
            # Written or not: recording an answer twice changes nothing.
            self._answers.extendleft((0, note) for note in notes if note.purpose is Purpose.ANSWER)
            raise
        if Purpose.AHEAD in purposes:
            WRITE_AHEAD_SECONDS.observe(time.monotonic() - began)
            await fault("message.after_write_ahead")
        if Purpose.ANSWER in purposes:
            await fault("message.after_record")
        self._writing_us += _WEIGHT * ((time.monotonic() - began) * _SECOND - self._writing_us)
        back = []
        for note in notes:
            if note.purpose is Purpose.ANSWER:
                self._held.discard(note.prepared.message.id)
            elif self._writer.is_ours(note.prepared):
                self._ready.append(note.prepared)
            elif self._writer.is_to_be_sent(note.prepared):
                back.append(note.prepared)
            else:
                self._uncalled -= 1  # a callback has reported its result, or a caller has cancelled it
                self._held.discard(note.prepared.message.id)
        self._pending.extendleft(reversed(back))
        self._wake_all()

    def _next_write_us(self) -> int | None:
        """The next write, if nothing happens before: an answer has waited, an instant comes near, or a note covers no
        instant any more."""
        moments = [self._clock.now_us() + self._answer_waits_us] if self._answers else []
        if self._ready and not self._instants and self._end is None:
            moments.append(self._covered_until_us(self._ready[0]) + 1)
        if self._pending and len(self._instants) > len(self._ready):
            near = self._instants[len(self._ready)][0] - self._ahead_us
            moments.append(max(near, self._clock.now_us() + _STARVED_US))
        return min(moments, default=None)

    async def _record_late(self) -> None:
        """Record the answers to finished calls after another worker has taken the batch."""
        while notes := self._take_answers():
            await self._writer.record_late(notes)

    async def _leave(self) -> None:
        """Record answers, and give back uncalled messages."""
        ready, self._ready = list(self._ready), deque()
        notes = [Note(prepared, Purpose.BACK) for prepared in ready]
        while notes or self._answers:
            await self._write([*notes, *self._take_answers()], patience_seconds=_LEAVING_SECONDS)
            notes = []
        firsts = {reserved.grant.seq: (reserved.grant, instant) for instant, reserved in reversed(self._instants)}
        for grant, first in firsts.values():
            used = sum(grant.instant(index) < first for index in range(grant.count))
            if not await self._pace.give_back(grant, used=used):
                return

    @property
    def _ahead_us(self) -> int:
        shortest, longest = _AHEAD_US
        return int(min(max(3 * self._writing_us, shortest), longest))

    def _wake_all(self) -> None:
        for event in (self._reserving, self._calling, self._writing):
            event.set()

    async def _rest(self, event: asyncio.Event, until_us: int | None) -> None:
        """Wait until this instant, or until something has changed."""
        seconds = None if until_us is None else max(until_us - self._clock.now_us(), 0) / _SECOND
        await pause(event, seconds)
        event.clear()

    async def _sleep_until(self, instant_us: int, generation: int) -> None:
        """Sleep until then, until the dispatch stops, or until the clock has a new generation."""
        while (seconds := (instant_us - self._clock.now_us()) / _SECOND) > 0:
            if self._stopping.is_set() or generation != self._clock.generation:
                return
            if seconds < _MOMENT_SECONDS:
                await asyncio.sleep(max(seconds, _RESOLUTION_SECONDS))
            else:
                await pause(self._stopping, min(seconds, _LOOKED_AT_SECONDS))

    def now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self._clock.now_us() // 1_000)


def _ceil_ms(microseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=-(-microseconds // 1_000))
