"""Signs of trouble, as one list: the source of the alert rules (`carillon rules`), the headings of the runbooks and the
overview.

An expression is PromQL over the metrics of `shared.runtime.metrics`. It returns a series for each fault, and nothing
while all is well. The sign counts after the fault has lasted for `minutes`.
"""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """Whether an operator has to look now, or in working hours."""

    PAGE = "page"
    TICKET = "ticket"


class Sign(Struct, frozen=True, kw_only=True):
    """A sign of a fault: the fault (`sentence`), and the first step (`remedy`)."""

    name: str
    severity: Severity
    sentence: str
    remedy: str
    expression: str
    minutes: int = 0


# Thresholds that the overview or the doctor also use.
LATE_SECONDS = 5
BEHIND_SECONDS = 30
STILL_SECONDS = 300
SKEWED_SECONDS = 1
FAILING_SHARE = 0.01
ENDS_WITHIN_DAYS = 14
UNANSWERED_SHARE = 0.05
LOST_SHARE = 0.1
UNREAD_EVENTS = 100_000
UNTOLD_SECONDS = 600
LEAST_EVENTS = 5
"""A share counts from this many bad events on: on a quiet night, one is a hundredth of everything."""

ROLES = ("api", "feedback-answers", "feedback-bus", "scheduler", "worker")
"""The required processes of a deployment."""

# Refusals of a caller's request are no failures of the server; nor are the answers of callbacks' hosts.
_REFUSALS = "Conflict|Forbidden|Gone|Hidden|Invalid|NotFound|TooMany|Unauthorized"
_ENGINE_ERRORS = f'carillon_call_errors_total{{capability!="outgoing",error!~"{_REFUSALS}"}}'


def _share(bad: str, every: str, limit: float, label: str = "") -> str:
    """More than the share `limit` of events is bad, and at least `LEAST_EVENTS`, in five minutes; by the label."""
    by = f" by ({label}) " if label else ""
    bad, every = (f"sum{by}(increase({events}[5m]))" for events in (bad, every))
    return f"{bad} / {every} > {limit} and {bad} >= {LEAST_EVENTS}"


def _share_above(histogram: str, bound: int) -> str:
    """More than one in a hundred of the histogram's events is above `bound`, which ends one of its buckets."""
    every = f"sum(increase({histogram}_count[5m]))"
    bad = f'({every} - sum(increase({histogram}_bucket{{le=~"{bound}(.0)?"}}[5m])))'
    return f"{bad} / {every} > 0.01 and {bad} >= {LEAST_EVENTS}"


def _rise(metric: str) -> str:
    return f"sum(increase({metric}[10m])) > 0"


def _rise_of_notices(kinds: str) -> str:
    return f'sum by (kind) (increase(carillon_bus_notices_total{{kind=~"{kinds}"}}[10m])) > 0'


SIGNS = (
    Sign(
        name="RoleMissing",
        severity=Severity.PAGE,
        sentence="A required process is not running.",
        remedy="Start the process that is missing, and read the log of the one that ended.",
        expression=" or ".join(f'absent(carillon_build_info{{role="{role}"}})' for role in ROLES),
        minutes=1,
    ),
    Sign(
        name="FiringLate",
        severity=Severity.PAGE,
        sentence=f"One in a hundred occurrences fires more than {LATE_SECONDS} seconds late.",
        remedy="Add schedulers, or workers where the queue sched.call is long.",
        expression=_share_above("carillon_lateness_seconds", LATE_SECONDS),
        minutes=5,
    ),
    Sign(
        name="FallingBehind",
        severity=Severity.PAGE,
        sentence=f"An occurrence that is due has waited for more than {BEHIND_SECONDS} seconds to be claimed.",
        remedy="See that schedulers run and that MongoDB answers quickly; then add schedulers.",
        expression=f"max(carillon_oldest_visible_seconds) > {BEHIND_SECONDS}",
        minutes=2,
    ),
    Sign(
        name="BatchesStandStill",
        severity=Severity.PAGE,
        sentence=f"A batch of a running job has waited for more than {STILL_SECONDS // 60} minutes in its queue.",
        remedy="See that workers are ready: /readyz names what they lack.",
        expression=f"max(carillon_batch_oldest_queued_seconds) > {STILL_SECONDS}",
        minutes=1,
    ),
    Sign(
        name="OutcomeUnknown",
        severity=Severity.PAGE,
        sentence="Carillon cannot tell whether the records of a batch went out; it counts as failed.",
        remedy="Find the batch in the job's failed ones, and keep Kafka's markers for longer than workers may be down.",
        expression=_rise('carillon_recoveries_total{outcome="unknown"}'),
    ),
    Sign(
        name="EngineFailing",
        severity=Severity.PAGE,
        sentence="More than 5 % of the calls of a server fail.",
        remedy="Look at the server that the label `capability` names.",
        expression=_share(_ENGINE_ERRORS, "carillon_call_seconds_count", 0.05, "capability"),
        minutes=5,
    ),
    Sign(
        name="ApiFailing",
        severity=Severity.PAGE,
        sentence=f"The API answers more than {FAILING_SHARE * 100:g} % of its requests with a 5xx.",
        remedy="Read its log for `request failed` and `a server is unavailable`.",
        expression=_share('carillon_http_requests_total{status=~"5.."}', "carillon_http_requests_total", FAILING_SHARE),
        minutes=5,
    ),
    Sign(
        name="ApiSlow",
        severity=Severity.TICKET,
        sentence="One in a hundred requests takes the API more than a second.",
        remedy="See which route and which server is slow; then add API processes.",
        expression=_share_above("carillon_http_request_seconds", 1),
        minutes=5,
    ),
    Sign(
        name="JobLate",
        severity=Severity.TICKET,
        sentence="One in a hundred jobs sends its first batch more than a minute after its start.",
        remedy="Add workers where the queues push.split and push.batch are long; else see what planning waits for.",
        expression=_share_above("carillon_job_start_delay_seconds", 60),
        minutes=5,
    ),
    Sign(
        name="JobTripped",
        severity=Severity.TICKET,
        sentence="A job is held: too many of its batches failed, or of its messages bounced.",
        remedy="Read its reasons, mend the cause, and resume or stop the job.",
        expression=_rise("carillon_jobs_tripped_total"),
    ),
    Sign(
        name="CredentialBlocked",
        severity=Severity.TICKET,
        sentence="A credential is rejected or suspended, and running jobs wait for it.",
        remedy="Give it a secret that the provider takes, activate it, or stop its jobs.",
        expression="max by (status) (carillon_credentials_blocked) > 0",
        minutes=5,
    ),
    Sign(
        name="MessagesUnknown",
        severity=Severity.TICKET,
        sentence="Messages became unknown: Carillon cannot tell whether they were sent.",
        remedy="See which provider does not answer, or which worker died; ask the provider before you retry any.",
        expression="sum by (why) (increase(carillon_messages_unknown_total[10m])) > 0",
    ),
    Sign(
        name="AccountSlowed",
        severity=Severity.TICKET,
        sentence="A provider has said for ten minutes that calls come too fast.",
        remedy="Lower the rate of the credential to what its account may send, or ask the provider for more.",
        expression='sum by (kind) (increase(carillon_provider_calls_total{outcome="too_fast"}[5m])) > 0',
        minutes=10,
    ),
    Sign(
        name="ClockUncertain",
        severity=Severity.PAGE,
        sentence="A worker knows the database's time too badly, and sends no messages.",
        remedy="See that MongoDB answers this worker quickly; where it is far away, raise providers.clock_ms for all.",
        expression=(
            "max by (instance) (carillon_account_clock_bound_seconds)"
            " > on (instance) max by (instance) (carillon_account_clock_allowed_seconds)"
        ),
        minutes=2,
    ),
    Sign(
        name="CallsUnanswered",
        severity=Severity.PAGE,
        sentence=f"A provider leaves more than {UNANSWERED_SHARE * 100:g} % of its calls without an answer.",
        remedy="Suspend the credential: each call without an answer leaves a message unknown.",
        expression=_share(
            'carillon_provider_calls_total{outcome="unanswered"}',
            "carillon_provider_calls_total",
            UNANSWERED_SHARE,
            "kind",
        ),
        minutes=2,
    ),
    Sign(
        name="InstantsLost",
        severity=Severity.TICKET,
        sentence=f"More than {LOST_SHARE * 100:g} % of the instants for calls go unused although messages wait.",
        remedy="See why they are lost: workers without CPU, a slow MongoDB, or too few calls at a time.",
        expression=(
            "sum(increase(carillon_instants_lost_total[5m]))"
            " / (sum(increase(carillon_instants_lost_total[5m])) + sum(increase(carillon_provider_calls_total[5m])))"
            f" > {LOST_SHARE} and sum(increase(carillon_instants_lost_total[5m])) >= {LEAST_EVENTS}"
        ),
        minutes=10,
    ),
    Sign(
        name="DeadLettersGrow",
        severity=Severity.TICKET,
        sentence="Some callbacks failed every attempt.",
        remedy="Read the newest dead letters. Retry them once the receiver works. If the target is wrong, save the "
        "right one and retry. If the schedule has ended and its URL was wrong, give it the right URL and a new time, "
        "and discard this dead letter.",
        expression=_rise("carillon_dead_letters_total"),
    ),
    Sign(
        name="TasksPoisoned",
        severity=Severity.TICKET,
        sentence="Workers drop tasks: no worker can read them, or Carillon fails on them at every try.",
        remedy="Read the worker's log for `poisoned message` and `task failed`. Carillon queues unfinished work again.",
        expression=_rise('carillon_tasks_total{outcome="dropped"}'),
    ),
    Sign(
        name="FeedbackBehind",
        severity=Severity.TICKET,
        sentence="Feedback is not stored in time: a process has stored nothing for a minute, or its lag grows.",
        remedy="See that MongoDB takes writes; then add feedback processes, up to the partitions of the topics.",
        expression=(
            "max(carillon_feedback_flush_age_seconds) > 60"
            " or (sum(deriv(carillon_feedback_lag_records[10m])) > 0 and sum(carillon_feedback_lag_records) > 10000)"
        ),
        minutes=10,
    ),
    Sign(
        name="BusBehind",
        severity=Severity.PAGE,
        sentence=f"More than {UNREAD_EVENTS:,} events of the bus have waited for five minutes to be put into queues.",
        remedy="See that MongoDB takes writes; then add fan-outs, up to the partitions of the log.",
        expression=f"sum(carillon_bus_log_lag) > {UNREAD_EVENTS}",
        minutes=5,
    ),
    Sign(
        name="EventsLost",
        severity=Severity.TICKET,
        sentence="Events of the bus were lost: a backlog was beyond a limit, or the log forgot them or was replaced.",
        remedy="See whose they were and why: the notices, the dead letters and carillon_bus_events_lost_total tell it.",
        expression=_rise_of_notices("events.lost|log.replaced"),
    ),
    Sign(
        name="SubscriptionSuspended",
        severity=Severity.TICKET,
        sentence="A subscription of the bus is suspended: its receiver is gone, or did nothing but fail for days.",
        remedy="Tell its owner, who mends the receiver and resumes the subscription; it collects nothing until then.",
        expression=_rise_of_notices("subscription.suspended"),
    ),
    Sign(
        name="NoticesWait",
        severity=Severity.TICKET,
        sentence="A notice or an event of the outbox has waited for more than ten minutes to be published.",
        remedy="See that fan-outs run and that Kafka takes records; nothing is lost.",
        expression=f"max(carillon_bus_notice_oldest_seconds) > {UNTOLD_SECONDS}",
        minutes=5,
    ),
    Sign(
        name="UpkeepBusy",
        severity=Severity.TICKET,
        sentence="Upkeep finds lost work all the time: processes die, or messages vanish.",
        remedy="See which kind it finds, and which processes restart.",
        expression="sum(rate(carillon_upkeep_found_total[5m])) > 1",
        minutes=10,
    ),
    Sign(
        name="LanesLost",
        severity=Severity.TICKET,
        sentence="Workers give up more than one transaction a minute without knowing its outcome.",
        remedy="See that Kafka answers in time, and that no worker is frozen for long.",
        expression="60 * sum(rate(carillon_lanes_lost_total[5m])) > 1",
        minutes=10,
    ),
    Sign(
        name="LoopFailing",
        severity=Severity.TICKET,
        sentence="A repeated task of a process fails.",
        remedy="Read the log for `loop run failed`, which says what and why.",
        expression='sum by (loop) (increase(carillon_loop_runs_total{outcome="failed"}[10m])) > 0',
        minutes=10,
    ),
    Sign(
        name="ClockSkewed",
        severity=Severity.TICKET,
        sentence="A machine's clock differs from the database's by more than a second.",
        remedy="See that the machine's clock is kept by NTP.",
        expression=f"max by (instance) (abs(carillon_clock_skew_seconds)) > {SKEWED_SECONDS}",
        minutes=10,
    ),
    Sign(
        name="CertificateEnds",
        severity=Severity.TICKET,
        sentence=f"A certificate ends within {ENDS_WITHIN_DAYS} days.",
        remedy="Renew the one that the label `of` names; processes read the files again by themselves.",
        expression=f"min by (of) (carillon_certificate_expiry_timestamp_seconds) - time() < {ENDS_WITHIN_DAYS} * 86400",
        minutes=10,
    ),
    Sign(
        name="VersionsMixed",
        severity=Severity.TICKET,
        sentence="Processes of several releases have been running for an hour.",
        remedy="Finish the upgrade, or take it back.",
        expression="count(count by (version) (carillon_build_info)) > 1",
        minutes=60,
    ),
    Sign(
        name="SignInsRefused",
        severity=Severity.TICKET,
        sentence="The API refuses more than one unknown caller a second.",
        remedy="Find the answers 401 in the log of the proxy before the API: an old token, or an attacker.",
        expression='sum(rate(carillon_sign_ins_total{outcome="refused"}[5m])) > 1',
        minutes=10,
    ),
)
