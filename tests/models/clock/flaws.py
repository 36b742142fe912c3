"""The changes of mutants: one function in the place of another."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateMany

from shared.clock.rules import following
from shared.clock.rules.calendars import Calendar, Days
from shared.clock.rules.following import Verdict
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.schedules import Schedule
from shared.clock.store_occurrences import Occurrences
from shared.clock.store_outcomes import Outcomes
from shared.clock.store_schedules import Calendars, Schedules
from shared.store import Store

_judge = following.judge
_amend = Schedules.amend


def judge_without_moves(schedule: Schedule | None, occurrence: Occurrence, now: datetime, **rest: Any) -> Verdict:
    verdict = _judge(schedule, occurrence, now, **rest)
    return Verdict.FIRE if verdict is Verdict.FOLLOW else verdict


async def align_what_is_claimed(self: Occurrences, moves: Sequence[tuple[Occurrence, Occurrence]]) -> int:
    return await self._write(
        [
            UpdateMany(
                {"_id": read.id},
                {
                    "$set": {"due": moved.due, "fires_at": moved.due, "visible_at": moved.visible_at},
                    "$unset": {"token": ""},
                },
            )
            for read, moved in moves
        ]
    )


async def amend_without_a_mark(self: Schedules, schedule: Schedule, **checks: Any) -> bool:
    amended = await _amend(self, schedule, **checks)
    await self._schedules.update_one({"_id": schedule.id}, {"$unset": {"aligning": ""}})
    return amended


async def remember_no_outcome(self: Outcomes, owner: str) -> set[str]:
    return set()


async def find_no_days(store: Store, schedules: Any) -> Mapping[str, Days]:
    return {}


async def see_no_change(self: Calendars, *, before: datetime, limit: int) -> list[Calendar]:
    return []


def note_nothing_fired(*_: Any) -> None:
    return None
