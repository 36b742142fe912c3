"""What callers do with schedules: make, replace, pause, resume, remove, fire by hand, and retry dead letters.

A schedule goes in by three steps: its document (not `materialised`), its occurrences, the mark that all are there.
Nothing fires before the mark, so the second step can be done again. A process that died leaves the first or second;
a repeated request, or upkeep, then takes the schedule over **under a new generation**: if the first one wakes up after
all, its occurrences belong to nobody. Replacing is the same with another definition.
"""

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.errors import Conflict, Invalid, Refused
from shared.domain.occurrences import Kind, Occurrence, once
from shared.domain.outcomes import DeadLetter, outcome_id
from shared.domain.recurrence import Cron, Every
from shared.domain.schedules import (
    Definition,
    Schedule,
    ScheduleState,
    digest,
    divided,
    last_due,
    occurrences,
    schedule_id,
    spread,
)
from shared.flow.time import DatabaseTime
from shared.runtime.faults import fault
from shared.store import Store

_OTHERS_SECONDS = 1.0
_LOOK_SECONDS = 0.05


class Wanted(Struct, frozen=True):
    """What a caller asks for under a key."""

    namespace: str
    key: str
    definition: Definition

    @property
    def id(self) -> str:
        """The schedule's id."""
        return schedule_id(self.namespace, self.key)


class Accepted(Struct, frozen=True):
    """A schedule with all of its occurrences. `skipped` are instants that were past when it was made."""

    schedule: Schedule
    created: bool = False
    changed: bool = False
    skipped: tuple[datetime, ...] = ()


Answer = Accepted | Refused


class ScheduleFlow:
    """The moves of a schedule. Each is safe to repeat; all raise `Unavailable`."""

    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def now(self) -> datetime:
        """The database's time."""
        return await self._time.now()

    async def accept(self, wanted: Sequence[Wanted]) -> list[Answer]:
        """Make schedules, however many in three round trips; an answer for each, in their order.

        The same content under a key that exists changes nothing; another one is a `Conflict`. A list of which no
        instant lies ahead is `Invalid`, unless it is there already.
        """
        now = await self._time.now()
        firsts: dict[str, Wanted] = {}
        for each in wanted:
            firsts.setdefault(each.id, each)
        answers = await self._made(list(firsts.values()), now)
        return [answers[each.id] if firsts[each.id] is each else await self._again(each, now) for each in wanted]

    async def put(self, wanted: Wanted) -> Accepted:
        """Make the schedule, or replace what is pending of it. Raises `Invalid` where no instant lies ahead."""
        while True:
            now = await self._time.now()
            existing = await self._store.schedules.get(wanted.id)
            if existing is not None and existing.digest == digest(wanted.definition):
                return await self._existing(existing)
            fresh = _schedule(wanted, now)
            _check_ahead(wanted, now)
            if existing is None:
                answer = (await self._made([wanted], now))[wanted.id]
                if isinstance(answer, Accepted):
                    return answer
                continue  # made by somebody else meanwhile
            fresh = replace(fresh, created_at=existing.created_at, state=_state_after(existing))
            if await self._took_over(existing, fresh):
                return Accepted(fresh, changed=True, skipped=_skipped(fresh))

    async def complete(self, existing: Schedule) -> bool:
        """Take over a schedule whose occurrences are not all there; `False` when somebody else was faster."""
        return await self._took_over(existing, replace(existing, generation=_generation()))

    async def pause(self, id: str) -> Schedule | None:
        """Hold the schedule; `None` when there is none. Raises `Conflict` for a finished one."""
        schedule = await self._moved(id, to=ScheduleState.PAUSED)
        if schedule is not None:
            await fault("schedule.after_pause")
            await self._store.occurrences.hold(schedule.owner)
            await self._let_go_if_active(schedule)
        return schedule

    async def resume(self, id: str) -> Schedule | None:
        """Let the schedule go on; what came due meanwhile is dealt with by its misfire rule. As `pause`."""
        schedule = await self._moved(id, to=ScheduleState.ACTIVE)
        if schedule is not None:
            await fault("schedule.after_resume")
            await self._store.occurrences.let_go(schedule.owner)
        return schedule

    async def remove(self, id: str) -> bool:
        """Forget the schedule and all that is pending of it; `False` when there is none."""
        removed = await self._store.schedules.remove(id)
        if removed is None:
            return False
        await fault("schedule.after_remove")
        # Only of this generation: the key may be in use again by now.
        await self._store.occurrences.remove_of(removed.owner, generation=removed.generation)
        return True

    async def cancel(self, id: str, instant: datetime) -> bool:
        """Forget one pending instant, given as the definition has it or as it was delayed; `False` when there is
        none."""
        schedule = await self._store.schedules.get(id)
        if schedule is None:
            return False
        if schedule.definition.recurrence is not None:
            raise Conflict("an instant of a recurrence cannot be taken out: pause it, or replace it", field="timestamp")
        delayed = instant + spread(schedule.definition, schedule.key)
        due = delayed if instant in schedule.definition.instants else instant
        pending = once(schedule.owner, schedule.generation, due, accepted_at=schedule.accepted_at)
        return await self._store.occurrences.remove(pending.id)

    async def fire(self, id: str, *, at: datetime | None = None) -> Occurrence | None:
        """Have the callback done once, now; `None` when there is no such schedule.

        A repeated request gives the moment of the first one, `at`: what was done then is not done again.
        """
        schedule = await self._store.schedules.get(id)
        if schedule is None:
            return None
        now = await self._time.now()
        asked = once(schedule.owner, schedule.generation, at or now, accepted_at=now, kind=Kind.ASKED)
        if at is None or not await self._store.outcomes.has(outcome_id(asked, 1)):
            await self._store.occurrences.add([asked])
        return asked

    async def retry(self, letters: Sequence[DeadLetter]) -> list[str]:
        """Have these instants attempted again, with what their schedules say now: the ids of those whose schedules
        exist."""
        schedules = await self._store.schedules.many([letter.schedule_id for letter in letters])
        possible = [letter for letter in letters if letter.schedule_id in schedules]
        now = await self._time.now()
        await self._store.occurrences.add([_revived(schedules[letter.schedule_id], letter, now) for letter in possible])
        await self._store.dead_letters.remove([letter.id for letter in possible])
        return [letter.id for letter in possible]

    async def _made(self, wanted: Sequence[Wanted], now: datetime) -> dict[str, Answer]:
        """Insert; those whose key is taken are compared with what is there."""
        answers: dict[str, Answer] = {}
        fresh: list[Schedule] = []
        for each in wanted:
            try:
                _check_ahead(each, now)
            except Invalid as error:
                existing = await self._store.schedules.get(each.id)
                same = existing is not None and existing.digest == digest(each.definition)
                answers[each.id] = await self._existing(existing) if existing is not None and same else error
            else:
                fresh.append(_schedule(each, now))
        taken = await self._store.schedules.add(fresh) if fresh else set()
        await fault("schedule.after_insert")
        mine = [schedule for schedule in fresh if schedule.id not in taken]
        await self._materialise(mine)
        answers |= {each.id: Accepted(each, created=True, skipped=_skipped(each)) for each in mine}
        for each in wanted:
            if each.id in taken:
                answers[each.id] = await self._again(each, now)
        return answers

    async def _again(self, wanted: Wanted, now: datetime) -> Answer:
        """The answer to a request whose key is taken."""
        existing = await self._store.schedules.get(wanted.id)
        if existing is None:
            return (await self._made([wanted], now))[wanted.id]
        if existing.digest != digest(wanted.definition):
            return Conflict("a schedule with this key and another content exists", field="key", value=wanted.key)
        return await self._existing(existing)

    async def _existing(self, existing: Schedule) -> Accepted:
        """A schedule as it is, once all its occurrences are there: whoever makes it may have died."""
        deadline = asyncio.get_running_loop().time() + _OTHERS_SECONDS
        while not existing.materialised:
            if asyncio.get_running_loop().time() > deadline:
                await self.complete(existing)
            else:
                await asyncio.sleep(_LOOK_SECONDS)
            found = await self._store.schedules.get(existing.id)
            if found is None:
                break
            if found.generation != existing.generation:
                # Somebody has just taken it over: without patience with each other, several would go on for ever.
                deadline = asyncio.get_running_loop().time() + _OTHERS_SECONDS
            existing = found
        return Accepted(existing, skipped=_skipped(existing))

    async def _took_over(self, existing: Schedule, fresh: Schedule) -> bool:
        fresh = replace(fresh, materialised=False)
        if not await self._store.schedules.replace(fresh, generation=existing.generation):
            return False
        await fault("schedule.after_replace")
        await self._store.occurrences.remove_of(existing.owner, generation=existing.generation)
        await self._materialise([fresh])
        return True

    async def _materialise(self, schedules: Sequence[Schedule]) -> None:
        if not schedules:
            return
        for some in _in_steps([each for schedule in schedules for each in occurrences(schedule)]):
            await self._store.occurrences.add(some)
        await fault("schedule.after_occurrences")
        # Whoever replaced or removed one meanwhile has the last word about it.
        await self._store.schedules.materialised(schedules)

    async def _let_go_if_active(self, schedule: Schedule) -> None:
        """Somebody may have resumed it after it was paused and before its occurrences were held back."""
        now = await self._store.schedules.many([schedule.id])
        if any(each.state is ScheduleState.ACTIVE for each in now.values()):
            await self._store.occurrences.let_go(schedule.owner)

    async def _moved(self, id: str, *, to: ScheduleState) -> Schedule | None:
        only = frozenset({ScheduleState.ACTIVE, ScheduleState.PAUSED})
        moved = await self._store.schedules.move(id, to=to, only=only)
        if moved is None and await self._store.schedules.get(id) is not None:
            raise Conflict("the schedule has finished", field="state", value=ScheduleState.FINISHED.value)
        return moved


def _schedule(wanted: Wanted, now: datetime) -> Schedule:
    return Schedule(
        id=wanted.id,
        namespace=wanted.namespace,
        key=wanted.key,
        generation=_generation(),
        digest=digest(wanted.definition),
        definition=wanted.definition,
        created_at=now,
        accepted_at=now,
        last_due=last_due(wanted.definition, wanted.key),
    )


def _state_after(replaced: Schedule) -> ScheduleState:
    """A pause outlives what is replaced."""
    return ScheduleState.PAUSED if replaced.state is ScheduleState.PAUSED else ScheduleState.ACTIVE


def _check_ahead(wanted: Wanted, now: datetime) -> None:
    if not occurrences(_schedule(wanted, now)):
        raise Invalid("no instant lies ahead", field=_kind_field(wanted.definition))


def _kind_field(definition: Definition) -> str:
    match definition.recurrence:
        case None:
            return "schedules"
        case Cron(ends_at=ends_at) | Every(ends_at=ends_at) if ends_at is not None:
            return "ends_at"
        case Cron():
            return "cron"
        case Every():
            return "every"


def _skipped(schedule: Schedule) -> tuple[datetime, ...]:
    return tuple(divided(schedule.definition, schedule.accepted_at)[1])


def _revived(schedule: Schedule, letter: DeadLetter, now: datetime) -> Occurrence:
    again = once(schedule.owner, schedule.generation, letter.due, accepted_at=now, kind=Kind.ASKED)
    return replace(again, fires_at=now, visible_at=now)


def _generation() -> str:
    return secrets.token_hex(8)


def _in_steps(all_: Sequence[Occurrence], size: int = 5_000) -> Iterable[Sequence[Occurrence]]:
    return (all_[start : start + size] for start in range(0, len(all_), size))
