"""The batches of messages that this worker has in hand, and a look at their jobs four times a second.

So a pause or a stop acts within a second's worth of messages, and whoever looks at the batches sees that they are not
lost. One query serves all of them.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from msgspec import Struct

from services.worker.messages.dispatch import Dispatch, DispatchEnd
from shared.domain.errors import Unavailable
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.jobs import Gate, Standing, gate
from shared.flow.messages.halting import BounceBreaker
from shared.runtime.clock import Clock
from shared.store import Store
from shared.store.messages.ledger import WritingSession

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.25
_SIGN_SECONDS = 2.0
_LOOKS_PER_COUNT = 4
_LONGEST_SECONDS, _CROWDED_SECONDS = 300.0, 30.0


class BatchInHand(Struct, eq=False):
    """A batch that this worker owns, and what sends it, once it is being sent."""

    batch: Batch
    session: WritingSession
    began_at: float
    dispatch: Dispatch | None = None

    def stop(self, end: DispatchEnd = DispatchEnd.STOPPED) -> None:
        """Begin no further call."""
        if self.dispatch is not None:
            self.dispatch.stop(end)


class BatchesInHand:
    """Watches over the batches. Where there are as many as this worker can have, none stays for long: those of slow
    accounts would keep out all others."""

    def __init__(self, store: Store, bounces: BounceBreaker, clock: Clock, *, most: int) -> None:
        self._most = most
        self._store = store
        self._bounces = bounces
        self._clock = clock
        self._held: dict[str, BatchInHand] = {}
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether this process ends: nothing more is begun."""
        return self._stopping

    @contextmanager
    def hold(self, batch: Batch, session: WritingSession) -> Iterator[BatchInHand]:
        """Watch over a batch for as long as it is in hand."""
        held = BatchInHand(batch, session, asyncio.get_running_loop().time())
        self._held[batch.id] = held
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield held
        finally:
            del self._held[batch.id]
            if not self._held and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    def stop(self) -> None:
        """Put back all that is in hand, soon: the process stops."""
        self._stopping = True
        for held in self._held.values():
            held.stop()

    async def _watch(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            looks += 1
            try:
                await self._look_once()
                if looks % _LOOKS_PER_COUNT == 0:
                    await self._look_for_bounces()
                await self._show_signs()
            except Unavailable as error:
                log.warning("nobody knows how the jobs in hand stand", reason=str(error))

    async def _look_once(self) -> None:
        held = list(self._held.values())
        standings = await self._store.message_jobs.get_standings(list({one.batch.job_id for one in held}))
        longest = _LONGEST_SECONDS if len(held) < self._most else _CROWDED_SECONDS
        latest = asyncio.get_running_loop().time() - longest
        for one in held:
            if one.began_at < latest or not self._may_go_on(standings.get(one.batch.job_id)):
                one.stop()

    async def _show_signs(self) -> None:
        """Write nothing for those batches for which nothing was written of late: that shows that we are at them. It
        goes the way of all writing: a write beside an open transaction would wait for it."""
        now = time.monotonic()
        for held in list(self._held.values()):
            if now - held.session.wrote_at > _SIGN_SECONDS:
                await self._store.messages.write(held.batch.id, held.batch.owner, [], held.session)

    async def _look_for_bounces(self) -> None:
        for job_key in {held.batch.job_id for held in self._held.values()}:
            await self._bounces.look(job_key)

    def _may_go_on(self, standing: Standing | None) -> bool:
        return standing is not None and gate(standing, self._clock.now_ns()) is Gate.OPEN
