"""The six dashboards as a list of panels, and what Grafana reads of them.

`python -m monitoring` writes them. Every expression is what Prometheus is asked, word for word: there is no variable in
it, so tests can ask the same. Grafana itself was not at hand when these were made.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

_COLUMNS, _WIDTH, _HEIGHT = 3, 8, 8
_SCHEMA = 39  # of Grafana 10 and later
_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(Struct, frozen=True, kw_only=True):
    """Lines over time: an expression by the name of its lines, in which `{{label}}` stands for a label's value."""

    title: str
    lines: Mapping[str, str]
    unit: str = "short"


def rates(metric: str, *by: str, only: str = "") -> str:
    """How fast a counter grows, a second."""
    return f"sum{_by(by)} (rate({metric}{only}[5m]))"


def quantile(metric: str, share: float, *by: str) -> str:
    """The value that a share `share` of a histogram's values does not exceed."""
    return f"histogram_quantile({share}, sum{_by(('le', *by))} (rate({metric}_bucket[5m])))"


def most(metric: str, *by: str) -> str:
    """The highest that any process tells: where several look at the same thing, they tell the same."""
    return f"max{_by(by)} ({metric})"


def _top(expression: str) -> str:
    """The ten highest of what may have a line for each of a thousand subscriptions."""
    return f"topk(10, {expression})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _quantiles(metric: str) -> dict[str, str]:
    return {f"{100 * share:.0f} % are below": quantile(metric, share) for share in (0.5, 0.99)}


_LATENESS = Panel(title="How late occurrences fire", lines=_quantiles("carillon_lateness_seconds"), unit="s")
_RECIPIENTS = Panel(
    title="Recipients", lines={"{{outcome}}": rates("carillon_recipients_total", "outcome")}, unit="ops"
)
_OPEN_JOBS = Panel(title="Open jobs", lines={"{{status}}": most("carillon_jobs_open", "status")})
_OLDEST_BATCH = Panel(
    title="The batch that waits longest", lines={"seconds": most("carillon_batch_oldest_queued_seconds")}, unit="s"
)
_FIRED = Panel(
    title="Attempts",
    lines={"{{callback}} {{outcome}}": rates("carillon_occurrences_fired_total", "callback", "outcome")},
    unit="ops",
)
_QUEUES = Panel(
    title="Messages in queues", lines={"{{queue}} {{state}}": most("carillon_queue_messages", "queue", "state")}
)
_DEAD_LETTERS = Panel(title="Dead letters", lines={"a second": rates("carillon_dead_letters_total")}, unit="ops")

OVERVIEW = (
    Panel(
        title="Alerts that fire",
        lines={"{{alertname}}": 'count by (alertname, severity) (ALERTS{alertstate="firing"})'},
    ),
    Panel(title="Processes", lines={"{{role}} {{version}}": "count by (role, version) (carillon_build_info)"}),
    _OPEN_JOBS,
    _RECIPIENTS,
    _OLDEST_BATCH,
    _LATENESS,
    _FIRED,
    Panel(
        title="Requests to the API",
        lines={"{{status}}": rates("carillon_http_requests_total", "status")},
        unit="reqps",
    ),
    Panel(title="How long the API takes", lines=_quantiles("carillon_http_request_seconds"), unit="s"),
    _QUEUES,
    _DEAD_LETTERS,
    Panel(
        title="Callers",
        lines={"{{way}} {{outcome}}": rates("carillon_sign_ins_total", "way", "outcome")},
        unit="reqps",
    ),
    Panel(title="Requests refused", lines={"{{why}}": rates("carillon_requests_refused_total", "why")}, unit="reqps"),
    Panel(
        title="Acts written down",
        lines={"{{act}} {{outcome}}": rates("carillon_audit_records_total", "act", "outcome")},
        unit="ops",
    ),
    Panel(
        title="Things done in bulk",
        lines={"{{act}} {{outcome}}": rates("carillon_bulk_things_total", "act", "outcome")},
        unit="ops",
    ),
    Panel(
        title="Signs of life that could not be stored",
        lines={"a second": rates("carillon_heartbeat_failures_total")},
        unit="ops",
    ),
    Panel(title="Memory", lines={"{{instance}}": "max by (instance) (process_resident_memory_bytes)"}, unit="bytes"),
)

JOBS = (
    _OPEN_JOBS,
    Panel(
        title="Records sent",
        lines={"{{app}} {{service}}": rates("carillon_records_sent_total", "app", "service")},
        unit="ops",
    ),
    _RECIPIENTS,
    Panel(
        title="Recipients who got nothing, by reason",
        lines={
            "{{outcome}} {{reason}}": rates(
                "carillon_recipients_total", "outcome", "reason", only='{outcome=~"failed|skipped"}'
            )
        },
        unit="ops",
    ),
    Panel(
        title="From a job's start to its first batch", lines=_quantiles("carillon_job_start_delay_seconds"), unit="s"
    ),
    Panel(title="Batches settled", lines={"{{status}}": rates("carillon_batches_settled_total", "status")}, unit="ops"),
    _OLDEST_BATCH,
    Panel(title="Jobs closed", lines={"{{status}}": rates("carillon_jobs_closed_total", "status")}, unit="ops"),
    Panel(title="Jobs held by the breaker", lines={"a second": rates("carillon_jobs_tripped_total")}, unit="ops"),
    Panel(
        title="Tasks answered",
        lines={"{{queue}} {{outcome}}": rates("carillon_tasks_total", "queue", "outcome")},
        unit="ops",
    ),
    Panel(
        title="How long tasks wait, 99 %",
        lines={"{{queue}}": quantile("carillon_task_wait_seconds", 0.99, "queue")},
        unit="s",
    ),
    Panel(
        title="How long tasks take, 99 %",
        lines={"{{queue}}": quantile("carillon_task_seconds", 0.99, "queue")},
        unit="s",
    ),
    Panel(title="Tasks in hand", lines={"{{queue}}": "sum by (queue) (carillon_tasks_in_hand)"}),
    Panel(title="Lanes", lines={"{{state}}": "sum by (state) (carillon_lanes)"}),
    Panel(
        title="Lanes lost and batches recovered",
        lines={
            "lost": rates("carillon_lanes_lost_total"),
            "recovered: {{outcome}}": rates("carillon_recoveries_total", "outcome"),
        },
        unit="ops",
    ),
    Panel(title="Found by upkeep", lines={"{{kind}}": rates("carillon_upkeep_found_total", "kind")}, unit="ops"),
    Panel(title="Mails", lines={"{{outcome}}": rates("carillon_mails_total", "outcome")}, unit="ops"),
    Panel(title="Feedback", lines={"{{outcome}}": rates("carillon_feedback_records_total", "outcome")}, unit="ops"),
    Panel(
        title="Feedback writes", lines={"{{outcome}}": rates("carillon_feedback_flushes_total", "outcome")}, unit="ops"
    ),
    Panel(title="Feedback not stored yet", lines={"records": "sum(carillon_feedback_lag_records)"}),
    Panel(
        title="Since feedback was last stored",
        lines={"{{instance}}": "max by (instance) (carillon_feedback_flush_age_seconds)"},
        unit="s",
    ),
    Panel(
        title="Callbacks of providers",
        lines={"{{kind}} {{outcome}}": rates("carillon_callbacks_total", "kind", "outcome")},
        unit="ops",
    ),
)

CLOCK = (
    _LATENESS,
    Panel(title="The oldest that is not claimed", lines={"seconds": most("carillon_oldest_visible_seconds")}, unit="s"),
    _FIRED,
    Panel(
        title="Claimed",
        lines={
            "claimed": rates("carillon_occurrences_claimed_total"),
            "somebody else's when due": rates("carillon_occurrences_conflicts_total"),
            "suspects": rates("carillon_occurrences_suspects_total"),
        },
        unit="ops",
    ),
    Panel(title="Put off after a refusal", lines={"a second": rates("carillon_occurrences_retries_total")}, unit="ops"),
    _DEAD_LETTERS,
    Panel(
        title="HTTP calls that wait for their share",
        lines={
            "found no room in a worker": rates("carillon_calls_let_go_total"),
            "wait in the store": rates("carillon_calls_over_share_total"),
        },
        unit="ops",
    ),
    Panel(
        title="Occurrences",
        lines={"pending": most("carillon_occurrences_pending"), "held": "sum(carillon_occurrences_held)"},
    ),
    Panel(
        title="Clocks ahead of the database's",
        lines={"{{instance}}": "max by (instance) (carillon_clock_skew_seconds)"},
        unit="s",
    ),
)

ENGINES = (
    Panel(title="Calls", lines={"{{capability}}": rates("carillon_call_seconds_count", "capability")}, unit="ops"),
    Panel(
        title="How long calls take, 99 %",
        lines={"{{capability}}": quantile("carillon_call_seconds", 0.99, "capability")},
        unit="s",
    ),
    Panel(
        title="Calls that raise",
        lines={"{{capability}} {{error}}": rates("carillon_call_errors_total", "capability", "error")},
        unit="ops",
    ),
    Panel(
        title="Time in calls of servers",
        lines={
            "{{capability}} {{operation}}": f"topk(10, {rates('carillon_call_seconds_sum', 'capability', 'operation')})"
        },
        unit="s",
    ),
    _QUEUES,
    Panel(
        title="Requests by route",
        lines={"{{method}} {{route}}": rates("carillon_http_requests_total", "method", "route")},
        unit="reqps",
    ),
    Panel(
        title="How long routes take, 99 %",
        lines={"{{method}} {{route}}": quantile("carillon_http_request_seconds", 0.99, "method", "route")},
        unit="s",
    ),
    Panel(
        title="Connections ended by a bound",
        lines={"{{server}} {{reason}}": rates("carillon_http_refusals_total", "server", "reason")},
        unit="ops",
    ),
    Panel(
        title="Runs of loops",
        lines={"{{loop}} {{outcome}}": rates("carillon_loop_runs_total", "loop", "outcome")},
        unit="ops",
    ),
    Panel(
        title="How long loops take, 99 %", lines={"{{loop}}": quantile("carillon_loop_seconds", 0.99, "loop")}, unit="s"
    ),
    Panel(
        title="Work of loops",
        lines={"{{loop}} {{what}}": rates("carillon_loop_swept_total", "loop", "what")},
        unit="ops",
    ),
    Panel(
        title="How late event loops come, 99 %",
        lines={"{{instance}}": quantile("carillon_event_loop_lag_seconds", 0.99, "instance")},
        unit="s",
    ),
    Panel(
        title="Turns of event loops (CPU)",
        lines={
            "99 % are below, {{instance}}": quantile("carillon_event_loop_stretch_cpu_seconds", 0.99, "instance"),
            "longest, {{instance}}": most("carillon_event_loop_longest_stretch_cpu_seconds", "instance"),
        },
        unit="s",
    ),
    Panel(
        title="Certificates end in",
        lines={"{{of}}": "min by (of) (carillon_certificate_expiry_timestamp_seconds) - time()"},
        unit="s",
    ),
    Panel(title="CPU", lines={"{{instance}}": rates("process_cpu_seconds_total", "instance")}, unit="s"),
)

MESSAGES = (
    Panel(
        title="Calls of providers",
        lines={"{{kind}} {{outcome}}": rates("carillon_provider_calls_total", "kind", "outcome")},
        unit="ops",
    ),
    Panel(
        title="How long calls of providers take, 99 %",
        lines={"{{kind}}": quantile("carillon_provider_call_seconds", 0.99, "kind")},
        unit="s",
    ),
    Panel(
        title="Messages that became unknown",
        lines={"{{why}}": rates("carillon_messages_unknown_total", "why")},
        unit="ops",
    ),
    Panel(
        title="Requests for instants",
        lines={"{{outcome}}": rates("carillon_grants_total", "outcome")},
        unit="ops",
    ),
    Panel(title="Instants lost", lines={"{{why}}": rates("carillon_instants_lost_total", "why")}, unit="ops"),
    Panel(title="Accounts slowed", lines={"a second": rates("carillon_accounts_slowed_total")}, unit="ops"),
    Panel(
        title="Places of accounts", lines={"{{outcome}}": rates("carillon_account_places_total", "outcome")}, unit="ops"
    ),
    Panel(title="How long writing ahead takes", lines=_quantiles("carillon_write_ahead_seconds"), unit="s"),
    Panel(
        title="How well the database's time is known",
        lines={
            "wrong by at most, {{instance}}": most("carillon_account_clock_bound_seconds", "instance"),
            "allowed, {{instance}}": most("carillon_account_clock_allowed_seconds", "instance"),
        },
        unit="s",
    ),
    Panel(
        title="Accounts that took another clock",
        lines={"a second": rates("carillon_account_clock_adoptions_total")},
        unit="ops",
    ),
    Panel(title="Credentials in the way of jobs", lines={"{{status}}": most("carillon_credentials_blocked", "status")}),
)

BUS = (
    Panel(
        title="Events published",
        lines={"{{topic}} of {{publisher}}": _top(rates("carillon_bus_events_published_total", "topic", "publisher"))},
        unit="ops",
    ),
    Panel(
        title="Bytes published",
        lines={"{{topic}} of {{publisher}}": _top(rates("carillon_bus_event_bytes_total", "topic", "publisher"))},
        unit="Bps",
    ),
    Panel(
        title="Events put into queues",
        lines={"{{subscription}}": _top(rates("carillon_bus_events_added_total", "subscription"))},
        unit="ops",
    ),
    Panel(
        title="Events that left queues",
        lines={
            "{{subscription}} {{reason}}": _top(rates("carillon_bus_events_settled_total", "subscription", "reason"))
        },
        unit="ops",
    ),
    Panel(
        title="Events lost",
        lines={"{{subscription}} {{reason}}": _top(rates("carillon_bus_events_lost_total", "subscription", "reason"))},
        unit="ops",
    ),
    Panel(title="Notices told", lines={"{{kind}}": rates("carillon_bus_notices_total", "kind")}, unit="ops"),
    Panel(title="The notice that waits longest", lines={"all": "max(carillon_bus_notice_oldest_seconds)"}, unit="s"),
    Panel(
        title="Records that are not in queues yet",
        lines={
            "all": "sum(carillon_bus_log_lag)",
            "subscriptions in the way": "max(carillon_bus_unreadable_subscriptions)",
        },
    ),
    Panel(
        title="Flushes of fan-outs", lines={"{{outcome}}": rates("carillon_bus_flushes_total", "outcome")}, unit="ops"
    ),
    Panel(
        title="Records that are no events", lines={"a second": rates("carillon_bus_records_skipped_total")}, unit="ops"
    ),
    Panel(
        title="Deliveries",
        lines={"{{subscription}} {{outcome}}": _top(rates("carillon_bus_deliveries_total", "subscription", "outcome"))},
        unit="ops",
    ),
    Panel(
        title="Events of deliveries",
        lines={"{{outcome}}": rates("carillon_bus_delivered_events_total", "outcome")},
        unit="ops",
    ),
    Panel(
        title="How long receivers take, 99 %",
        lines={"{{outcome}}": quantile("carillon_bus_delivery_seconds", 0.99, "outcome")},
        unit="s",
    ),
    Panel(
        title="From arrival to an attempt, 99 %",
        lines={"{{attempt}}": quantile("carillon_bus_latency_seconds", 0.99, "attempt")},
        unit="s",
    ),
    Panel(
        title="Open deliveries",
        lines={"{{subscription}}": _top(most("carillon_bus_queued_deliveries", "subscription"))},
    ),
    Panel(
        title="Events that wait", lines={"{{subscription}}": _top(most("carillon_bus_queued_events", "subscription"))}
    ),
    Panel(
        title="The event that waits longest",
        lines={"{{subscription}}": _top(most("carillon_bus_oldest_seconds", "subscription"))},
        unit="s",
    ),
    Panel(
        title="The receivers that are worst",
        lines={"{{subscription}}": "bottomk(10, min by (subscription) (carillon_bus_health_points))"},
    ),
    Panel(title="Replays", lines={"{{state}}": most("carillon_bus_replays", "state")}),
    Panel(title="Wake-ups", lines={"{{stage}}": most("carillon_bus_wake_ups", "stage")}),
    Panel(
        title="Wake-ups handed over again",
        lines={"a second": rates("carillon_bus_wake_ups_handed_again_total")},
        unit="ops",
    ),
)

DASHBOARDS: Mapping[str, tuple[Panel, ...]] = {
    "overview": OVERVIEW,
    "jobs": JOBS,
    "messages": MESSAGES,
    "clock": CLOCK,
    "bus": BUS,
    "engines": ENGINES,
}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of every panel, with where it stands."""
    for name, panels in DASHBOARDS.items():
        for panel in panels:
            for line, expression in panel.lines.items():
                yield f"{name}: {panel.title}: {line}", expression


def grafana(name: str) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    return {
        "uid": f"carillon-{name}",
        "title": f"Carillon: {name}",
        "tags": ["carillon"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [_grafana_panel(place, panel) for place, panel in enumerate(DASHBOARDS[name])],
    }


def _grafana_panel(place: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(place, _COLUMNS)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _DATA_SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _DATA_SOURCE, "expr": expression, "legendFormat": line}
            for number, (line, expression) in enumerate(panel.lines.items())
        ],
    }
