"""Screens of jobs, groups and messages: fields, columns, previews and progress."""

import csv
import sys
from collections.abc import Iterable, Sequence
from itertools import chain

from services.cli.exits import Exit
from services.cli.job_shape import (
    BAD,
    ENDED,
    format_rate,
    group_fields,
    job_fields,
    start_column,
    state_of,
    state_of_group,
    time_left,
    zones_with_devices,
)
from services.cli.output import (
    Fields,
    Json,
    Output,
    TableColumn,
    as_json,
    count_things,
    format_span,
    group_digits,
    state_column,
    visible,
)
from services.cli.session import Session
from services.cli.watching import Glance, watch

MESSAGE_STATES = ("unsent", "sending", "unknown", "sent", "delivered", "read", "failed", "invalid")
_COLUMNS = (
    "id", "recipient", "state", "reason", "detail", "attempt", "round", "repeated", "providerId", "answeredAt",
    "deliveredAt", "readAt", "redactedAt",
)  # fmt: skip
_SAID_BY_OTHERS = {"reason", "detail", "providerId"}
_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")


def message_columns(out: Output, *, of_app: bool = False) -> Sequence[TableColumn]:
    """The columns of a list of messages of a job, or with `of_app` of many jobs."""
    sources = (
        TableColumn("JOB", lambda message: message.get("jobId", ""), "id"),
        TableColumn("TEMPLATE", template_of),
    )
    return (
        TableColumn("ID", lambda message: message["id"], "id"),
        TableColumn("RECIPIENT", _recipient_of),
        state_column("STATE", lambda message: message["state"]),
        TableColumn("REASON", reason_of, "word"),
        *(sources if of_app else ()),
        TableColumn("ANSWERED", lambda message: _when(out, message["answeredAt"]), "word"),
        TableColumn("DETAIL", lambda message: message["detail"]),
    )


def message_fields(out: Output, message: Json) -> Fields:
    """The non-empty fields of a message."""
    times = {name: message[f"{name}At"] for name in ("answered", "delivered", "read", "redacted")}
    return [
        ("id", message["id"]),
        ("credential", message["credentialId"]),
        ("recipient", _recipient_of(message)),
        ("job", message.get("jobId", "")),
        ("template", template_of(message)),
        ("subject", message.get("subject", "")),
        ("for", _when(out, message.get("sendAt"))),
        ("until", _when(out, message.get("expiresAt"))),
        ("state", message["state"]),
        ("reason", reason_of(message)),
        ("detail", message["detail"]),
        ("attempts", str(message["attempt"])),
        ("repeated", str(message["repeated"]) if message["repeated"] else ""),
        ("provider's id", message["providerId"]),
        *((name, _when(out, at)) for name, at in times.items()),
        ("earlier", [_attempt_line(each) for each in message.get("earlier", [])]),
        ("left out", _what_is_left_out(message)),
    ]


def _recipient_of(message: Json) -> str:
    return str("(redacted)" if message["redactedAt"] else message["recipient"].strip() or "(blank)")


def template_of(message: Json) -> str:
    name, locale = message.get("template", ""), message.get("locale", "")
    return f"{name} ({locale})" if name and locale else name


def reason_of(message: Json) -> str:
    """The reason, in words if one word could be taken for a failure."""
    is_unsubscribed = message["state"] == "invalid" and message["reason"] == "unsubscribed"
    return "not sent: unsubscribed" if is_unsubscribed else str(message["reason"])


def _what_is_left_out(message: Json) -> str:
    if not message["redacted"]:
        return ""
    return "personal data: " + ("it is forgotten" if message["redactedAt"] else "you are a viewer")


def write_csv(messages: Iterable[Json]) -> None:
    """Write all messages to stdout, a page at a time, as the API writes them."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for message in messages:
        writer.writerow([_cell(name, message[name]) for name in _COLUMNS])


def _when(out: Output, at: str | None) -> str:
    return out.when(at) if at else ""


def _cell(name: str, value: object) -> object:
    """A formula that a spreadsheet would run becomes text; recipients stay, because phone numbers begin with a plus."""
    text = "" if value is None else value
    if name in _SAID_BY_OTHERS and str(text).startswith(_RUN_BY_SPREADSHEETS):
        return f"'{text}"
    return text


def _attempt_line(earlier: Json) -> str:
    said = "  ".join(part for part in (earlier["state"], earlier["reason"], earlier["detail"]) if part)
    return visible(f"{earlier['attempt']}  {said}")


_BATCH_COLUMNS = (
    TableColumn("BATCH", lambda batch: batch["ordinal"], "number"),
    TableColumn("ZONE", lambda batch: batch["zone"], "word"),
    state_column("STATE", lambda batch: batch["state"]),
    TableColumn("PLANNED", lambda batch: batch["planned"], "number"),
    TableColumn("SENT", lambda batch: batch["sent"], "number"),
    TableColumn("FAILED", lambda batch: batch["failed"], "number"),
    TableColumn("SKIPPED", lambda batch: batch["skipped"], "number"),
    TableColumn("TRIES", lambda batch: batch["attempts"], "number"),
    TableColumn("ERROR", lambda batch: batch["error"]),
)
_SAMPLE_COLUMNS = (
    TableColumn("TEMPLATE", lambda sample: sample["templateName"]),
    TableColumn("LOCALE", lambda sample: sample["locale"], "word"),
    TableColumn("DEVICES", lambda sample: sample["devices"], "number"),
    TableColumn("BYTES", lambda sample: sample["bytes"], "number"),
    TableColumn("RECORD", lambda sample: sample["failure"] or as_json(sample["record"])),
)
_MESSAGE_COLUMNS = (
    TableColumn("LOCALE", lambda sample: sample["locale"], "word"),
    TableColumn("BYTES", lambda sample: sample["bytes"], "number"),
    TableColumn("MESSAGE", lambda sample: "too long" if sample["content"] is None else as_json(sample["content"])),
)
_START_COLUMNS = (
    TableColumn("ZONE", lambda zone: zone["zone"], "word"),
    start_column(),
    TableColumn("DEVICES", lambda zone: zone["devices"], "number"),
)
_ZONE_COLUMNS = (
    TableColumn("ZONE", lambda zone: zone["tz"], "word"),
    TableColumn("DEVICES", lambda zone: zone["devices"], "number"),
)


def show_job(session: Session, job: Json) -> None:
    """Show a job with the name of its provider account."""
    session.out.show(job, lambda: job_fields(session.out, job, credential=_credential_of(session, job)), id="id")


def show_group(session: Session, group: Json) -> None:
    session.out.show(
        group,
        lambda: group_fields(session.out, group, app=session.api.get("apps", group["appId"])["name"]),
        id="id",
    )


def show_preview(session: Session, preview: Json) -> None:
    """Show recipients, samples and probable mistakes of a job; exits with 5 if the job would fail."""
    _show_preview(session.out, preview)
    if any(notice["code"] == "bad-file" for notice in preview["warnings"]):
        sys.exit(Exit.REFUSED)


def tell_warnings(session: Session, job: Json) -> None:
    for warning in job.get("warnings", ()):
        session.out.tell(f"Warning: {warning}")


def show_samples(session: Session, app_id: str, job_id: str) -> None:
    samples = session.api.get("apps", app_id, "jobs", job_id, "samples")["samples"]
    session.out.show_list(samples, _SAMPLE_COLUMNS, id="templateName", limit=0)


def show_rate(session: Session, app_id: str, job_id: str) -> None:
    rate = session.api.get("apps", app_id, "jobs", job_id, "rate")
    columns = (
        TableColumn("AT", lambda point: session.out.when(point["at"]), "word"),
        TableColumn("RATE", lambda point: format_rate(point["perSecond"]), "number"),
    )
    session.out.show_list(rate["points"], columns, id="at", limit=0)


def show_batches(session: Session, jobs: Sequence[tuple[str, str]], *, state: str, limit: int | None) -> None:
    found: Iterable[Json] = chain.from_iterable(
        session.api.items("apps", app_id, "jobs", job_id, "batches", state=state, limit=limit)
        for app_id, job_id in jobs
    )
    session.out.show_list(found, _BATCH_COLUMNS, id="ordinal", limit=limit)


def watch_job(session: Session, app_id: str, job_id: str) -> None:
    """Watch a job to its end; exits with 8 if that is a bad one."""
    seen: dict[str, Json] = {}

    def look() -> Glance:
        job = seen["job"] = session.api.get("apps", app_id, "jobs", job_id)
        state = state_of(job)
        # Running calls are still answered after a job is held or stopped.
        is_calling = bool(job["messages"]["sending"]) if job.get("messages") else False
        return Glance(
            title=job["name"],
            state="planning" if state == "running" and not job["totalTokens"] else state,
            done=job["completedTokens"],
            total=job["totalTokens"],
            details=_details(job, state),
            over=state in ENDED | BAD and not is_calling,
        )

    glance = watch(look)
    show_job(session, seen["job"])
    _end(glance)


def watch_group(session: Session, app_id: str, group_id: str) -> None:
    """Watch a group until all its jobs have ended; exits with 8 if one ended badly."""
    seen: dict[str, Json] = {}

    def look() -> Glance:
        group = seen["group"] = session.api.get("apps", app_id, "groups", group_id)
        states = [state_of(zone) for zone in group["zones"]]
        ended = sum(state in ENDED | BAD for state in states)
        found = zones_with_devices(group)
        kind, zones = ("zones", group["zones"]) if found is None else ("zones with devices", found)
        done = sum(state_of(zone) in ENDED | BAD for zone in zones)
        return Glance(
            title=group["name"],
            state=state_of_group(group),
            done=group["completedTokens"],
            total=group["totalTokens"],
            details=f"{done} of {len(zones)} {kind} have ended{_losses(group)}",
            over=ended == len(states),
        )

    glance = watch(look)
    show_group(session, seen["group"])
    _end(glance)


def _show_preview(out: Output, preview: Json) -> None:
    if out.json:
        out.write(as_json(preview))
        return
    if not preview["topic"]:
        out.show(preview, lambda: _message_fields(out, preview), id="topic")
        if (samples := (preview["messages"] or {}).get("samples")) and not out.quiet:
            out.write("")
            out.show_table(_MESSAGE_COLUMNS, samples)
        return
    out.show(preview, lambda: _audience_fields(preview), id="topic")
    if out.quiet:
        return
    if starts := [zone for zone in preview["zones"] if zone["devices"] != 0]:
        out.write("")
        out.show_table(_START_COLUMNS, starts)
    elif preview["audience"] and len(preview["audience"]["zones"]) > 1:
        out.write("")
        out.show_table(_ZONE_COLUMNS, preview["audience"]["zones"])
    out.write("")
    out.show_table(_SAMPLE_COLUMNS, preview["samples"])


def _credential_of(session: Session, job: Json) -> str:
    """The name and id of a job's provider account; only the id once the account is deleted."""
    from carillon.errors import NotFound

    id = str(job.get("credentialId", ""))
    if not id:
        return ""
    try:
        return f"{session.api.get('apps', job['appId'], 'credentials', id)['name']} ({id})"
    except NotFound:
        return id


def _end(glance: Glance) -> None:
    if glance.state in BAD:
        sys.exit(Exit.STOPPED)


def _details(job: Json, state: str) -> str:
    if state in BAD:
        return str(job["failure"])
    left = time_left(job)
    rate = format_rate(job["rate"]) if job["rate"] else ""
    return "  ".join(part for part in (rate, f"{left} left" if left else "", _losses(job).strip(", ")) if part)


def _losses(sums: Json) -> str:
    words = {"failed": "failed", "skipped": "invalid" if sums.get("credentialId") else "skipped"}
    return "".join(f", {group_digits(sums[name])} {word}" for name, word in words.items() if sums[name])


def _message_fields(out: Output, preview: Json) -> Fields:
    messages, warnings = preview["messages"], ("warnings", [notice["message"] for notice in preview["warnings"]])
    if messages is None:
        return [warnings]
    queue, about = messages["queue"], "" if messages["exact"] else "at least "
    figures = {
        "would be sent": messages["recipients"],
        "malformed": messages["malformed"] or None,
        "suppressed": messages["suppressed"] or None,
        "empty or too long": messages.get("unrendered") or None,
        "rows repeated": messages["repeated"] or None,
    }
    ahead = f"{count_things(queue['messages'], 'message')} of {count_things(queue['jobs'], 'job')}"
    starts, end = queue["startsIn"], messages["estimatedEnd"]
    return [
        *((title, f"{about}{group_digits(count)}") for title, count in figures.items() if count is not None),
        ("in all, estimated", "" if messages["exact"] else group_digits(messages["estimatedRecipients"] or 0)),
        ("columns", messages["columns"]),
        ("tags that nothing fills", messages["unfilledTags"]),
        ("ahead of it", ahead if queue["jobs"] else "nothing"),
        ("starts", "" if starts is None else f"in {format_span(starts)}"),
        ("ends, estimated", out.when(end) if end else ""),
        warnings,
    ]


def _audience_fields(preview: Json) -> list[tuple[str, object]]:
    audience = preview["audience"] or {}
    about = "" if audience.get("exact", True) else "at least "
    figures = {
        "devices": audience.get("devices"),
        "users": audience.get("users"),
        "devices, estimated": None if audience.get("exact") else audience.get("estimatedDevices"),
        "without a token": audience.get("withoutToken") or None,
        "users without a device": audience.get("unknown") or None,
        "rows repeated": audience.get("repeated") or None,
        "users held out": audience.get("heldOutUsers") or None,
    }
    return [
        ("topic", preview["topic"]),
        *((title, f"{about}{group_digits(count)}") for title, count in figures.items() if count is not None),
        (
            "largest record",
            f"{group_digits(preview['largestRecordBytes'])} of {group_digits(preview['maxRecordBytes'])} bytes",
        ),
        ("warnings", [notice["message"] for notice in preview["warnings"]]),
    ]
