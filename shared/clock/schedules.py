"""The moves of callers on schedules: make, replace, pause, resume, remove, fire by hand, retry dead letters.

A schedule is stored in two steps: first its occurrences, with a new generation, then its document, which makes them
count. To replace it, the second step is a compare-and-set. If a process dies in between, occurrences without a
schedule stay: they never fire, and the clock deletes them when they are due. So no schedule is ever half stored, and
nothing needs repair. (The other order, with a final mark "all are there", took one more update of each
document, a third of the time, and needed a way to find and finish documents without a mark.)

The insert reports the keys that are taken. While recent keys were free, `accept` inserts first and does not read: the
read was one of three round trips for a small schedule, a quarter of its cost. If a recent key was taken, `accept` reads
first: a repeated request then costs one read and writes nothing.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from shared.clock.anchors import AnchorFlow
from shared.clock.calendars import find_days, find_days_of
from shared.clock.rules.calendars import Days
from shared.clock.rules.following import occurrences
from shared.clock.rules.instants import last_due, spread
from shared.clock.rules.occurrences import PARKED, Occurrence, OccurrenceKind, once
from shared.clock.rules.outcomes import DeadLetter, outcome_id
from shared.clock.rules.recurrence import Cron, Every
from shared.clock.rules.schedules import (
    COMMITTED_WITHIN,
    Definition,
    Schedule,
    ScheduleState,
    as_asked,
    digest,
    has_content,
    schedule_id,
)
from shared.clock.settlement import let_go_if_active
from shared.core.errors import Conflict, Invalid, Refused, Unavailable
from shared.core.ids import name_differences
from shared.runtime.faults import fault
from shared.runtime.loops import Turns
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.time import DatabaseTime


class Wanted(Struct, frozen=True):
    """The schedule that a caller asks for under a key. `made_by` is the id of the caller's token. Each has its own
    `trace`, because many requests may be accepted together."""

    namespace: str
    key: str
    definition: Definition
    made_by: str = ""
    trace: str = field(default_factory=current_trace)

    @property
    def id(self) -> str:
        return schedule_id(self.namespace, self.key)


class ScheduleDraft(Struct, frozen=True):
    schedule: Schedule
    occurrences: list[Occurrence]


class Made(Struct, frozen=True):
    """The fields that an Idempotency-Key remembers about the schedule of its first request."""

    generation: str
    created_at: datetime
    accepted_at: datetime


class Accepted(Struct, frozen=True):
    """A schedule that is stored with all of its occurrences. `skipped` are instants that were past when it was made."""

    schedule: Schedule
    created: bool = False
    changed: bool = False
    skipped: tuple[datetime, ...] = ()


Answer = Accepted | Refused


async def draft_all(
    wanted: Iterable[Wanted], now: datetime, days: Mapping[str, Days]
) -> tuple[list[ScheduleDraft], dict[str, Answer]]:
    """The drafts to store, and the refusals. Other coroutines run in between, because a list may have 10,000
    instants."""
    drafts: list[ScheduleDraft] = []
    refused: dict[str, Answer] = {}
    generation, turns = fresh_generation(), Turns()
    for want in wanted:
        try:
            drafts.append(draft_one(want, now, generation, days.get(want.id)))
        except Invalid as error:
            refused[want.id] = error
        await turns.give()
    return drafts, refused


def draft_one(wanted: Wanted, now: datetime, generation: str, days: Days | None = None) -> ScheduleDraft:
    schedule = _make_schedule(wanted, now, generation)
    drafted = occurrences(schedule, days)
    if all(occurrence.visible_at == PARKED for occurrence in drafted):
        raise nothing_ahead(wanted.definition)
    return ScheduleDraft(schedule, [replace(occurrence, trace=wanted.trace) for occurrence in drafted])


def _make_schedule(wanted: Wanted, now: datetime, generation: str) -> Schedule:
    return Schedule(
        id=wanted.id,
        namespace=wanted.namespace,
        key=wanted.key,
        generation=generation,
        digest=digest(wanted.definition),
        definition=wanted.definition,
        created_at=now,
        accepted_at=now,
        sweep_at=last_due(wanted.definition, wanted.key),
        made_by=wanted.made_by,
    )


def answer_taken_key(wanted: Wanted, existing: Schedule) -> Answer:
    if not has_content(existing, wanted.definition):
        differences = name_differences(as_asked(existing.definition), as_asked(wanted.definition))
        rule = f"a schedule with this key and another content exists{differences}"
        return Conflict(rule, field="key", value=wanted.key)
    return answer_unchanged(existing)


def answer_unchanged(existing: Schedule) -> Accepted:
    return Accepted(existing, skipped=skipped_of(existing))


def nothing_ahead(definition: Definition) -> Invalid:
    return Invalid("no instant lies ahead: all are past, and a schedule needs one to come", field=_field(definition))


def _field(definition: Definition) -> str:
    match definition.recurrence:
        case None:
            return "anchor" if definition.anchor else "schedules"
        case Cron(ends_at=ends_at) | Every(ends_at=ends_at) if ends_at is not None:
            return "ends_at"
        case Cron():
            return "cron"
        case Every():
            return "every"


def skipped_of(schedule: Schedule) -> tuple[datetime, ...]:
    return tuple(instant for instant in schedule.definition.instants if instant <= schedule.accepted_at)


def revive(schedule: Schedule, letter: DeadLetter, now: datetime) -> Occurrence:
    """An occurrence for the instant of a dead letter, due now."""
    again = once(schedule.owner, schedule.generation, letter.due, accepted_at=now, kind=OccurrenceKind.ASKED)
    return replace(again, id=letter.id, fires_at=now, visible_at=now, size=schedule.size)


def fresh_generation() -> str:
    """A random value that distinguishes contents under one key."""
    return secrets.token_hex(8)


_FEW = 20  # instants that are stored in vain at little cost
_STEP = 5_000


class Retried(Struct, frozen=True):
    """`again`: ids of dead letters that are tried again. `underway`: ids of letters whose instants are being attempted
    now. A letter in neither has no schedule any more."""

    again: Sequence[str]
    underway: Sequence[str] = []


class ScheduleFlow:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time
        self._anchors = AnchorFlow(store, time)
        self._keys_are_free = True

    async def now(self) -> datetime:
        return await self._time.now()

    async def accept(self, wanted: Sequence[Wanted]) -> list[Answer]:
        """Make schedules; returns an answer for each, in order. However many there are, this takes two or three round
        trips, and three more if keys are taken.

        The same content under an existing key changes nothing; other content is a `Conflict`. A list whose instants are
        all past is `Invalid`, unless it exists already.
        """
        answers: dict[int, Answer] = {}
        places: dict[str, list[int]] = {}
        for place in reversed(range(len(wanted))):
            places.setdefault(wanted[place].id, []).append(place)
        while places:
            # One of each key at a time: a key that occurs twice in a request finds what its first one made.
            turn = {id: wanted[left[-1]] for id, left in places.items()}
            for id, answer in (await self._accept_all(turn)).items():
                answers[places[id].pop()] = answer
            places = {id: left for id, left in places.items() if left}
        return [answers[place] for place in range(len(wanted))]

    async def repeat(self, wanted: Wanted, made: Made) -> Accepted:
        """Answer a repeated request from the first one's schedule: as it is now, or as it was if it is gone."""
        existing = await self._store.schedules.get(wanted.id)
        if existing is not None and existing.generation == made.generation:
            return answer_unchanged(existing)
        was = _make_schedule(wanted, made.accepted_at, made.generation)
        return answer_unchanged(replace(was, created_at=made.created_at, state=ScheduleState.FINISHED))

    async def put(self, wanted: Wanted) -> Accepted:
        while True:
            existing = await self._store.schedules.get(wanted.id)
            if existing is not None and has_content(existing, wanted.definition):
                if wanted.made_by != existing.made_by:
                    await self._store.schedules.adopt(existing, wanted.made_by)
                return answer_unchanged(existing)
            if existing and existing.definition.anchor and wanted.definition.anchor and not existing.is_finished:
                # A replacement would fire again what has fired.
                if amended := await self._anchors.amend(existing, wanted.definition, made_by=wanted.made_by):
                    return Accepted(amended, changed=True)
                continue
            days = await find_days_of(self._store, wanted)
            draft = draft_one(wanted, await self._time.now(), fresh_generation(), days)
            if existing is None:
                if not await self._commit([draft]):
                    return Accepted(draft.schedule, created=True, skipped=skipped_of(draft.schedule))
            elif await self._replace(existing, draft):
                state = ScheduleState.PAUSED if existing.is_paused else ScheduleState.ACTIVE
                fresh = replace(draft.schedule, created_at=existing.created_at, state=state)
                return Accepted(fresh, changed=True, skipped=skipped_of(fresh))

    async def pause(self, id: str) -> Schedule | None:
        schedule = await self._move(id, to=ScheduleState.PAUSED)
        if schedule is not None:
            await fault("schedule.after_pause")
            await self._store.occurrences.hold(schedule.owner, schedule.generation)
            # Another request may have resumed it after the pause and before its occurrences were held back.
            await let_go_if_active(self._store, [schedule.id])
        return schedule

    async def resume(self, id: str) -> Schedule | None:
        """Resume the schedule; its misfire rule decides about instants that came due meanwhile. `None` if there is
        none. Raises `Conflict` for a finished one."""
        schedule = await self._move(id, to=ScheduleState.ACTIVE)
        if schedule is not None:
            await fault("schedule.after_resume")
            await self._store.occurrences.let_go(schedule.owner, schedule.generation)
        return schedule

    async def remove(self, id: str) -> bool:
        removed = await self._store.schedules.remove(id)
        if removed is None:
            return False
        await fault("schedule.after_remove")
        # Only of this generation: the key may be in use again by now.
        await self._store.occurrences.remove_of(removed.owner, generation=removed.generation)
        return True

    async def cancel(self, id: str, instant: datetime) -> bool:
        """Cancel one pending instant, given as defined or as delayed by the spread; `False` if there is none."""
        schedule = await self._store.schedules.get(id)
        if schedule is None:
            return False
        if schedule.definition.recurrence is not None:
            raise Conflict("an instant of a recurrence cannot be taken out: pause it, or replace it", field="timestamp")
        delay = spread(schedule.definition, schedule.key)
        due = instant + delay if instant in schedule.definition.instants else instant
        pending = [each for each in occurrences(schedule) if each.due == due]
        return bool(pending) and await self._store.occurrences.remove(pending[0].id)

    async def fire(self, id: str, *, at: datetime | None = None, generation: str = "") -> Occurrence | None:
        """Call the callback once, now; `None` if there is no such schedule.

        A repeated request gives the moment `at` and the generation of the first one. It neither repeats a call that was
        made then nor calls for a newer schedule of this key.
        """
        schedule = await self._store.schedules.get(id)
        if schedule is None:
            return None
        now = await self._time.now()
        generation = generation or schedule.generation
        asked = once(
            schedule.owner, generation, at or now, accepted_at=at or now, kind=OccurrenceKind.ASKED, size=schedule.size
        )
        if generation != schedule.generation or await self._has_ended(asked, at):
            return asked
        # The schedule must not be removed while this is pending: see `Retention`.
        if schedule.is_finished and not await self._store.schedules.keep_finished([id], at=now):
            return None
        await self._store.occurrences.add([asked])
        return asked

    async def _has_ended(self, asked: Occurrence, at: datetime | None) -> bool:
        return at is not None and bool(await self._store.outcomes.find([outcome_id(asked, 1)]))

    async def retry(self, letters: Sequence[DeadLetter]) -> Retried:
        """Attempt these instants again, with the current definitions of their schedules.

        A letter is stored before its occurrence is deleted. So if the occurrence is still claimed, both stay: a revived
        letter would be lost together with the claim.
        """
        now = await self._time.now()
        schedules = await self._keep({letter.schedule_id for letter in letters}, now)
        revived = {
            letter.id: revive(schedules[letter.schedule_id], letter, now)
            for letter in letters
            if letter.schedule_id in schedules
        }
        claimed = await self._store.occurrences.find_claimed([each.id for each in revived.values()]) if revived else ()
        underway = {id for id, occurrence in revived.items() if occurrence.id in claimed}
        again = [letter for letter in letters if letter.id in revived.keys() - underway]
        await self._store.occurrences.add([revived[letter.id] for letter in again])
        await self._store.dead_letters.remove(again)
        return Retried(again=[letter.id for letter in again], underway=sorted(underway))

    async def _keep(self, ids: Collection[str], now: datetime) -> dict[str, Schedule]:
        """The existing schedules of these ids. Retention spares the finished ones for a while from now on."""
        found = await self._store.schedules.many(list(ids))
        finished = [schedule.id for schedule in found.values() if schedule.is_finished]
        if finished and await self._store.schedules.keep_finished(finished, at=now) < len(finished):
            return await self._store.schedules.many(list(ids))
        return found

    async def _accept_all(self, wanted: Mapping[str, Wanted]) -> dict[str, Answer]:
        are_small = all(len(want.definition.instants) <= _FEW for want in wanted.values())
        probably_free = self._keys_are_free and are_small
        answers = {} if probably_free else await self._answer_taken(wanted)
        self._keys_are_free = not answers
        while left := {id: want for id, want in wanted.items() if id not in answers}:
            days = await find_days(self._store, left.values())
            fresh, refused = await draft_all(left.values(), await self._time.now(), days)
            taken = await self._commit(fresh)
            schedules = [draft.schedule for draft in fresh if draft.schedule.id not in taken]
            answers |= {
                schedule.id: Accepted(schedule, created=True, skipped=skipped_of(schedule)) for schedule in schedules
            }
            if others := taken | refused.keys():
                self._keys_are_free = False
                answers |= refused | await self._answer_taken({id: left[id] for id in others})
        return answers

    async def _answer_taken(self, wanted: Mapping[str, Wanted]) -> dict[str, Answer]:
        there = await self._store.schedules.many(list(wanted), whole=True)
        return {id: answer_taken_key(wanted[id], schedule) for id, schedule in there.items()}

    async def _commit(self, drafts: Sequence[ScheduleDraft]) -> set[str]:
        """Insert the occurrences, then their schedules, which makes them count; returns the ids that are taken. All
        drafts of a call have one generation."""
        if not drafts:
            return set()
        await self._insert_occurrences(drafts)
        taken = await self._store.schedules.add([draft.schedule for draft in drafts])
        await fault("schedule.after_insert")
        if taken:
            void = [draft.schedule for draft in drafts if draft.schedule.id in taken]
            await self._store.occurrences.remove_of(
                *(schedule.owner for schedule in void), generation=void[0].generation
            )
        return taken

    async def _replace(self, existing: Schedule, draft: ScheduleDraft) -> bool:
        """Commit the draft in place of the existing schedule; `False` if another request was faster."""
        owner, fresh = existing.owner, draft.schedule
        await self._insert_occurrences([draft])
        if not await self._store.schedules.replace(fresh, generation=existing.generation):
            await self._store.occurrences.remove_of(owner, generation=fresh.generation)
            return False
        await fault("schedule.after_replace")
        await self._store.occurrences.remove_of(owner, generation=existing.generation)
        return True

    async def _insert_occurrences(self, drafts: Sequence[ScheduleDraft]) -> None:
        drafted = [occurrence for draft in drafts for occurrence in draft.occurrences]
        for start in range(0, len(drafted), _STEP):
            await self._store.occurrences.add(drafted[start : start + _STEP])
        await fault("schedule.after_occurrences")
        # Occurrences without a schedule are kept for a while only: a process that slept longer must not make them
        # count.
        if await self._time.now() > drafts[0].schedule.accepted_at + COMMITTED_WITHIN / 2:
            raise Unavailable("storing the occurrences took too long")

    async def _move(self, id: str, *, to: ScheduleState) -> Schedule | None:
        moved = await self._store.schedules.set_state(id, to=to)
        if moved is None and await self._store.schedules.get(id) is not None:
            raise Conflict("the schedule has finished", field="state", value=ScheduleState.FINISHED.value)
        return moved
