"""Every metric of Carillon, in one list, each with its sentence.

They are constants, because a process has one `/metrics` page. Services that share a process add to the same series.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

REGISTRY = CollectorRegistry()
OF_PROCESS = ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)
# A query takes milliseconds, a batch tenths of a second, a deadline tens of seconds.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Waiting work may be minutes late, or an hour.
_LONG_SECONDS = (*_SECONDS, 300.0, 3600.0)


def _counter(name: str, sentence: str, *labels: str) -> Counter:
    return Counter(f"carillon_{name}", sentence, labels, registry=REGISTRY)


def _gauge(name: str, sentence: str, *labels: str) -> Gauge:
    return Gauge(f"carillon_{name}", sentence, labels, registry=REGISTRY)


def _histogram(name: str, sentence: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
    return Histogram(f"carillon_{name}", sentence, labels, registry=REGISTRY, buckets=buckets)


BUILD_INFO = _gauge("build_info", "1 for each role that this process has, with its release.", "version", "role")
RECORDS_SENT = _counter("records_sent_total", "Records whose transaction this process saw committed.", "app", "service")
RECIPIENTS = _counter(
    "recipients_total",
    "Recipients of settled batches: sent, failed, skipped, held_out, unknown; failed and skipped ones by reason.",
    "app",
    "service",
    "outcome",
    "reason",
)
BATCHES_SETTLED = _counter("batches_settled_total", "Batches that reached a final status.", "status")
JOBS_CLOSED = _counter("jobs_closed_total", "Jobs with nothing left to do, by their last status.", "status")
JOBS_TRIPPED = _counter("jobs_tripped_total", "Jobs held: too many batches failed, or messages bounced.")
JOBS_OPEN = _gauge("jobs_open", "Jobs with something left to do, as a scheduler last counted them.", "status")
JOB_START_DELAY = _histogram(
    "job_start_delay_seconds",
    "From a job's start, or its acceptance, to the commit of its first batch.",
    buckets=_LONG_SECONDS,
)
BATCH_OLDEST_QUEUED = _gauge(
    "batch_oldest_queued_seconds", "How long a batch of a running job has waited in a queue, at most."
)
MAILS = _counter("mails_total", "Mails about jobs, by outcome.", "outcome")
TASKS = _counter("tasks_total", "Messages that workers took, by how they were answered.", "queue", "outcome")
TASK_SECONDS = _histogram("task_seconds", "From taking a message to answering it.", "queue")
TASK_WAIT_SECONDS = _histogram(
    "task_wait_seconds", "From publishing a message to taking it for the first time.", "queue", buckets=_LONG_SECONDS
)
TASKS_IN_HAND = _gauge("tasks_in_hand", "Messages that this process has taken and not answered.", "queue")
QUEUE_MESSAGES = _gauge("queue_messages", "Messages of a queue of tasks: ready or unacked.", "queue", "state")
LANES = _gauge("lanes", "Lanes of this process: idle, or sending a part.", "state")
LANES_LOST = _counter(
    "lanes_lost_total", "Lanes abandoned because the outcome of their transaction was unknown or they were fenced."
)
RECOVERIES = _counter(
    "recoveries_total", "Owned batches that were recovered: sent, clear (nothing was out) or unknown.", "outcome"
)
UPKEEP_FOUND = _counter("upkeep_found_total", "Work that upkeep found standing still and set going again.", "kind")
LATENESS = _histogram(
    "lateness_seconds",
    "From an occurrence's instant, or one tick after its acceptance, to its firing.",
    buckets=_LONG_SECONDS,
)
OLDEST_VISIBLE = _gauge("oldest_visible_seconds", "The age of the oldest occurrence that waits to be claimed.")
CLAIMED = _counter("occurrences_claimed_total", "Occurrences that this process has claimed.")
FIRED = _counter(
    "occurrences_fired_total", "Attempts by the kind of callback and how they ended.", "callback", "outcome"
)
CONFLICTS = _counter("occurrences_conflicts_total", "Claimed occurrences that another process had when they were due.")
SUSPECTS = _counter("occurrences_suspects_total", "Occurrences fired alone, because processes may have died of them.")
RETRIES = _counter("occurrences_retries_total", "Occurrences put off after an answer that refused.")
DEAD = _counter("dead_letters_total", "Occurrences that were refused to the last attempt.")
CALLS_LET_GO = _counter(
    "calls_let_go_total", "HTTP callbacks that found no room in a worker, because their namespace had its share of it."
)
CALLS_OVER_SHARE = _counter(
    "calls_over_share_total", "HTTP callbacks that wait in the store, because enough of their namespace are in hand."
)
PENDING = _gauge("occurrences_pending", "About how many occurrences there are.")
HELD = _gauge("occurrences_held", "Occurrences that this process holds in memory until they are due.")
CLOCK_SKEW = _gauge("clock_skew_seconds", "By how much this machine's clock is ahead of the database's.")
PROVIDER_CALLS = _counter(
    "provider_calls_total",
    "Calls of provider accounts by kind and outcome: accepted, refused, not_now, too_fast, login_refused or "
    "unanswered.",
    "kind",
    "outcome",
)
PROVIDER_CALL_SECONDS = _histogram(
    "provider_call_seconds", "From asking for a connection of a provider to its answer.", "kind"
)
GRANTS = _counter(
    "grants_total",
    "Requests for instants of an account: granted, or the reason for none (rate, provider, maxInFlight, clock).",
    "outcome",
)
INSTANTS_LOST = _counter(
    "instants_lost_total",
    "Granted instants without a call although messages were left, by reason: late, not_ready or no_permit.",
    "why",
)
ACCOUNTS_SLOWED = _counter("accounts_slowed_total", "Times that a provider said `too fast` and its account was held.")
MESSAGES_UNKNOWN = _counter(
    "messages_unknown_total",
    "Messages that may or may not have been sent: no_answer of the provider, or a lost_worker.",
    "why",
)
ACCOUNT_PLACES = _counter(
    "account_places_total",
    "Places of accounts that batches asked for: taken, or waited for, because none was free.",
    "outcome",
)
WRITE_AHEAD_SECONDS = _histogram("write_ahead_seconds", "How long it took to note messages ahead of their calls.")
ACCOUNT_CLOCK_BOUND = _gauge(
    "account_clock_bound_seconds",
    "By how much the database's time may be misread where messages are sent; 0 where none are.",
)
ACCOUNT_CLOCK_ALLOWED = _gauge(
    "account_clock_allowed_seconds", "`providers.clock_ms`: a process that may misread it by more sends nothing."
)
CLOCK_ADOPTIONS = _counter(
    "account_clock_adoptions_total", "Accounts that go by another clock of the database than before."
)
CREDENTIALS_BLOCKED = _gauge(
    "credentials_blocked",
    "Credentials that send nothing though jobs wait for them, as a scheduler last counted them: suspended or rejected.",
    "status",
)
FEEDBACK_RECORDS = _counter("feedback_records_total", "Feedback records: counted, or skipped for a reason.", "outcome")
FEEDBACK_FLUSHES = _counter(
    "feedback_flushes_total", "Writes of folded counts: stored, or lost to another consumer.", "outcome"
)
FEEDBACK_LAG = _gauge("feedback_lag_records", "Feedback records on the topics of this process that are not stored yet.")
FEEDBACK_FLUSH_AGE = _gauge(
    "feedback_flush_age_seconds", "For how long this process has not stored all feedback that it had read."
)
BUS_EVENTS_PUBLISHED = _counter(
    "bus_events_published_total", "Events that the log has taken, by topic and its owner.", "topic", "publisher"
)
BUS_EVENT_BYTES = _counter("bus_event_bytes_total", "Bytes of published events in the log.", "topic", "publisher")
BUS_EVENTS_ADDED = _counter(
    "bus_events_added_total", "Events that fan-outs and replays put into queues.", "subscription"
)
BUS_EVENTS_SETTLED = _counter(
    "bus_events_settled_total",
    "Events that left a queue, by reason: delivered, dead (now in a dead letter) or discarded with their subscription.",
    "subscription",
    "reason",
)
BUS_EVENTS_LOST = _counter(
    "bus_events_lost_total",
    "Events that will not be delivered, by reason. log: the log was replaced, or deleted them before a fan-out or a "
    "replay had read them. age, backlog: they waited too long, or too many waited. fault: a replay failed. A replay's "
    "count includes records of all topics.",
    "subscription",
    "reason",
)
BUS_NOTICES = _counter("bus_notices_total", "Notices that Carillon has published about the bus, by kind.", "kind")
BUS_NOTICE_AGE = _gauge(
    "bus_notice_oldest_seconds",
    "Age of the oldest notice or event in the outbox that is not published; 0 if there is none.",
)
BUS_FLUSHES = _counter(
    "bus_flushes_total",
    "Flushes of fan-outs: stored, lost to another one, or folded_again, because subscriptions had changed.",
    "outcome",
)
BUS_RECORDS_SKIPPED = _counter(
    "bus_records_skipped_total", "Records in the log that are no events: another program has written them."
)
BUS_UNREADABLE = _gauge(
    "bus_unreadable_subscriptions",
    "Subscriptions of a later version, which this process cannot read: it leaves the log to others.",
)
BUS_LOG_LAG = _gauge("bus_log_lag", "Records of the log, in partitions of this process, that are not in queues yet.")
BUS_DELIVERIES = _counter(
    "bus_deliveries_total", "Calls of receivers: success, failure or throttled.", "subscription", "outcome"
)
BUS_DELIVERED_EVENTS = _counter(
    "bus_delivered_events_total",
    "Events in calls of receivers: success, failure or throttled.",
    "subscription",
    "outcome",
)
BUS_DELIVERY_SECONDS = _histogram("bus_delivery_seconds", "How long the call of a receiver took.", "outcome")
BUS_LATENCY = _histogram(
    "bus_latency_seconds",
    "From the arrival of a delivery's first event to its first attempt, or to the last one, which succeeded.",
    "attempt",
    buckets=_LONG_SECONDS,
)
BUS_QUEUED_DELIVERIES = _gauge(
    "bus_queued_deliveries", "Open deliveries of a subscription, as a scheduler last counted them.", "subscription"
)
BUS_QUEUED_EVENTS = _gauge(
    "bus_queued_events", "Events that wait for a subscription, as a scheduler last counted them.", "subscription"
)
BUS_OLDEST = _gauge("bus_oldest_seconds", "For how long the oldest event of a subscription has waited.", "subscription")
BUS_HEALTH_POINTS = _gauge(
    "bus_health_points", "Health of a subscription's receiver: 100 is well, 0 is bad.", "subscription"
)
BUS_WAKE_UPS = _gauge(
    "bus_wake_ups", "Wake-ups of subscriptions with something to do: resting, handed or busy.", "stage"
)
BUS_REPLAYS = _gauge(
    "bus_replays",
    "Replays that are not over: waiting for their subscription to be resumed, running, or held while its queue is half "
    "full or it collects nothing.",
    "state",
)
BUS_WAKE_UPS_HANDED_AGAIN = _counter(
    "bus_wake_ups_handed_again_total", "Wake-ups handed to workers again, because the worker that had them was lost."
)
BULK_THINGS = _counter(
    "bulk_things_total", "Things that bulk actions acted on: done, skipped or failed, by act.", "act", "outcome"
)
CALLBACKS = _counter(
    "callbacks_total",
    "Reports about messages in the callbacks of providers: stored, unchanged, early (the provider is to come again), "
    "skipped (of no known message) or of a test. Also callbacks that were refused, malformed, or of a subscription.",
    "kind",
    "outcome",
)
HTTP_REQUESTS = _counter("http_requests_total", "Requests that the API answered.", "route", "method", "status")
HTTP_REQUEST_SECONDS = _histogram(
    "http_request_seconds", "From a request's arrival to its answer.", "route", "method", "status"
)
HTTP_REFUSALS = _counter(
    "http_refusals_total",
    "Connections that an HTTP server ended for its own safety, by the status of its answer, or `cut_off` without one.",
    "server",
    "reason",
)
REQUESTS_REFUSED = _counter(
    "requests_refused_total",
    "Requests that a guard refused: for the host that they name, as another site's, or for want of a role.",
    "why",
)
SIGN_INS = _counter(
    "sign_ins_total", "Callers of the API, by how they show who they are: known, or refused.", "way", "outcome"
)
AUDIT_RECORDS = _counter("audit_records_total", "Acts that were recorded, by outcome.", "act", "outcome")
CERTIFICATE_EXPIRY = _gauge(
    "certificate_expiry_timestamp_seconds",
    "When the certificate in the file of a setting ends, or that of a server by its name, in seconds since 1970.",
    "of",
)
LOOP_LAG = _histogram("event_loop_lag_seconds", "How late the event loop came to a task that was due.")
LOOP_STRETCH = _histogram(
    "event_loop_stretch_cpu_seconds",
    "CPU time of the event loop's thread between two looks at it: no turn of the loop took more.",
)
LOOP_LONGEST_STRETCH = _gauge(
    "event_loop_longest_stretch_cpu_seconds",
    "The most CPU time between two looks at the event loop since the process started.",
)
LOOP_RUNS = _counter("loop_runs_total", "Runs of a periodic loop: ok or failed.", "loop", "outcome")
LOOP_SECONDS = _histogram("loop_seconds", "How long a run of a periodic loop took.", "loop")
LOOP_SWEPT = _counter(
    "loop_swept_total", "Things that periodic loops worked on: claimed, retried or discarded.", "loop", "what"
)
HEARTBEAT_FAILURES = _counter(
    "heartbeat_failures_total", "Signs of life, and counts for the minutes, that could not be stored."
)
CALL_SECONDS = _histogram(
    "call_seconds", "How long calls of a capability (store, broker, stream, ...) took.", "capability", "operation"
)
CALL_ERRORS = _counter(
    "call_errors_total", "Calls of a capability that raised, by the error.", "capability", "operation", "error"
)
# Prometheus sees a rise only in a series that existed before.
for _outcome in ("sent", "clear", "unknown"):
    RECOVERIES.labels(_outcome)
for _why in ("host", "cross_site", "role"):
    REQUESTS_REFUSED.labels(_why)
for _why in ("no_answer", "lost_worker"):
    MESSAGES_UNKNOWN.labels(_why)
for _why in ("late", "not_ready", "no_permit"):
    INSTANTS_LOST.labels(_why)


def page() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


OTHER = "other"
MOST_LABELS = 1_000


class BoundedLabels:
    """The values of one label in this process: the first `most` that come, and `other`."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value
