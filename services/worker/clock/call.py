"""The caller: makes one HTTP callback.

    take ──> schedule ──> judge ──> call ──> settle

The scheduler has extended the occurrence's lease past the call and passed on its token. Taking renews the lease; a
caller that comes too late, or finds the schedule gone, replaced or paused, does nothing. A call whose answer was lost
is repeated with the same `webhook-id`. Before a suspect is called, the begin of its call is stored; the scheduler makes
poisonous occurrences dead letters.
"""

import asyncio
import time
from datetime import timedelta

import structlog

from shared.domain.clock.callbacks import HttpCallback
from shared.domain.clock.deliveries import Undeliverable
from shared.domain.clock.occurrences import Occurrence, read_owner
from shared.domain.clock.schedules import Schedule, Verdict, carillon_headers, stands
from shared.domain.clock.tasks import CallTarget
from shared.domain.errors import Unavailable
from shared.flow.accounts.signing import Signing
from shared.flow.clock.settlement import Attempt, Settlement
from shared.flow.time import DatabaseTime
from shared.outgoing import Answer, Blocked, Call, Outgoing, Unreachable
from shared.runtime.faults import fault
from shared.runtime.tracing import current_span, with_header
from shared.store import Store

log = structlog.get_logger(__name__)

_SETTLING = timedelta(seconds=10)


class HttpCaller:
    """Makes and settles calls for the stage `services.worker.clock.places.FairCalls`."""

    def __init__(
        self,
        store: Store,
        time: DatabaseTime,
        outgoing: Outgoing,
        settlement: Settlement,
        *,
        call_timeout: timedelta,
        signing: Signing,
    ) -> None:
        self._store = store
        self._time = time
        self._outgoing = outgoing
        self._settlement = settlement
        self._lease = call_timeout + _SETTLING
        self._signing = signing
        self._one_suspect = asyncio.Lock()

    async def run(self, task: CallTarget) -> None:
        """Make the call if it is still due."""
        leased_until = await self._time.now() + self._lease
        occurrence = await self._store.occurrences.take(task.occurrence_id, task.token, leased_until=leased_until)
        if occurrence is None:
            return
        schedule = await self._schedule(occurrence)
        if schedule is None or not isinstance(schedule.definition.callback, HttpCallback):
            return
        if not occurrence.is_suspect:
            await self._call_and_settle(occurrence, schedule, schedule.definition.callback)
        else:
            await self._call_suspect(occurrence, schedule, schedule.definition.callback)

    async def put_off(self, task: CallTarget) -> None:
        """Drop the message: when the lease ends, the occurrence is handed out again."""

    async def give_up(self, task: CallTarget, reason: str) -> None:
        """Leave the occurrence to its lease: claims make it a suspect, and a suspect whose calls never end becomes a
        dead letter."""
        log.error("call cannot be made", task=repr(task), reason=reason)

    async def _call_suspect(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> None:
        """Call one suspect at a time, so that a call which ends this process does not count against another
        occurrence."""
        async with self._one_suspect:
            if not await self._store.occurrences.begin(occurrence):
                return
            try:
                await self._call_and_settle(occurrence, schedule, callback)
            except Unavailable:
                await self._store.occurrences.acquit([occurrence])
                raise

    async def _call_and_settle(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> None:
        await fault("call.before_call")
        attempt = await self._call(occurrence, schedule, callback)
        await fault("call.after_call")
        await self._settlement.settle([attempt])

    async def _schedule(self, occurrence: Occurrence) -> Schedule | None:
        """The occurrence's schedule, if it may fire; otherwise the clock decides about it when the lease ends."""
        schedule_id = read_owner(occurrence.owner).id
        schedule = (await self._store.schedules.many([schedule_id])).get(schedule_id)
        # The scheduler has decided whether it is late, when it handed it over.
        match stands(schedule, occurrence, self._time.reckon()):
            case Verdict.FIRE:
                return schedule
            case Verdict.VOID:
                await self._store.occurrences.complete([occurrence])
            case Verdict.HOLD:
                await self._settlement.hold_back([occurrence], [schedule_id])
            case Verdict.WAIT | Verdict.SKIP:
                pass
        return None

    async def _call(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> Attempt:
        at = await self._time.now()
        # Measured from here, so that the time for the secrets counts before a retry that the receiver asked for.
        began = time.monotonic()
        # A callback's own secret is known only to its caller and the receiver.
        secrets = (callback.secret,) if callback.secret else await self._signing.get_secrets(schedule.namespace, at)
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
            answer = await self._outgoing.call(call)
        except (Unreachable, Blocked) as error:
            refusal, retry_after = Undeliverable(str(error)), None
        else:
            refusal, retry_after = _refusal(answer), answer.retry_after_seconds
        lasted = timedelta(seconds=time.monotonic() - began)
        return Attempt(occurrence, schedule, at, refusal, lasted, retry_after)


def _refusal(answer: Answer) -> Undeliverable | None:
    return None if answer.accepted else Undeliverable(f"HTTP {answer.status}: {answer.excerpt}".rstrip(": "))
