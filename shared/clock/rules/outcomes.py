"""Outcomes of attempts, the dead letters, and the events about both."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from shared.clock.rules.occurrences import Occurrence, OccurrenceKind
from shared.core.documents import SCHEDULES_TOPIC, OwnEvent
from shared.core.instants import format_instant, ms


class OutcomeResult(StrEnum):
    """The result of an attempt."""

    FIRED = "fired"  # the target has it
    FAILED = "failed"  # the target refused; it is tried again
    SKIPPED = "skipped"  # found too late, or while a job was open, by the schedule's rule
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

    @property
    def message_id(self) -> str:
        return self.id.partition("/")[0]


def outcome_id(occurrence: Occurrence, attempt: int) -> str:
    """The id of an attempt's outcome. An occurrence that is fired by hand again has separate attempts."""
    asked = f"/{ms(occurrence.accepted_at)}" if occurrence.kind is OccurrenceKind.ASKED else ""
    return f"{occurrence.message_id}/{occurrence.kind}{asked}/{attempt}"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """An instant whose last attempt was refused. `id` is the message id. `death` is random, and distinguishes this
    death from others of the same instant, independently of clocks."""

    id: str
    namespace: str
    key: str
    schedule_id: str
    generation: str
    due: datetime
    died_at: datetime
    attempts: int
    error: str
    death: str


def dead_event(letter: DeadLetter, outcome: Outcome) -> OwnEvent:
    facts: dict[str, str | int] = {"dead_letter": letter.id, "attempts": letter.attempts}
    return _event("dead", letter.namespace, letter.key, outcome, f"/dead-letters/{letter.id}", facts)


def overlap_event(namespace: str, key: str, outcome: Outcome) -> OwnEvent:
    """An occurrence was skipped because the job of an earlier one is open."""
    return _event("skipped", namespace, key, outcome, f"/schedules/{key}", {"reason": outcome.error})


def _event(what: str, namespace: str, key: str, outcome: Outcome, path: str, facts: dict[str, str | int]) -> OwnEvent:
    common = {
        "schedule": key,
        "namespace": namespace,
        "due": format_instant(outcome.due),
        "at": format_instant(outcome.at),
    }
    return OwnEvent(
        id=f"{outcome.id}/{what}",
        topic=SCHEDULES_TOPIC,
        type=f"schedule.{what}",
        path=path,
        namespace=namespace,
        data=common | facts,
    )


class LetterPlace(Struct, frozen=True, array_like=True):
    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


class ErrorCount(Struct, frozen=True, kw_only=True):
    """The letters with this error, and the time of the last."""

    error: str
    count: int
    last_died_at: datetime


def place_of(letter: DeadLetter) -> LetterPlace:
    return LetterPlace(letter.died_at, letter.id)
