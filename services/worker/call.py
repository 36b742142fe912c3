"""The caller: makes one HTTP callback.

    take ──> schedule ──> judge ──> call ──> settle

The scheduler has moved the entry's lease past the call and passed on its token. Taking renews the lease; whoever comes
too late, or finds the schedule gone, replaced or paused, does nothing. A call whose answer was lost is made again,
with the same `webhook-id`.
"""

import asyncio
from datetime import timedelta

import structlog

from shared.domain.callbacks import HttpCallback
from shared.domain.messages import Undeliverable
from shared.domain.occurrences import Occurrence, ScheduleOwner, read_owner
from shared.domain.schedules import Schedule, Verdict, carillon_headers, stands
from shared.domain.tasks import CallTarget, Task
from shared.flow import DatabaseTime, Settlement, Signing
from shared.flow.settlement import Attempt, not_attempted
from shared.outgoing import Answer, Blocked, Call, Outgoing, Unreachable
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)

_SETTLING = timedelta(seconds=10)


class Caller:
    """The stage behind `sched.call`."""

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

    async def __call__(self, task: Task) -> None:
        """Make the call, if it is still to be made. Raises `Unavailable` where the store is away."""
        assert isinstance(task, CallTarget)
        leased_until = await self._time.now() + self._lease
        occurrence = await self._store.occurrences.take(task.occurrence_id, task.token, leased_until=leased_until)
        if occurrence is None:
            return
        schedule = await self._schedule(occurrence)
        if schedule is None or not isinstance(schedule.definition.callback, HttpCallback):
            return
        await fault("call.before_call")
        attempt = await self._attempted(occurrence, schedule, schedule.definition.callback)
        await fault("call.after_call")
        await self._settlement.settle([attempt])

    async def put_off(self, task: Task) -> None:
        """Let the message go: when the lease ends, the entry is handed out again."""

    async def give_up(self, task: Task, reason: str) -> None:
        """Leave it to its lease: the claims are counted, and end it."""
        log.error("call cannot be made", task=repr(task), reason=reason)

    async def _schedule(self, occurrence: Occurrence) -> Schedule | None:
        """The occurrence's schedule, if it may fire; otherwise the clock decides about it when the lease ends."""
        owner = read_owner(occurrence.owner)
        assert isinstance(owner, ScheduleOwner)
        schedule = (await self._store.schedules.many([owner.schedule_id])).get(owner.schedule_id)
        # Whether it is found late was decided when it was handed over.
        match stands(schedule, occurrence, self._time.carried()):
            case Verdict.FIRE:
                return schedule
            case Verdict.VOID:
                await self._store.occurrences.complete([occurrence])
            case Verdict.HOLD:
                await self._settlement.hold_back([occurrence], [owner.schedule_id])
            case Verdict.WAIT | Verdict.SKIP:
                pass
        return None

    async def _attempted(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> Attempt:
        at = await self._time.now()
        if occurrence.deadly:
            return not_attempted(occurrence, schedule, at)
        # A secret of the callback's own is between its caller and the receiver.
        secrets = (callback.secret,) if callback.secret else await self._signing.secrets(schedule.namespace, at)
        call = Call(
            url=callback.url,
            method=callback.method,
            headers={**callback.headers, **carillon_headers(occurrence, schedule)},
            body=callback.payload.encode(),
            message_id=occurrence.message_id,
            timestamp=int(at.timestamp()),
            secrets=secrets,
        )
        began = asyncio.get_running_loop().time()
        refusal: Undeliverable | None
        try:
            answer = await self._outgoing.call(call)
        except (Unreachable, Blocked) as error:
            refusal, retry_after = Undeliverable(str(error)), None
        else:
            refusal, retry_after = _refusal(answer), answer.retry_after_seconds
        lasted = timedelta(seconds=asyncio.get_running_loop().time() - began)
        return Attempt(occurrence, schedule, at, refusal, lasted, retry_after)


def _refusal(answer: Answer) -> Undeliverable | None:
    return None if answer.accepted else Undeliverable(f"HTTP {answer.status}: {answer.excerpt}".rstrip(": "))
