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
from shared.domain.occurrences import HELD_BACK, Occurrence, ScheduleOwner, read_owner
from shared.domain.schedules import Schedule, ScheduleState, Verdict, carillon_headers, judge
from shared.domain.tasks import CallTarget, Task
from shared.flow import DatabaseTime, Settlement
from shared.flow.settlement import Attempt
from shared.outgoing import Answer, Blocked, Call, Outgoing, Unreachable
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)

_FRUITLESS_CLAIMS = 20
_SETTLING = timedelta(seconds=10)
# Whether it is found late was decided when it was handed over.
_WHENEVER = HELD_BACK - HELD_BACK.replace(year=1970)


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
        signing_secret: str,
    ) -> None:
        self._store = store
        self._time = time
        self._outgoing = outgoing
        self._settlement = settlement
        self._lease = call_timeout + _SETTLING
        self._signing_secret = signing_secret

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

    async def give_up(self, task: Task, reason: str) -> None:
        """Leave it to its lease: the claims are counted, and end it."""
        log.error("call cannot be made", task=repr(task), reason=reason)

    async def _schedule(self, occurrence: Occurrence) -> Schedule | None:
        """The occurrence's schedule, if it may fire; otherwise the clock decides about it when the lease ends."""
        owner = read_owner(occurrence.owner)
        assert isinstance(owner, ScheduleOwner)
        schedule = (await self._store.schedules.many([owner.schedule_id])).get(owner.schedule_id)
        match judge(schedule, occurrence, timedelta(), misfire_after=_WHENEVER):
            case Verdict.FIRE:
                return schedule
            case Verdict.VOID:
                await self._store.occurrences.complete([occurrence])
            case Verdict.HOLD:
                await self._hold(occurrence, owner.schedule_id)
            case Verdict.WAIT | Verdict.SKIP:
                pass
        return None

    async def _hold(self, occurrence: Occurrence, schedule_id: str) -> None:
        await self._store.occurrences.hold_these([occurrence])
        # Somebody may have resumed the schedule after it was read and before its occurrence was held back.
        schedule = (await self._store.schedules.many([schedule_id])).get(schedule_id)
        if schedule is not None and schedule.state is ScheduleState.ACTIVE:
            await self._store.occurrences.let_go(schedule.owner)

    async def _attempted(self, occurrence: Occurrence, schedule: Schedule, callback: HttpCallback) -> Attempt:
        at = await self._time.now()
        if occurrence.claims > _FRUITLESS_CLAIMS:
            return Attempt(occurrence, schedule, at, Undeliverable("every process that took it came to its end"))
        call = Call(
            url=callback.url,
            method=callback.method,
            headers={**callback.headers, **carillon_headers(occurrence, schedule)},
            body=callback.payload.encode(),
            message_id=occurrence.message_id,
            timestamp=int(at.timestamp()),
            secret=callback.secret or self._signing_secret,
        )
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._outgoing.call(call)
        except (Unreachable, Blocked) as error:
            return Attempt(occurrence, schedule, at, Undeliverable(str(error)))
        lasted = asyncio.get_running_loop().time() - began
        return Attempt(occurrence, schedule, at, _refusal(answer), _left_alone(answer, lasted))


def _refusal(answer: Answer) -> Undeliverable | None:
    return None if answer.accepted else Undeliverable(f"HTTP {answer.status}: {answer.excerpt}".rstrip(": "))


def _left_alone(answer: Answer, lasted: float) -> float | None:
    """Retry-After counts from the answer, an attempt's pause from its beginning."""
    return None if answer.retry_after_seconds is None else lasted + answer.retry_after_seconds
