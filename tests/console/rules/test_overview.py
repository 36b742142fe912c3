"""Whether all is well, by what is known at one moment."""

from datetime import timedelta
from typing import Any

import pytest

from shared.console.rules.overview import AttentionKind, OverallVerdict, Overview, UnknownPart, find_attention, judge
from shared.console.rules.processes import MinuteCounts, QueueState, minute_id
from shared.jobs.rules.jobs import JobStatus
from tests.console.rules.test_processes import NOON, a_process

ROLES = ("api", "worker")
LONG_AGO = NOON - timedelta(hours=1)


def overview(**fields: Any) -> Overview:
    """All is well, but for these fields."""
    standard: dict[str, Any] = {
        "as_of": NOON,
        "roles": ROLES,
        "processes": [a_process(id="a", roles=ROLES)],
        "queues": [a_queue()],
        "minutes": [],
        "open_jobs": {JobStatus.RUNNING: 3, JobStatus.TRIPPED: 0},
        "dead_letters": 0,
    }
    return Overview(**(standard | fields))


def a_queue(**fields: Any) -> QueueState:
    standard: dict[str, Any] = {"name": "push.batch", "ready": 5, "unacked": 1, "consumers": 1}
    return QueueState(**(standard | fields))


def minute(minutes_ago: float = 1, **counts: Any) -> MinuteCounts:
    return MinuteCounts(id=minute_id(NOON - timedelta(minutes=minutes_ago)), **counts)


def test_all_is_well() -> None:
    assert judge(overview()) == (OverallVerdict.WELL, [])


def test_what_is_unknown_is_never_well() -> None:
    away = overview(queues=None, unknown=(UnknownPart("queues", "away", NOON),))
    assert judge(away) == (OverallVerdict.UNKNOWN, [])
    verdict, findings = judge(overview(queues=None, unknown=(UnknownPart("queues", "away", NOON),), processes=[]))
    assert verdict is OverallVerdict.AILING
    assert {finding.sign for finding in findings} == {"RoleMissing"}


# Each with what shows it, and what is just not enough.
SHOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FiringLate": (
        {"minutes": [minute(lateness={"1000": 989, "10000000": 10, "inf": 1})]},
        {"minutes": [minute(lateness={"1000": 985, "5000000": 5, "inf": 10}), minute(6, lateness={"inf": 100})]},
    ),
    "EngineFailing": (
        {"processes": [a_process(roles=ROLES, failing=("broker",))]},
        {"processes": [a_process(roles=ROLES), a_process(id="b", failing=("broker",), seen_at=LONG_AGO)]},
    ),
    "FallingBehind": (
        {"processes": [a_process(roles=ROLES, oldest_visible_seconds=30.1)]},
        {"processes": [a_process(roles=ROLES, oldest_visible_seconds=30.0)]},
    ),
    "BatchesStandStill": (
        {"processes": [a_process(roles=ROLES, oldest_batch_seconds=300.1)]},
        {"processes": [a_process(roles=ROLES, oldest_batch_seconds=300)]},
    ),
    "ApiFailing": (
        {"minutes": [minute(requests=499, server_errors=5)]},
        {"minutes": [minute(requests=500, server_errors=5)]},
    ),
    "JobTripped": ({"open_jobs": {JobStatus.TRIPPED: 1}}, {"open_jobs": {JobStatus.PAUSED: 1}}),
    "DeadLettersGrow": (
        {"minutes": [minute(dead_letters=1)], "dead_letters": 1},
        {"minutes": [minute(dead_letters=1)]},
    ),
    "ClockSkewed": (
        {"processes": [a_process(roles=ROLES, clock_skew_seconds=-1.1)]},
        {"processes": [a_process(roles=ROLES, clock_skew_seconds=1.0)]},
    ),
    "VersionsMixed": (
        {
            "processes": [
                a_process(roles=ROLES, started_at=LONG_AGO),
                a_process(id="b", version="2", started_at=LONG_AGO),
            ]
        },
        {
            "processes": [
                a_process(roles=ROLES, started_at=LONG_AGO),
                a_process(id="b", version="2", started_at=LONG_AGO + timedelta(seconds=1)),
            ]
        },
    ),
}


@pytest.mark.parametrize("sign", SHOWN)
def test_a_sign_shows_by_what_is_known_and_just_below_it_does_not(sign: str) -> None:
    shown, just_below = SHOWN[sign]
    verdict, findings = judge(overview(**shown))
    assert (verdict, [finding.sign for finding in findings]) == (OverallVerdict.AILING, [sign])
    assert findings[0].seen
    assert judge(overview(**just_below)) == (OverallVerdict.WELL, [])


@pytest.mark.parametrize(
    "minutes", [minute(requests=183, server_errors=2), minute(requests=4, server_errors=4), minute(lateness={"inf": 4})]
)
def test_a_few_bad_events_are_no_share(minutes: MinuteCounts) -> None:
    assert judge(overview(minutes=[minutes])) == (OverallVerdict.WELL, [])


@pytest.mark.parametrize(
    ("fields", "sentences"),
    [
        ({"dead_letters": 7}, ["7 scheduled calls failed every attempt"]),
        ({"dead_letters": 1}, ["1 scheduled call failed every attempt"]),
        ({"troubles": {AttentionKind.CALLBACKS: 2}}, ["2 scheduled calls failed and are tried again"]),
        ({"minutes": [minute(1, retries=2)]}, []),
        (
            {"processes": [a_process(roles=ROLES), a_process(id="b", seen_at=NOON - timedelta(seconds=30))]},
            ["1 process is silent"],
        ),
        (
            {"troubles": {AttentionKind.RECEIVERS: 2, AttentionKind.SUBSCRIPTIONS: 0, AttentionKind.ACCOUNTS: 1}},
            ["1 provider account does not send", "2 receivers of the bus fail"],
        ),
        ({"troubles": None, "dead_letters": None, "minutes": None, "queues": None}, []),
    ],
)
def test_work_that_waits_for_a_person_is_never_well(fields: dict[str, Any], sentences: list[str]) -> None:
    seen = overview(**fields)
    assert [each.sentence for each in find_attention(seen)] == sentences
    assert (judge(seen)[0] is OverallVerdict.AILING) == bool(sentences)


def test_dead_letters_are_no_trouble_once_none_is_left() -> None:
    died = [minute(dead_letters=3)]
    assert judge(overview(minutes=died, dead_letters=0)) == (OverallVerdict.WELL, [])
    _, [finding] = judge(overview(minutes=died, dead_letters=1))
    assert finding.seen == "3 more in the last 5 minutes"


def test_a_role_is_missing_since_it_was_heard_of_last() -> None:
    seen_at = NOON - timedelta(seconds=16)
    silent = [a_process(id="a", roles=("worker",), seen_at=seen_at), a_process(id="b", roles=("api",))]
    _, [finding] = judge(overview(processes=silent))
    assert (finding.sign, finding.seen, finding.since) == ("RoleMissing", "no worker process is running", seen_at)
    _, never = judge(overview(processes=[]))
    assert [(each.sign, each.since) for each in never] == [("RoleMissing", None)] * 2


def test_what_has_waited_has_done_so_since_then() -> None:
    _, [finding] = judge(overview(processes=[a_process(roles=ROLES, oldest_visible_seconds=90)]))
    assert finding.since == NOON - timedelta(seconds=90)
