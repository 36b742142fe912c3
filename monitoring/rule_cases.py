"""For each alert a series that fires and one just below, as a test file for `promtool test rules`.

Series are written as promtool reads them, a value a minute: `0+98x30` begins at 0 and grows by 98, thirty times.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from services.commands.rules import RUNBOOKS
from shared.console.rules.signs import ROLES, SIGNS, Sign

Series = Mapping[str, str]


class Case(Struct, frozen=True, kw_only=True):
    """Series for which the alert fires, with these labels, and for which it does not, both looked at in that minute."""

    fires: Series
    below: Series
    labels: Mapping[str, str] = {}
    minute: int = 30


def _slow(metric: str, bound: int, labels: str = "") -> Case:
    """A hundredth on both sides of a bucket's bound."""
    comma = "," if labels else ""

    def series(within: int) -> Series:
        counted = {f"{metric}_count{{{labels}}}": 1_000, f'{metric}_bucket{{le="{bound}.0"{comma}{labels}}}': within}
        return {name: f"0+{n}x30" for name, n in counted.items()}

    return Case(fires=series(989), below=series(991))


def _few(bad: str, labels: Mapping[str, str] | None = None, good: str = "") -> Case:
    """A share of all or most, of events that are just enough for it, and just too few."""
    return Case(
        fires={bad: "0+1.1x30"} | ({good: "0+1x30"} if good else {}),
        below={bad: "0+0.9x30"} | ({good: "0+1x30"} if good else {}),
        labels=labels or {},
    )


def _above(series: str, fires: float, below: float, labels: Mapping[str, str] | None = None) -> Case:
    """A gauge on both sides of what it may be."""
    return Case(fires={series: f"{fires}x30"}, below={series: f"{below}x30"}, labels=labels or {})


def _grown(series: str, labels: Mapping[str, str] | None = None) -> Case:
    """A counter that grew once of late, and one that grew long ago."""
    return Case(fires={series: "2x24 3x30"}, below={series: "2x5 3x30"}, labels=labels or {})


def _rates(series: str, fires: float, below: float) -> Case:
    """A counter that grows so much a minute."""
    return Case(fires={series: f"0+{fires}x30"}, below={series: f"0+{below}x30"})


def _builds(*roles: str) -> Series:
    return {f'carillon_build_info{{role="{role}",version="1"}}': "1x30" for role in roles}


_CALLS = 'carillon_call_seconds_count{capability="store.jobs"}'
_UNAVAILABLE = 'carillon_call_errors_total{capability="store.jobs",error="Unavailable"}'
_CONFLICT = 'carillon_call_errors_total{capability="store.jobs",error="Conflict"}'
_OK, _FAILED = 'carillon_http_requests_total{status="200"}', 'carillon_http_requests_total{status="500"}'
_OLD, _NEW = 'carillon_build_info{role="api",version="1"}', 'carillon_build_info{role="api",version="2"}'
_ACCEPTED, _TOO_FAST, _UNANSWERED = (
    f'carillon_provider_calls_total{{kind="http",outcome="{outcome}"}}'
    for outcome in ("accepted", "too_fast", "unanswered")
)
_UNKNOWN = 'carillon_messages_unknown_total{why="lost_worker"}'
_BOUND, _ALLOWED = (
    'carillon_account_clock_bound_seconds{instance="a"}',
    'carillon_account_clock_allowed_seconds{instance="a"}',
)
_FORTNIGHT = 14 * 86_400
_FAILED_RUNS = 'carillon_loop_runs_total{loop="upkeep of jobs",outcome="failed"}'
_LAG = "carillon_feedback_lag_records"
_SUSPENDED, _LOST_EVENTS, _NEW_LOG = (
    f'carillon_bus_notices_total{{kind="{kind}"}}' for kind in ("subscription.suspended", "events.lost", "log.replaced")
)

CASES: Mapping[str, tuple[Case, ...]] = {
    "RoleMissing": tuple(
        Case(fires=_builds(*(other for other in ROLES if other != role)), below=_builds(*ROLES), labels={"role": role})
        for role in ROLES
    ),
    "FiringLate": (_slow("carillon_lateness_seconds", 5),),
    "FallingBehind": (_above("carillon_oldest_visible_seconds", 31, 30),),
    "BatchesStandStill": (_above("carillon_batch_oldest_queued_seconds", 301, 300),),
    "OutcomeUnknown": (_grown('carillon_recoveries_total{outcome="unknown"}'),),
    "EngineFailing": (
        Case(
            fires={_CALLS: "0+1000x30", _UNAVAILABLE: "0+51x30"},
            below={_CALLS: "0+1000x30", _UNAVAILABLE: "0+49x30", _CONFLICT: "0+500x30"},
            labels={"capability": "store.jobs"},
        ),
        _few(_UNAVAILABLE, {"capability": "store.jobs"}, good=_CALLS),
    ),
    "ApiFailing": (
        Case(fires={_OK: "0+989x30", _FAILED: "0+11x30"}, below={_OK: "0+991x30", _FAILED: "0+9x30"}),
        _few(_FAILED),
    ),
    "ApiSlow": (_slow("carillon_http_request_seconds", 1, 'route="/jobs"'),),
    "JobLate": (_slow("carillon_job_start_delay_seconds", 60),),
    "JobTripped": (_grown("carillon_jobs_tripped_total"),),
    "CredentialBlocked": (_above('carillon_credentials_blocked{status="rejected"}', 1, 0, {"status": "rejected"}),),
    "MessagesUnknown": (
        Case(fires={_UNKNOWN: "2x24 3x30"}, below={_UNKNOWN: "2x5 3x30"}, labels={"why": "lost_worker"}),
    ),
    "AccountSlowed": (
        Case(fires={_TOO_FAST: "0x10 1+1x20"}, below={_TOO_FAST: "0x21 1+1x10"}, labels={"kind": "http"}),
    ),
    "ClockUncertain": (
        Case(
            fires={_BOUND: "0.0051x30", _ALLOWED: "0.005x30"},
            below={_BOUND: "0.005x30", _ALLOWED: "0.005x30"},
            labels={"instance": "a"},
        ),
    ),
    "CallsUnanswered": (
        Case(
            fires={_ACCEPTED: "0+940x30", _UNANSWERED: "0+60x30"},
            below={_ACCEPTED: "0+960x30", _UNANSWERED: "0+40x30"},
            labels={"kind": "http"},
        ),
        _few(_UNANSWERED, {"kind": "http"}),
    ),
    "InstantsLost": (
        Case(
            fires={_ACCEPTED: "0+890x30", 'carillon_instants_lost_total{why="late"}': "0+110x30"},
            below={_ACCEPTED: "0+910x30", 'carillon_instants_lost_total{why="late"}': "0+90x30"},
        ),
        _few('carillon_instants_lost_total{why="late"}', good=_ACCEPTED),
    ),
    "DeadLettersGrow": (_grown("carillon_dead_letters_total"),),
    "TasksPoisoned": (_grown('carillon_tasks_total{outcome="dropped"}'),),
    "FeedbackBehind": (
        _above("carillon_feedback_flush_age_seconds", 61, 60),
        Case(fires={_LAG: "10000+1x60"}, below={_LAG: "20000x60"}, minute=60),
        Case(fires={_LAG: "10000+1x60"}, below={_LAG: "0+100x60"}, minute=60),
    ),
    "BusBehind": (_above('carillon_bus_log_lag{instance="a"}', 100_001, 100_000),),
    "EventsLost": (
        _grown(_LOST_EVENTS, {"kind": "events.lost"}),
        _grown(_NEW_LOG, {"kind": "log.replaced"}),
        Case(fires={_LOST_EVENTS: "0x24 1x30"}, below={_SUSPENDED: "0x24 1x30"}, labels={"kind": "events.lost"}),
    ),
    "SubscriptionSuspended": (
        _grown(_SUSPENDED, {"kind": "subscription.suspended"}),
        Case(
            fires={_SUSPENDED: "0x24 1x30"},
            below={_LOST_EVENTS: "0x24 1x30"},
            labels={"kind": "subscription.suspended"},
        ),
    ),
    "NoticesWait": (_above("carillon_bus_notice_oldest_seconds", 601, 600),),
    "UpkeepBusy": (_rates('carillon_upkeep_found_total{kind="queued"}', 61, 59),),
    "LanesLost": (_rates("carillon_lanes_lost_total", 1.1, 0.9),),
    "LoopFailing": (
        Case(fires={_FAILED_RUNS: "0+1x30"}, below={_FAILED_RUNS: "2x19 3x30"}, labels={"loop": "upkeep of jobs"}),
    ),
    "ClockSkewed": (
        _above('carillon_clock_skew_seconds{instance="a"}', 1.1, 1, {"instance": "a"}),
        _above('carillon_clock_skew_seconds{instance="a"}', -1.1, -1, {"instance": "a"}),
    ),
    "CertificateEnds": (
        _above(
            'carillon_certificate_expiry_timestamp_seconds{of="kafka"}', _FORTNIGHT, _FORTNIGHT + 1_800, {"of": "kafka"}
        ),
    ),
    "VersionsMixed": (Case(fires={_OLD: "1x80", _NEW: "1x80"}, below={_OLD: "1x80", _NEW: "1x50"}, minute=70),),
    "SignInsRefused": (_rates('carillon_sign_ins_total{way="token",outcome="refused"}', 61, 59),),
}


def describe_cases() -> str:
    """The test file, as JSON, which is YAML too."""
    tests = [
        _test(sign, case, fires=fires)
        for sign in SIGNS
        for case in CASES[sign.name]
        for fires in (True, False)
    ]  # fmt: skip
    content = {"rule_files": ["carillon.rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    return "# Printed by `python -m monitoring`.\n" + json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _test(sign: Sign, case: Case, *, fires: bool) -> dict[str, Any]:
    alert = {
        "exp_labels": {"severity": sign.severity.value, **case.labels},
        "exp_annotations": {
            "summary": sign.sentence,
            "description": sign.remedy,
            "runbook_url": f"{RUNBOOKS}#{sign.name.lower()}",
        },
    }
    looked_at = {"eval_time": f"{case.minute}m", "alertname": sign.name, "exp_alerts": [alert] if fires else []}
    series = case.fires if fires else case.below
    return {
        "name": f"{sign.name} {'fires' if fires else 'does not fire'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [looked_at],
    }
