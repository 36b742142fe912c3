"""The outcomes of occurrences: a line for each attempt, and the dead letters."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from shared.domain.clock.occurrences import Occurrence, OccurrenceKind
from shared.domain.instants import format_instant, ms
from shared.domain.outbox import SCHEDULES_TOPIC, OwnEvent


class OutcomeResult(StrEnum):
    """The result of an attempt."""

    FIRED = "fired"  # the target has it
    FAILED = "failed"  # the target refused; it is tried again
    SKIPPED = "skipped"  # found too late, by the schedule's rule
    DEAD = "dead"  # refused for the last time


class Outcome(Struct, frozen=True, kw_only=True):
    """One attempt. `late_ms` counts like the metric: from `due`, or one tick after acceptance."""

    id: str
    owner: str
    due: datetime
    at: datetime
    late_ms: int
    attempt: int
    result: OutcomeResult
    error: str = ""


def outcome_id(occurrence: Occurrence, attempt: int) -> str:
    """The id of an attempt's outcome. An occurrence that is fired by hand again has separate attempts."""
    asked = f"/{ms(occurrence.accepted_at)}" if occurrence.kind is OccurrenceKind.ASKED else ""
    return f"{occurrence.message_id}/{occurrence.kind}{asked}/{attempt}"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """An instant whose last attempt was refused. `id` is the message id. `death` is random, and distinguishes this
    death from others of the same instant, independently of clocks; letters of 0.1.0 have none."""

    id: str
    namespace: str
    key: str
    schedule_id: str
    generation: str
    due: datetime
    died_at: datetime
    attempts: int
    error: str
    death: str = ""


def schedule_event(letter: DeadLetter, outcome: Outcome) -> OwnEvent:
    return OwnEvent(
        id=f"{outcome.id}/dead",
        topic=SCHEDULES_TOPIC,
        type="schedule.dead",
        path=f"/dead-letters/{letter.id}",
        namespace=letter.namespace,
        data={
            "schedule": letter.key,
            "namespace": letter.namespace,
            "dead_letter": letter.id,
            "due": format_instant(letter.due),
            "attempts": letter.attempts,
            "at": format_instant(letter.died_at),
        },
    )
