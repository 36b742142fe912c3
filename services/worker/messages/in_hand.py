"""The batches of messages that this worker has in hand, and a look at their jobs four times a second.

So a pause or a stop acts within a second's worth of messages, and other workers see that the batches are not lost. One
query serves all of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog
from msgspec import Struct

from services.worker.messages.dispatch import Dispatch, DispatchEnd
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Gate, Standing, gate
from shared.messages.halting import BounceBreaker
from shared.messages.store_ledger import WritingSession
from shared.runtime.clock import Clock
from shared.store import Store

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.25
_SIGN_SECONDS = 2.0
_SILENT_SECONDS = 2.5 * _SIGN_SECONDS
_COUNT_SECONDS = 1.0
# In sequence, hundreds of signs would take longer than other workers wait for one.
_SIGNS_AT_ONCE = 16
_LONGEST_SECONDS, _CROWDED_SECONDS = 300.0, 30.0


async def falls_silent(store: Store, batch: Batch) -> bool:
    """Whether the batch's owner shows no sign of life within some seconds. An owner that has only lost the broker goes
    on."""
    if batch.changed_at is None:
        return False
    while (quiet := (await store.now() - batch.changed_at).total_seconds()) < _SILENT_SECONDS:
        await asyncio.sleep(_SILENT_SECONDS - quiet)
        seen = await store.batches.get(batch.job_id, batch.ordinal)
        if seen is None or seen.changed_at != batch.changed_at:
            return False
    return True


class BatchInHand(Struct, eq=False):
    """A batch that this worker owns, and its dispatch while it is being sent."""

    batch: Batch
    session: WritingSession
    began_at: float
    dispatch: Dispatch | None = None

    def stop(self, end: DispatchEnd = DispatchEnd.STOPPED) -> None:
        if self.dispatch is not None:
            self.dispatch.stop(end)


class BatchesInHand:
    """Watches the batches of this worker. Once it has as many as it can, each batch stays only for a short time, so
    that batches of slow accounts do not block all others."""

    def __init__(self, store: Store, bounces: BounceBreaker, clock: Clock, *, most: int) -> None:
        self._most = most
        self._store = store
        self._bounces = bounces
        self._clock = clock
        self._held: dict[str, BatchInHand] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether this process ends: nothing more is begun."""
        return self._stopping

    @contextmanager
    def hold(self, batch: Batch, session: WritingSession) -> Iterator[BatchInHand]:
        """Watch a batch while it is in hand."""
        held = BatchInHand(batch, session, asyncio.get_running_loop().time())
        self._held[batch.id] = held
        if not self._watching:
            looks = (
                (self._look_once, _LOOK_SECONDS),
                (self._show_signs, _LOOK_SECONDS),
                (self._look_for_bounces, _COUNT_SECONDS),
            )
            self._watching = [asyncio.create_task(self._repeat(look, seconds)) for look, seconds in looks]
        try:
            yield held
        finally:
            del self._held[batch.id]
            if not self._held:
                for watching in self._watching:
                    watching.cancel()
                self._watching = []

    def stop(self) -> None:
        self._stopping = True
        for held in self._held.values():
            held.stop()

    async def _repeat(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await look()
            except Unavailable as error:
                log.warning("the jobs in hand cannot be read", reason=str(error))
            except Exception:
                # Without a look no pause would act any more, unnoticed.
                log.exception("the batches in hand cannot be looked at")

    async def _look_once(self) -> None:
        held = list(self._held.values())
        standings = await self._store.message_jobs.get_standings(list({one.batch.job_id for one in held}))
        longest = _LONGEST_SECONDS if len(held) < self._most else _CROWDED_SECONDS
        latest = asyncio.get_running_loop().time() - longest
        for one in held:
            if one.began_at < latest or not self._may_go_on(standings.get(one.batch.job_id)):
                one.stop()

    async def _show_signs(self) -> None:
        """Make an empty write for each batch without a recent write: a sign of life. It uses the batch's own session,
        because any other would wait for an open transaction of the batch."""
        now, room = time.monotonic(), asyncio.Semaphore(_SIGNS_AT_ONCE)

        async def show(held: BatchInHand) -> None:
            async with room:
                if self._held.get(held.batch.id) is held:
                    await self._store.messages.write(held.batch.id, held.batch.owner, [], held.session)

        quiet = [held for held in self._held.values() if now - held.session.wrote_at > _SIGN_SECONDS]
        shown = await asyncio.gather(*map(show, quiet), return_exceptions=True)
        if failed := [each for each in shown if isinstance(each, Exception)]:
            raise failed[0]

    async def _look_for_bounces(self) -> None:
        for job_key in {held.batch.job_id for held in self._held.values()}:
            await self._bounces.look(job_key)

    def _may_go_on(self, standing: Standing | None) -> bool:
        return standing is not None and gate(standing, self._clock.now_ns()) is Gate.OPEN
