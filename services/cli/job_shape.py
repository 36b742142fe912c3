"""Jobs and groups as tables and pages show them."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from services.cli.output import (
    NANOSECONDS,
    STATE_COLOURS,
    Fields,
    Json,
    Output,
    TableColumn,
    as_json,
    count_things,
    format_share,
    format_span,
    format_when,
    group_digits,
    read_wire,
    state_column,
    visible,
)
from shared.jobs.rules.events import SILENT, label_of, per_unit

BAD_ENDS = frozenset({"stopped", "failed", "expired"})
ENDED = BAD_ENDS | {"completed"}
BAD = BAD_ENDS | {"circuitbreak"}
_SUMS = {
    "sent": "sent",
    "failed": "failed",
    "skipped": "skipped",
    "heldOut": "held out",
    "unknown": "users without a device",
}
_OPTIONS = {
    "recipientColumn": ("recipient column", ("recipient", "token")),
    "locale": ("locale", ("en",)),
    "defaultRegion": ("default region", ("",)),
    "duplicates": ("duplicates", ("once",)),
    "onUnknown": ("on unknown", ("hold",)),
    "haltOn": ("halt on", (None,)),
    "share": ("share", (1,)),
    "list": ("list", ("",)),
    "transactional": ("transactional", (False,)),
    "maxRecipients": ("max recipients", (0,)),
}
"""The options of a job by a credential, in words, and their defaults."""

_MAIL_HALT = {"share": 0.1, "minimum": 10}


def state_of(job: Json) -> str:
    """A job's state."""
    return str(job["state"])


def state_in_list(job: Json) -> str:
    """A job's state, or that all of it failed, which "completed" does not say."""
    state = state_of(job)
    has_sent_nothing = state == "completed" and job["totalTokens"] and not job["sent"]
    return f"{state}, 0 sent" if has_sent_nothing else state


def state_of_group(group: Json) -> str:
    """The state of a group: that of its liveliest job. It runs if some zones are done and others lie ahead."""
    states = {state_of(zone) for zone in group["zones"]}
    order = ("circuitbreak", "running", "paused", "scheduled", "failed", "stopped", "expired", "completed")
    liveliest = next((state for state in order if state in states), "scheduled")
    return "running" if liveliest == "scheduled" and "completed" in states else liveliest


def creation_of(out: Output, job: Json) -> str:
    if not job["zones"]:
        return f"Created job {job['id']}."
    first = out.when(min(zone["startsAt"] for zone in job["zones"]))
    return (
        f"Created localized push {job['jobGroupId']}: {len(job['zones'])} time zones have a job each, and the first "
        f"starts at {first}. Carillon fixes then which zones have devices."
    )


def fold_zones(jobs: Iterable[Json]) -> Iterator[Json]:
    """These jobs, with those of a localized push as one: they are adjacent in a list, because they are made at once."""
    for _, together in groupby(jobs, key=lambda job: job["jobGroupId"] if job["zone"] else job["id"]):
        zones = list(together)
        yield _fold(zones) if zones[0]["zone"] else zones[0]


def _fold(zones: Sequence[Json]) -> Json:
    summed = ("totalTokens", "completedTokens", "sent", "failed", "skipped")
    sums = {name: sum(zone[name] for zone in zones) for name in summed}
    return {
        **zones[0],
        **sums,
        "id": zones[0]["jobGroupId"],
        "state": state_of_group({"zones": zones}),
        "states": Counter(map(state_of, zones)),
        "zone": "",
        "startsAt": min(zone["startsAt"] for zone in zones),
        "completedAt": min(zone["completedAt"] for zone in zones),
    }


def job_columns(out: Output, *, app: bool = True) -> Sequence[TableColumn]:
    return [
        TableColumn("ID", lambda job: job["id"], "id"),
        *([TableColumn("APP", lambda job: job["app"]["name"])] if app else []),
        TableColumn("NAME", lambda job: job["name"]),
        TableColumn("KIND", lambda job: job["kind"], "word"),
        TableColumn("STATE", state_in_list, "word", lambda job: STATE_COLOURS.get(state_of(job), "")),
        TableColumn("DONE", _share, "number"),
        TableColumn("TOTAL", lambda job: job["totalTokens"], "number"),
        TableColumn("NOT SENT", lambda job: job["failed"] + job["skipped"], "number"),
        TableColumn("STARTS", lambda job: out.when(job["startsAt"] or job["createdAt"]), "word"),
        TableColumn("ZONE", _zone, "word"),
        TableColumn("MADE BY", lambda job: job["createdBy"]),
    ]


def units_of(job: Json) -> str:
    return "messages" if job.get("credentialId") else "devices"


def job_fields(out: Output, job: Json, *, credential: str = "") -> Fields:
    units = units_of(job)
    return [
        ("id", job["id"]),
        ("app", f"{job['app']['name']} ({job['appId']})"),
        ("group", job["jobGroupId"] if job["zone"] else ""),
        ("zone", job["zone"]),
        ("name", job["name"]),
        ("kind", job["kind"]),
        ("templates", job["templateName"]),
        ("service", "" if credential else job["service"]),
        ("credential", credential),
        ("options", _options(job)),
        ("state", state_in_list(job)),
        ("failure", job["failure"]),
        ("done", f"{_share(job)} of {group_digits(job['totalTokens'])} {units}"),
        *((_sum_words(job, name), group_digits(job[name])) for name in _SUMS if job[name]),
        ("rate", format_rate(job["rate"]) if job["rate"] else ""),
        ("ends about", out.when(job["estimatedEnd"]) if job["estimatedEnd"] else ""),
        ("batches", f"{group_digits(job['completedBatches'])} of {group_digits(job['totalBatches'])}"),
        ("filters", [f"{column}: {value}" for column, value in job["filters"].items()]),
        ("file", job["csvPath"]),
        ("control group", f"{job['controlGroup']:.2%}" if job["controlGroup"] else ""),
        ("held out are in", job["controlGroupCsvPath"]),
        ("context", job["context"]),
        ("metadata", job["metadata"]),
        ("messages", _counts(job.get("messages", {}))),
        ("ahead of it", _queue(job.get("queue"))),
        ("reasons", _counts(job["reasons"])),
        ("locales", _counts(job["locales"])),
        ("feedback", _counts(job["feedbacks"])),
        ("starts", out.when(job["startsAt"]) if job["startsAt"] else ""),
        ("expires", out.when(job["expiresAt"]) if job["expiresAt"] else ""),
        ("schedule", job["schedule"]["key"] if job.get("schedule") else ""),
        ("made", f"{out.when(job['createdAt'])} by {job['createdBy']}"),
        ("completed", out.when(job["completedAt"]) if job["completedAt"] else ""),
        ("events", [event_line(out, event) for event in events_of(job)][-10:]),
        ("left out", "personal data: you are a viewer" if job["redacted"] else ""),
    ]


def _sum_words(job: Json, name: str) -> str:
    """The words for a sum: those of a message's states, where the job sends such."""
    return "invalid" if name == "skipped" and job.get("credentialId") else _SUMS[name]


def group_fields(out: Output, group: Json, *, app: str) -> Fields:
    """The sums of a group. `app` is the name of its app."""
    return [
        ("id", group["id"]),
        ("app", f"{app} ({group['appId']})"),
        ("name", group["name"]),
        ("templates", group["templateName"]),
        ("state", state_of_group(group)),
        ("done", f"{_share(group)} of {group_digits(group['totalTokens'])} devices in zones that have started"),
        *((words, group_digits(group[name])) for name, words in _SUMS.items() if group[name]),
        ("local start", format_when(group["startsAt"], utc=True).removesuffix("Z")),
        ("zones", _describe_zones(out, group)),
        ("warnings", list(group.get("warnings", ()))),
        ("past zones", group["pastTimeStrategy"]),
        ("made", f"{out.when(group['createdAt'])} by {group['createdBy']}"),
    ]


def _describe_zones(out: Output, group: Json) -> str:
    zones, found = group["zones"], zones_with_devices(group)
    if found is not None:
        return f"{len(found)} with devices, {len(zones) - len(found)} without"
    if all(state_of(zone) in ENDED for zone in zones):
        return str(len(zones))
    first = out.when(min(zone["startsAt"] for zone in zones))
    return f"{len(zones)}; which of them have devices is fixed when the first one starts, at {first}"


def zones_with_devices(group: Json) -> list[Json] | None:
    """The zones of a group that have devices; `None` if unknown yet."""
    zones = group["zones"]
    if any(zone.get("devices") is None and state_of(zone) != "completed" for zone in zones):
        return None
    return [zone for zone in zones if zone.get("devices") or zone["totalTokens"] or zone["failure"]]


def start_column() -> TableColumn:
    """The start of a zone; its own clocks show the same time in each zone."""
    return TableColumn("START (UTC)", lambda zone: format_when(zone["startsAt"], utc=True).removesuffix("Z"), "word")


def zone_columns() -> Sequence[TableColumn]:
    return [
        TableColumn("ZONE", lambda zone: zone["zone"], "word"),
        TableColumn("JOB", lambda zone: zone["jobId"], "id"),
        state_column("STATE", state_of),
        start_column(),
        TableColumn("DONE", _share, "number"),
        TableColumn("DEVICES", lambda zone: zone.get("devices") or zone["totalTokens"], "number"),
        TableColumn("FAILURE", lambda zone: zone["failure"]),
    ]


def events_of(job: Json) -> list[dict[str, Any]]:
    """The events of a job, in order, each with its stage."""
    events = [
        {**event, "stage": stage["name"], "jobId": job["id"]}
        for stage in job["statusEvents"] or []
        for event in stage["events"]
    ]
    return sorted(events, key=lambda event: event["createdAt"])


def event_line(out: Output, event: Json) -> str:
    message = "" if event["message"] in SILENT else event["message"]
    parts = (out.when(event["createdAt"]), label_of(event["stage"], event["state"]), message, _doer(event))
    return visible("  ".join(part for part in parts if part))


def _doer(event: Json) -> str:
    """The user or token that did it, if any: most acts are Carillon's own."""
    by = event["by"]
    return "" if by["kind"] == "system" else f"by {by['name']}"


def time_left(job: Json) -> str:
    end = read_wire(job.get("estimatedEnd"))
    return format_span(end.timestamp() - time.time_ns() / NANOSECONDS) if end else ""


def _queue(queue: Json | None) -> str:
    if not queue or not queue["jobs"]:
        return ""
    jobs, messages = count_things(queue["jobs"], "job"), count_things(queue["messages"], "message")
    starts = "" if queue["startsIn"] is None else f"; it begins in {format_span(queue['startsIn'])}"
    return f"{messages} of {jobs}{starts}"


def format_rate(per_second: float) -> str:
    """A rate for people: `12 a second`, `2.74 a minute`."""
    count, unit = per_unit(per_second)
    return f"{group_digits(round(count)) if count >= 100 else format(count, '.3g')} a {unit}"


def _options(job: Json) -> list[str]:
    """The options that differ from the defaults, one a line."""
    usual = [_MAIL_HALT] if job["kind"] == "mail" else [None]
    found = []
    for name, value in (job.get("options") or {}).items():
        words, defaults = _OPTIONS.get(name, (name, ()))
        if value not in (usual if name == "haltOn" else defaults):
            found.append(f"{words}: {value if isinstance(value, str) else as_json(value)}")
    return found


def _zone(job: Json) -> str:
    zones = sum(job.get("states", {}).values())
    return str(job["zone"]) or (count_things(zones, "zone") if zones else "")


def _share(job: Json) -> str:
    states = job.get("states", {})
    if {*states} == {"scheduled"}:
        return "-"
    if states.get("scheduled"):  # the devices of such zones are not counted yet
        return format_share(sum(count for state, count in states.items() if state in ENDED), sum(states.values()))
    done, total = job["completedTokens"], job["totalTokens"]
    return format_share(done, total) if total else ("100.0%" if job.get("completedAt") else "-")


def _counts(counts: Json) -> list[str]:
    return [
        f"{name}: {group_digits(count)}" for name, count in sorted(counts.items(), key=lambda pair: -pair[1]) if count
    ]
