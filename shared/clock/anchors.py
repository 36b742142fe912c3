"""Schedules around an anchor: the instants are at offsets from it, and move with it until they have fired.

    park new offsets ──> put the content in place, by compare-and-set ──> align the occurrences that are not claimed

An occurrence keeps its document and its id when its anchor moves. So it fires once, at the old time or the new one: a
process that has claimed it reads the schedule right before it fires, and lets it follow if the anchor has moved
(`Verdict.FOLLOW`). An occurrence is parked if it was past when its schedule was made, or if its offset was dropped; a
later anchor, or the same offset again, makes it due. So dropping an offset deletes no occurrence that another request
needs.

If a process dies after the compare-and-set, the schedulers find the schedule by its mark and align the rest. A parked
occurrence whose schedule was deleted stays if its process died in that moment; it never fires.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from shared.clock.rules.following import at_anchor, occurrences
from shared.clock.rules.instants import last_due, with_anchor
from shared.clock.rules.occurrences import HELD_BACK, PARKED, Occurrence
from shared.clock.rules.schedules import Definition, Schedule, digest
from shared.core.errors import Conflict, Invalid
from shared.runtime.faults import fault
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.time import DatabaseTime

_PAGE, _AT_ONCE = 500, 8
_REMEMBERED = 10  # bulk moves of a schedule, whose repeats move it no more


class AnchorFlow:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def move(self, id: str, anchor: datetime) -> Schedule | None:
        """Move the anchor, and with it all that has not fired; `None` if there is no such schedule. Raises `Conflict`
        for a finished one, and `Invalid` for one without an anchor."""
        while (existing := await self._store.schedules.get(id)) is not None:
            if existing.definition.anchor is None:
                raise Invalid("only a schedule with an anchor and offsets can be moved", field="anchor")
            if existing.is_finished:
                raise Conflict("the schedule has finished", field="state", value=existing.state.value)
            if amended := await self.amend(existing, with_anchor(existing.definition, anchor)):
                return amended
        return None

    async def move_all(self, namespace: str, labels: Sequence[str], by: timedelta, request: str) -> tuple[int, int]:
        """Move the anchors of the schedules with all these labels; returns how many have moved, and how many have not:
        they have no anchor or have finished. A repeat of the request moves none twice."""
        moved = unmoved = 0
        after = ""
        while page := await self._store.schedules.page(namespace, labels=labels, after=after, limit=_PAGE):
            for start in range(0, len(page), _AT_ONCE):
                some = page[start : start + _AT_ONCE]
                done = await asyncio.gather(*(self._move_once(schedule, by, request) for schedule in some))
                moved, unmoved = moved + sum(done), unmoved + len(done) - sum(done)
            after = page[-1].key
        return moved, unmoved

    async def align_all(self) -> int:
        """Align the schedules whose requests died half-way; returns how many there were."""
        left = await self._store.schedules.find_aligning(limit=_PAGE)
        for schedule in left:
            await self.align(schedule)
        return len(left)

    async def amend(
        self, existing: Schedule, definition: Definition, *, made_by: str | None = None, request: str = ""
    ) -> Schedule | None:
        """Give the schedule this content in place; `None` if another request was faster. Both have an anchor, and
        instants that have fired stay fired."""
        now = await self._time.now()
        fresh = replace(
            existing,
            definition=definition,
            digest=digest(definition),
            accepted_at=now,
            sweep_at=last_due(definition, existing.key),
            made_by=existing.made_by if made_by is None else made_by,
            last_moves=(*existing.last_moves, request)[-_REMEMBERED:] if request else existing.last_moves,
        )
        before = existing.definition.offsets_ms
        added = [each for each in occurrences(fresh) if each.offset_ms not in before]
        trace = current_trace()
        await self._store.occurrences.add([replace(each, visible_at=PARKED, trace=trace) for each in added])
        if not await self._store.schedules.amend(fresh, before=existing, keeps_maker=made_by is None):
            await self._tidy(existing)
            return None
        await fault("schedule.after_amend")
        await self.align(fresh)
        return fresh

    async def _tidy(self, overtaken: Schedule) -> None:
        """Delete the occurrences that this request has parked in vain: their schedule is gone, or they have fired."""
        present = await self._store.schedules.get(overtaken.id)
        if present is None or present.generation != overtaken.generation:
            await self._store.occurrences.remove_parked(overtaken.owner, generation=overtaken.generation)
        else:
            await self.align(present)

    async def align(self, schedule: Schedule) -> None:
        """Move the occurrences of a schedule with an anchor to their instants, except for claimed ones."""
        aligned = None
        present: Schedule | None = schedule
        # Another request may have moved the anchor again, and may have been faster than this one.
        while present is not None and present.generation == schedule.generation and present.digest != aligned:
            await self._align_once(present)
            aligned = present.digest
            present = await self._store.schedules.get(schedule.id)

    async def _align_once(self, schedule: Schedule) -> None:
        found = await self._store.occurrences.find_offsets(schedule.owner, schedule.generation)
        moves = [(each, moved) for each in found if (moved := at_anchor(each, schedule)) != each]
        moves = await self._drop_ended(schedule, moves)
        aligned = await self._store.occurrences.align(moves)
        # A process that read the old anchor may still release a claimed occurrence at its old time, so the mark stays.
        # A resume lets go what a pause holds back, and the clock looks at it then.
        held_back = sum(bool(each.token) and each.visible_at == HELD_BACK for each, _ in moves)
        if aligned >= len(moves) - held_back:
            await self._store.schedules.end_aligning(schedule)

    async def _drop_ended(
        self, schedule: Schedule, moves: Sequence[tuple[Occurrence, Occurrence]]
    ) -> list[tuple[Occurrence, Occurrence]]:
        """Delete parked occurrences that would become due and have fired before. This happens if a request gives a
        dropped offset again, or inserts an offset after it has fired."""
        waking = [each.id for each, moved in moves if each.visible_at == PARKED and moved.visible_at != PARKED]
        ended = (await self._store.outcomes.find_ended(schedule.owner)).intersection(waking) if waking else set()
        await self._store.occurrences.remove_if_parked(ended)
        return [(each, moved) for each, moved in moves if each.id not in ended]

    async def _move_once(self, found: Schedule, by: timedelta, request: str) -> bool:
        schedule: Schedule | None = found
        while schedule is not None and schedule.definition.anchor is not None and not schedule.is_finished:
            if request in schedule.last_moves:
                await self.align(schedule)
                return True
            try:
                definition = with_anchor(schedule.definition, schedule.definition.anchor + by)
            except Invalid:
                return False  # out of the range of instants
            if await self.amend(schedule, definition, request=request):
                return True
            schedule = await self._store.schedules.get(schedule.id)
        return False
