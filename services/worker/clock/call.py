"""Callbacks that a worker does: it makes an HTTP call, or starts a job (`start`).

    take ──> schedule ──> judge ──> call ──> settle

The scheduler has extended the occurrence's lease past the call and passed on its token. Taking renews the lease. A
worker that comes too late does nothing; if the schedule is gone, replaced or paused, it does not call. A call whose
answer was lost is repeated with the same `webhook-id`. Before the worker calls for a suspect, it stores that the call
begins; the scheduler makes poisonous occurrences dead letters.
"""

import asyncio
import time
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta

from services.worker.clock.start import JobStarts
from shared.accounts.removal import Signing
from shared.clock.rules.callbacks import ByWorker, CallTarget, HttpCallback, Undeliverable
from shared.clock.rules.following import Verdict, verdict_of
from shared.clock.rules.occurrences import Occurrence, read_owner
from shared.clock.rules.schedules import Schedule, carillon_headers
from shared.clock.settlement import Attempt, Settlement
from shared.core.errors import Unavailable
from shared.drivers.http import Blocked, Call, Outgoing, Unreachable
from shared.runtime.faults import fault
from shared.runtime.tracing import current_span, with_header
from shared.store import Store
from shared.time import DatabaseTime

_SETTLING = timedelta(seconds=10)


@dataclass
class WorkerCallbacks:
    """Does and settles callbacks for the stage `FairCalls` (`places`)."""

    store: Store
    time: DatabaseTime
    outgoing: Outgoing
    starts: JobStarts
    settlement: Settlement
    _: KW_ONLY
    call_timeout: timedelta
    signing: Signing
    _one_suspect: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def run(self, task: CallTarget) -> None:
        leased_until = await self.time.now() + self.call_timeout + _SETTLING
        occurrence = await self.store.occurrences.take(task.occurrence_id, task.token, leased_until=leased_until)
        if occurrence is None:
            return
        schedule = await self._schedule(occurrence)
        if schedule is None or not isinstance(schedule.definition.callback, ByWorker):
            return
        if not occurrence.is_suspect:
            await self._call_and_settle(occurrence, schedule, schedule.definition.callback)
        else:
            await self._call_suspect(occurrence, schedule, schedule.definition.callback)

    async def _call_suspect(self, occurrence: Occurrence, schedule: Schedule, callback: ByWorker) -> None:
        """Call one suspect at a time, so that a call which ends this process does not count against another
        occurrence."""
        async with self._one_suspect:
            if not await self.store.occurrences.begin(occurrence):
                return
            try:
                await self._call_and_settle(occurrence, schedule, callback)
            except Unavailable:
                await self.store.occurrences.acquit([occurrence])
                raise

    async def _call_and_settle(self, occurrence: Occurrence, schedule: Schedule, callback: ByWorker) -> None:
        await fault("call.before_call")
        if isinstance(callback, HttpCallback):
            attempt = await self._call(occurrence, schedule, callback)
        else:
            attempt = await self.starts.attempt(Attempt(occurrence, schedule, await self.time.now()), callback)
        await fault("call.after_call")
        await self.settlement.settle([attempt])

    async def _schedule(self, occurrence: Occurrence) -> Schedule | None:
        """The occurrence's schedule, if it may fire; otherwise the clock decides about it when the lease ends."""
        schedule_id = read_owner(occurrence.owner).id
        schedule = (await self.store.schedules.many([schedule_id])).get(schedule_id)
        # The scheduler has decided whether it is late, when it handed it over.
        match verdict_of(schedule, occurrence, self.time.reckon()):
            case Verdict.FIRE:
                return schedule
            case Verdict.VOID:
                await self.store.occurrences.complete([occurrence])
            case Verdict.HOLD:
                await self.settlement.hold_back([occurrence], [schedule_id])
            case Verdict.FOLLOW:
                assert schedule is not None
                await self.settlement.follow([(occurrence, schedule)])
            case Verdict.WAIT | Verdict.SKIP:
                pass
        return None

    async def _call(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> Attempt:
        at = await self.time.now()
        # Measured from here, so that the time for the secrets counts before a retry that the receiver asked for.
        began = time.monotonic()
        # A callback's own secret is known only to its caller and the receiver.
        secrets = (callback.secret,) if callback.secret else await self.signing.get_secrets(schedule.namespace, at)
        call = Call(
            url=callback.url,
            method=callback.method,
            headers={**with_header(callback.headers, current_span()), **carillon_headers(occurrence, schedule)},
            body=callback.payload.encode(),
            message_id=occurrence.message_id,
            timestamp=int(at.timestamp()),
            secrets=secrets,
            owner=schedule.namespace,
        )
        refusal: Undeliverable | None
        try:
            answer = await self.outgoing.call(call)
        except (Unreachable, Blocked) as error:
            refusal, retry_after = Undeliverable(str(error)), None
        else:
            refused = Undeliverable(f"HTTP {answer.status}: {answer.excerpt}".rstrip(": "))
            refusal, retry_after = None if answer.accepted else refused, answer.retry_after_seconds
        lasted = timedelta(seconds=time.monotonic() - began)
        return Attempt(occurrence, schedule, at, refusal, lasted, retry_after)
