"""What is told of an attempt, and how it is found again."""

from datetime import UTC, datetime

from msgspec.structs import replace

from shared.clock.rules.callbacks import CallTarget, QueueMessage
from shared.clock.rules.occurrences import OccurrenceKind, once
from shared.clock.rules.outcomes import OutcomeResult, outcome_id

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ONE = datetime(2030, 1, 1, 13, tzinfo=UTC)


def test_each_attempt_has_an_outcome_of_its_own() -> None:
    entry = once("schedule/ns/a", "g", NOON, accepted_at=NOON)
    assert outcome_id(entry, 1) == f"{entry.message_id}/once/1"
    ids = {
        outcome_id(replace(entry, kind=kind, accepted_at=accepted), attempt)
        for kind in (OccurrenceKind.ONCE, OccurrenceKind.ASKED)
        for accepted in (NOON, ONE)
        for attempt in (1, 2)
    }
    assert len(ids) == 2 + 4, "what is asked for twice has attempts of its own, a retry that is stored twice has not"
    asked = replace(entry, kind=OccurrenceKind.ASKED)
    assert outcome_id(asked, 3) == f"{entry.message_id}/asked/1893499200000/3"


def test_what_callers_read_of_outcomes_has_the_same_words_in_every_release() -> None:
    assert [*OutcomeResult] == ["fired", "failed", "skipped", "dead"]


def test_a_message_is_json_where_nothing_else_is_said() -> None:
    assert QueueMessage("", "q", b"{}", "id", {}).content_type == "application/json"


def test_calls_wait_in_a_queue_of_their_own() -> None:
    # A worker of another release must find them.
    assert CallTarget.queue == "sched.call"
    assert CallTarget.__struct_config__.tag == "call"
