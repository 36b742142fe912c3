"""What is written down, and what is known of how it ended."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.console.rules.audit import (
    CHANGE_BYTES,
    UNKNOWN_AFTER,
    ActedOn,
    Actor,
    ActOutcome,
    AuditRecord,
    compare,
    ends_something,
    is_written_of_services,
    kind_of,
    outcome_of,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
RECORD = AuditRecord(
    id="1",
    at=NOON,
    act="job.stop",
    who=Actor(namespace="user:a", name="a", way="proxy", address=""),
    on=ActedOn(kind="job", id="j"),
    via="",
)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, ActOutcome.DONE), (204, ActOutcome.DONE), (404, ActOutcome.REFUSED), (409, ActOutcome.REFUSED),
        (500, ActOutcome.FAILED), (503, ActOutcome.UNKNOWN),
    ],
)  # fmt: skip
def test_an_answer_tells_how_an_act_ended(status: int, outcome: ActOutcome) -> None:
    assert outcome_of(status) is outcome


def test_what_has_no_end_for_long_ended_nobody_knows_how() -> None:
    assert RECORD.outcome_at(NOON + UNKNOWN_AFTER) is ActOutcome.BEGUN
    assert RECORD.outcome_at(NOON + UNKNOWN_AFTER + timedelta(milliseconds=1)) is ActOutcome.UNKNOWN


def test_of_services_all_but_their_single_schedules_is_written_down() -> None:
    written = {
        act: is_written_of_services(act)
        for act in ("job.stop", "token.revoke", "dead-letter.retry", "schedule.create-many", "schedule.create")
    }
    assert [act for act, is_written in written.items() if not is_written] == ["schedule.create"]


def test_a_reason_may_be_demanded_for_what_is_over_or_gone_afterwards() -> None:
    acts = ("job.stop", "app.delete", "token.revoke", "bulk-action.cancel", "dead-letter.discard")
    assert all(map(ends_something, acts))
    assert not any(map(ends_something, ("job.pause", "schedule.create-many", "user.update", "stop.job")))


def test_who_did_it_is_a_user_a_token_or_nobody() -> None:
    namespaces = ("user:a@example.com", "token:billing", "system")
    assert [Actor(namespace=each, name="").kind for each in namespaces] == ["user", "token", "system"]


def test_the_kind_of_a_thing_stands_first_in_the_act() -> None:
    assert (kind_of("job.stop"), kind_of("dead-letter.retry-many")) == ("job", "dead-letter")


def test_what_differs_is_told_as_it_was_and_as_it_is() -> None:
    before = {"name": "a", "isAdmin": False, "updatedAt": 1, "roles": {"*": "viewer"}}
    after = {"name": "a", "isAdmin": True, "updatedAt": 2, "roles": {}}
    assert compare(before, after) == ({"isAdmin": False, "roles": {"*": "viewer"}}, {"isAdmin": True, "roles": {}})
    assert compare({}, {"name": "a"}) == ({}, {"name": "a"})
    assert compare({"name": "a"}, {}) == ({"name": "a"}, {})
    assert compare(before, before) == ({}, {})


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=30), st.integers(0, 40_000))
def test_what_is_kept_of_a_change_is_bounded(fields: dict[str, str], large: int) -> None:
    before, after = compare({}, fields | {"large": "x" * large})
    assert before == {}
    assert set(after) == {*fields, "large"}
    assert len(msgspec.json.encode(list(after.values()))) <= CHANGE_BYTES + 20 * len(after)
