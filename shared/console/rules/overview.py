"""The state of the whole deployment at one moment, and whether all is well.

`judge` looks for the signs of trouble (`SIGNS`) that the database and the broker show. Signs that only Prometheus sees
over time are left to its alerts. `find_attention` counts the work of every kind that waits for a person. All is well
only without either, and if every part was read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from shared.console.rules.processes import MinuteCounts, ProcessState, QueueState, RunningProcess
from shared.console.rules.signs import (
    BEHIND_SECONDS,
    FAILING_SHARE,
    LATE_SECONDS,
    LEAST_EVENTS,
    SKEWED_SECONDS,
    STILL_SECONDS,
)
from shared.jobs.rules.jobs import JobStatus

MIXED_AFTER = timedelta(hours=1)
_RECENT = timedelta(minutes=5)
_MICROSECONDS = 1_000_000


class OverallVerdict(StrEnum):
    """Whether all is well."""

    WELL = "well"
    AILING = "ailing"
    UNKNOWN = "unknown"


class AttentionKind(StrEnum):
    """Work that goes on only if a person acts."""

    SILENT = "silent-processes"
    ACCOUNTS = "stopped-accounts"
    CALLBACKS = "failing-callbacks"
    DEAD_CALLS = "dead-letters"
    RECEIVERS = "failing-receivers"
    SUBSCRIPTIONS = "suspended-subscriptions"
    DEAD_EVENTS = "bus-dead-letters"


class Attention(Struct, frozen=True):
    kind: AttentionKind
    count: int

    @property
    def sentence(self) -> str:
        one, many = _NEEDS[self.kind]
        return f"{self.count:,} {one if self.count == 1 else many}"


_NEEDS = {
    AttentionKind.SILENT: ("process is silent", "processes are silent"),
    AttentionKind.ACCOUNTS: ("provider account does not send", "provider accounts do not send"),
    AttentionKind.CALLBACKS: ("scheduled call failed and is tried again", "scheduled calls failed and are tried again"),
    AttentionKind.DEAD_CALLS: ("scheduled call failed every attempt", "scheduled calls failed every attempt"),
    AttentionKind.RECEIVERS: ("receiver of the bus fails", "receivers of the bus fail"),
    AttentionKind.SUBSCRIPTIONS: ("subscription is suspended", "subscriptions are suspended"),
    AttentionKind.DEAD_EVENTS: (
        "delivery of the bus failed every attempt",
        "deliveries of the bus failed every attempt",
    ),
}


class UnknownPart(Struct, frozen=True):
    """A part of the overview that could not be read, the reason, and the time since which a process has seen that."""

    what: str
    reason: str
    since: datetime


class Overview(Struct, frozen=True, kw_only=True):
    """The known state of the deployment. A part that is `None` is among the `unknown` ones. `roles` are the required
    ones."""

    as_of: datetime
    roles: tuple[str, ...]
    processes: Sequence[RunningProcess] | None = None
    queues: Sequence[QueueState] | None = None
    minutes: Sequence[MinuteCounts] | None = None
    open_jobs: Mapping[JobStatus, int] | None = None
    dead_letters: int | None = None
    troubles: Mapping[AttentionKind, int] | None = None
    unknown: tuple[UnknownPart, ...] = ()

    @property
    def alive(self) -> list[RunningProcess]:
        return [each for each in self.processes or () if each.state_at(self.as_of) is ProcessState.ALIVE]

    @property
    def recent(self) -> list[MinuteCounts]:
        return [minute for minute in self.minutes or () if minute.at > self.as_of - _RECENT]


class ShownSign(Struct, frozen=True):
    """A visible sign: its name among the signs, the exact observation, and its beginning, if known."""

    sign: str
    seen: str
    since: datetime | None = None


def judge(overview: Overview) -> tuple[OverallVerdict, list[ShownSign]]:
    """Whether all is well, and every visible sign of trouble."""
    findings = [finding for check in _CHECKS for finding in check(overview)]
    if findings or find_attention(overview):
        return OverallVerdict.AILING, findings
    return (OverallVerdict.UNKNOWN if overview.unknown else OverallVerdict.WELL), []


def find_attention(overview: Overview) -> list[Attention]:
    silent = [each for each in overview.processes or () if each.state_at(overview.as_of) is ProcessState.SILENT]
    counts = {
        AttentionKind.SILENT: len(silent),
        AttentionKind.DEAD_CALLS: overview.dead_letters or 0,
        **(overview.troubles or {}),
    }
    return [Attention(kind, counts[kind]) for kind in AttentionKind if counts.get(kind)]


def _find_missing_roles(overview: Overview) -> list[ShownSign]:
    if overview.processes is None:
        return []
    there = {role for process in overview.alive for role in process.roles}
    return [
        ShownSign("RoleMissing", f"no {role} process is running", _last_seen(overview.processes, role))
        for role in overview.roles
        if role not in there
    ]


def _find_failing_servers(overview: Overview) -> list[ShownSign]:
    roles: dict[str, set[str]] = {}
    for process in overview.alive:
        for check in process.failing:
            roles.setdefault(check, set()).update(process.roles)
    return [
        ShownSign("EngineFailing", f"the check of {check} fails in {', '.join(sorted(those))}")
        for check, those in sorted(roles.items())
    ]


def _find_late_firing(overview: Overview) -> list[ShownSign]:
    fired = sum(sum(minute.lateness.values()) for minute in overview.recent)
    late = sum(
        count
        for minute in overview.recent
        for bound, count in minute.lateness.items()
        if bound == "inf" or int(bound) > LATE_SECONDS * _MICROSECONDS
    )
    if late < LEAST_EVENTS or late <= fired * FAILING_SHARE:
        return []
    return [ShownSign("FiringLate", f"{late:,} of {fired:,} occurrences were over {LATE_SECONDS} s late in 5 minutes")]


def _find_falling_behind(overview: Overview) -> list[ShownSign]:
    worst = max((process.oldest_visible_seconds for process in overview.alive), default=0.0)
    if worst <= BEHIND_SECONDS:
        return []
    return [_of_age("FallingBehind", "an occurrence has waited to be claimed", worst, overview)]


def _find_standing_batches(overview: Overview) -> list[ShownSign]:
    worst = max((process.oldest_batch_seconds for process in overview.alive), default=0.0)
    if worst <= STILL_SECONDS:
        return []
    return [_of_age("BatchesStandStill", "a batch has waited for a worker", worst, overview)]


def _find_tripped_jobs(overview: Overview) -> list[ShownSign]:
    count = (overview.open_jobs or {}).get(JobStatus.TRIPPED, 0)
    why = "too many of their batches failed, or of their messages bounced"
    return [ShownSign("JobTripped", f"{count:,} held: {why}")] if count else []


def _find_growing_dead_letters(overview: Overview) -> list[ShownSign]:
    if overview.dead_letters == 0:  # users have decided on all of them
        return []
    count = sum(minute.dead_letters for minute in overview.recent)
    return [ShownSign("DeadLettersGrow", f"{count:,} more in the last 5 minutes")] if count else []


def _find_failing_api(overview: Overview) -> list[ShownSign]:
    requests = sum(minute.requests for minute in overview.recent)
    errors = sum(minute.server_errors for minute in overview.recent)
    if errors < LEAST_EVENTS or errors <= requests * FAILING_SHARE:
        return []
    return [ShownSign("ApiFailing", f"{errors:,} of {requests:,} requests were answered by 5xx in 5 minutes")]


def _find_skewed_clocks(overview: Overview) -> list[ShownSign]:
    return [
        ShownSign("ClockSkewed", f"the clock of {process.host} is off by {process.clock_skew_seconds:g} s")
        for process in overview.alive
        if abs(process.clock_skew_seconds) > SKEWED_SECONDS
    ]


def _find_mixed_versions(overview: Overview) -> list[ShownSign]:
    since: dict[str, datetime] = {}
    for process in overview.alive:
        since[process.version] = min(process.started_at, since.get(process.version, process.started_at))
    if len(since) < 2 or max(since.values()) > overview.as_of - MIXED_AFTER:
        return []
    return [
        ShownSign("VersionsMixed", f"processes of {' and '.join(sorted(since))} run side by side", max(since.values()))
    ]


_CHECKS: tuple[Callable[[Overview], list[ShownSign]], ...] = (
    _find_missing_roles,
    _find_failing_servers,
    _find_falling_behind,
    _find_late_firing,
    _find_standing_batches,
    _find_failing_api,
    _find_tripped_jobs,
    _find_growing_dead_letters,
    _find_skewed_clocks,
    _find_mixed_versions,
)


def _last_seen(processes: Collection[RunningProcess], role: str) -> datetime | None:
    return max((process.seen_at for process in processes if role in process.roles), default=None)


def _of_age(sign: str, what: str, seconds: float, overview: Overview) -> ShownSign:
    return ShownSign(sign, f"{what} for {seconds:,.0f} s", overview.as_of - timedelta(seconds=seconds))
