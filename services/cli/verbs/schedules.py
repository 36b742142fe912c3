"""`carillon schedules`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.names import find_app, find_schedule
from services.cli.nouns import ApiNoun, FieldColumn
from services.cli.options import Count, HeaderLine, Instant, JsonText, Past, RawText, SecretWord, Span, join, pairs
from services.cli.output import Fields, Json, Output, count_things, format_span
from services.cli.session import Session


class InstantText(click.ParamType[str]):
    """An instant, as the API reads it."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return Instant().convert(value, param, ctx).isoformat()


definition_options = join(
    click.option("--at", "schedules", type=InstantText(), multiple=True, help="Instant; may be given several times."),
    click.option("--cron", metavar="LINE", help="Cron line of five fields, or @daily and the like: '0 9 * * 1-5'."),
    click.option("--timezone", metavar="ZONE", help="Time zone of --cron, such as Europe/Paris (default: UTC)."),
    click.option("--every", type=Count(1), metavar="SECONDS", help="Seconds between two instants."),
    click.option("--anchor", type=InstantText(), help="Moment from which --offset counts."),
    click.option("--offset", "offsets", multiple=True, metavar="OFFSET",
                 help="Offset from --anchor: -90m, 0s or +1h30m; may be given several times."),
    click.option("--exclude", multiple=True, metavar="CALENDAR", shell_complete=complete.calendars,
                 help="Do not fire on the days of this calendar; may be given several times."),
    click.option("--shift", type=click.Choice(["next", "previous"]),
                 help="With --exclude: fire on the next or previous other day instead."),
    click.option("--http", "url", metavar="URL", help="Call this URL with POST."),
    click.option("--queue", metavar="NAME", help="Publish to this RabbitMQ queue."),
    click.option("--topic", metavar="NAME", help="Write to this Kafka topic."),
    click.option("--job", type=JsonText(), metavar="JSON|@FILE",
                 help="Start a job of --app with this body, as in the API: '{\"service\": \"gcm\"}'."),
    click.option("--template", "templates", multiple=True, metavar="NAME", shell_complete=complete.templates,
                 help="With --job: name of a template; may be given several times."),
    click.option("--overlap", type=click.Choice(["skip", "queue", "allow"]),
                 help="With --job: what to do while the job of an earlier instant is open (default: skip)."),
    click.option("--expires-after", type=Span(),
                 help="With --job: drop what is not sent within this time, such as 6h."),
    click.option("--payload", type=RawText(), metavar="JSON|@FILE", help="Payload of the message."),
    click.option("--header", "headers", type=HeaderLine(), multiple=True, metavar="'NAME: VALUE'",
                 help="Header of the message; may be given several times."),
    click.option("--secret", type=SecretWord(), metavar="@FILE", help="Secret (whsec_…) that signs the HTTP call."),
    click.option("--retry-attempts", type=Count(1, 100), help="Attempts until a message becomes a dead letter."),
    pairs("--label", "labels", help="Label; may be given several times."),
    click.option("--body", type=JsonText(), metavar="JSON|@FILE",
                 help="Whole definition, as in the API; the options above override it."),
)  # fmt: skip
_TIMING = ("schedules", "cron", "timezone", "every", "anchor", "offsets", "exclude", "shift")
"""The options that go into the body as they are."""


def schedule_body(
    session: Session,
    *,
    headers: Sequence[tuple[str, str]],
    secret: str | None,
    retry_attempts: int | None,
    labels: Sequence[tuple[str, str]],
    body: Any,
    needs_callback: bool = True,
    **target: Any,
) -> dict[str, Any]:
    """The body of a request. Unless it `needs_callback`, a missing callback is replaced by a placeholder."""
    if body is not None and not isinstance(body, dict):
        raise click.UsageError("--body must be a JSON object")
    given = body or {}
    timing = {name: target.pop(name) for name in _TIMING}
    callback = _callback(session, **target) or given.get("callback")
    if needs_callback and not callback:
        raise click.UsageError("name a target: --http, --queue, --topic, --job, or a callback in --body")
    _check_one_kind(timing, given)
    more = {name: value for name, value in (("headers", dict(headers)), ("secret", secret)) if value}
    if more and isinstance(callback, dict):
        callback = {**callback, "data": {**(callback.get("data") or {}), **more}}
    chosen: dict[str, Any] = {
        "callback": callback or {"type": "http", "data": {"url": "https://example.com/"}},
        **timing,
        "labels": dict(labels),
        "retry": retry_attempts and {**(given.get("retry") or {}), "attempts": retry_attempts},
    }
    return given | {name: value for name, value in chosen.items() if value}


def _callback(
    session: Session,
    *,
    url: str | None,
    queue: str | None,
    topic: str | None,
    payload: Any,
    job: Any,
    templates: Sequence[str],
    overlap: str | None,
    expires_after: timedelta | None,
) -> dict[str, Any] | None:
    """The callback to the one target that is named, if any."""
    targets = {"url": url, "queue": queue, "topic": topic, "payload": job}
    named = [(field, target) for field, target in targets.items() if target]
    if len(named) > 1:
        raise click.UsageError("use only one of --http, --queue, --topic and --job")
    seconds = expires_after and expires_after.total_seconds()
    of_job = {"template": ",".join(templates), "overlap": overlap, "expires_after_seconds": seconds}
    more = {name: value for name, value in of_job.items() if value}
    if more and not job:
        raise click.UsageError("--template, --overlap and --expires-after need --job, the body of the job")
    for field, target in named:
        kind = {"url": "http", "queue": "rabbitmq", "topic": "kafka", "payload": "job"}[field]
        if kind == "job":
            more["app_id"] = find_app(session)
        elif payload is not None or kind != "http":
            more["payload"] = payload
        return {"type": kind, "data": {field: target} | more}
    return None


def _check_one_kind(timing: dict[str, Any], body: dict[str, Any]) -> None:
    given = [name for name in ("schedules", "cron", "every", "anchor") if timing[name] or body.get(name)]
    if not given:
        raise click.UsageError("give --at, --cron, --every or --anchor")
    if len(given) > 1:
        raise click.UsageError("give only one of --at, --cron, --every and --anchor")


_FIRST, _AHEAD = 5, 20  # the next instants that are shown, and that the API tells


def schedule_fields(out: Output, schedule: Json) -> Fields:
    return [
        ("key", schedule["key"]),
        ("state", schedule["state"]),
        ("when", _when(schedule)),
        ("offsets", " ".join(schedule.get("offsets", ()))),
        ("starts", out.when(schedule["starts_at"]) if schedule.get("starts_at") else ""),
        ("ends", out.when(schedule["ends_at"]) if schedule.get("ends_at") else ""),
        ("excludes", " ".join(schedule.get("exclude", ()))),
        ("shift", schedule.get("shift", "")),
        ("window", f"{schedule['window_seconds']:g} s" if schedule["window_seconds"] else ""),
        ("misfire", schedule["misfire"]),
        ("retry", schedule["retry"]),
        ("labels", [f"{name}: {value}" for name, value in schedule["labels"].items()]),
        ("callback", callback_word(schedule["callback"])),
        *_job_fields(schedule["callback"]),
        ("payload", schedule["callback"]["data"].get("payload", "")),
        ("next", next_instants(out, schedule, schedule.get("next", []))),
        ("next try", out.ahead(schedule["next_try_at"]) if schedule.get("next_try_at") else ""),
        ("outcomes", [_outcome(out, each) for each in schedule.get("outcomes", [])]),
        ("made", out.when(schedule["created_at"])),
        ("changed", out.when(schedule["updated_at"])),
        ("left out", "personal data: you are a viewer" if schedule["redacted"] else ""),
    ]


def _job_fields(callback: Json) -> Fields:
    if callback["type"] != "job":
        return []
    data = callback["data"]
    expires = data.get("expires_after_seconds")
    span = format_span(expires) if expires else ""
    return [("app", data["app_id"]), ("overlap", data.get("overlap", "skip")), ("expires after", span)]


def next_instants(out: Output, schedule: Json, instants: Sequence[str]) -> list[str]:
    """The first instants of a schedule, in the zone of its cron line."""
    return [out.ahead(each, _zone(schedule)) for each in instants[:_FIRST]]


def _zone(schedule: Json) -> str:
    return schedule.get("timezone") or "UTC" if schedule.get("cron") else ""


def recurrence_word(schedule: Json) -> str:
    if cron := schedule.get("cron"):
        return f"{cron} ({schedule.get('timezone', 'UTC')})"
    if every := schedule.get("every"):
        return f"every {every} s"
    if anchor := schedule.get("anchor"):
        return f"{count_things(len(schedule['offsets']), 'offset')} from {anchor}"
    instants = schedule.get("schedules") or []
    return count_things(len(instants), "instant") if instants else "instants"


def _when(schedule: Json) -> str:
    """When it fires, and how many instants of a list are left."""
    listed, ahead = len(schedule.get("schedules") or []), len(schedule.get("next") or [])
    if schedule["state"] != "paused" and ahead < min(listed, _AHEAD):
        return f"{ahead} of {count_things(listed, 'instant')} left"
    return recurrence_word(schedule)


def callback_word(callback: Any) -> str:
    if not callback:
        return ""
    data = callback["data"]
    if callback["type"] == "job":
        return f"job {data['template']}"
    place = data.get("url") or data.get("queue") or data.get("topic") or data.get("exchange") or ""
    return f"{callback['type']} {place}".rstrip()


def _left_out(out: Output, each: Json, zone: str) -> str:
    to = f", fires {out.ahead(each['shifted_to'], zone)}" if each["shifted_to"] else ""
    return f"{out.ahead(each['at'], zone)} by {each['calendar']}{to}"


def _outcome(out: Output, outcome: Json) -> str:
    milliseconds = outcome["late_ms"]
    late = f"{milliseconds} ms" if milliseconds < 1_000 else format_span(milliseconds / 1_000)
    words = (out.when(outcome["at"]), outcome["result"], f"try {outcome['attempt']}", f"{late} late")
    more = f"job {outcome['job_id']}" if "job_id" in outcome else outcome["error"]
    return "  ".join([*words, more]).rstrip()


schedules = ApiNoun(
    "schedules", path="schedules", id="key", find=find_schedule, complete=complete.schedules,
    scope=(options.namespace,), fields=schedule_fields,
    columns=(
        FieldColumn("key", "id"), FieldColumn("state", "state"), FieldColumn("when", tell=recurrence_word),
        FieldColumn("callback", tell=lambda each: callback_word(each["callback"])),
        FieldColumn("updated_at", "time", title="CHANGED"),
    ),
)  # fmt: skip
schedules.add_list(
    "List schedules by key.",
    click.option("--prefix", default="", help="Only keys that begin with this."),
    click.option("--state", type=click.Choice(["active", "paused", "finished"]), help="Only those in this state."),
    options.labels("--label", help="Only those with this label; of several, with all of them."),
)
schedules.add_show("Show a schedule, its next instants and its last outcomes.")


_DUE = (
    FieldColumn("at", "time"), FieldColumn("key", "id"), FieldColumn("namespace", title="OF"),
    FieldColumn("kind", "word"), FieldColumn("attempts", "number", title="TRIES"),
)  # fmt: skip


@schedules.verb("due")
@click.option("--within", type=Span(), default="1h", show_default=True, help="Time to look ahead.")
@options.namespace
def due(session: Session, within: timedelta, namespace: str) -> None:
    """List the instants that fire next."""
    told = session.api.get("schedules", "due", within=int(within.total_seconds()), namespace=namespace)
    session.out.show_list(told["instants"], [each.of(session.out) for each in _DUE], id="key", limit=0)


@schedules.verb(
    "create",
    of_app=True,
    changes=True,
    examples=(
        "schedules create report --cron '0 9 * * 1-5' --timezone Europe/Paris --http https://example.com/report",
        "schedules create weekly --cron '0 9 * * MON' --app shop --template news --job '{\"service\": \"gcm\"}'",
    ),
)
@click.argument("key", metavar="KEY")
@definition_options
def create(session: Session, key: str, **given: Any) -> None:
    """Create a schedule. One with the same content stays as it is."""
    made, is_new = session.api.create("schedules", body={**schedule_body(session, **given), "key": key})
    session.out.confirm(made, _in_place(session, made, "Stored" if is_new else "Unchanged"), id="key")


@schedules.verb(
    "apply", changes=True, examples=("schedules apply schedules.json", "schedules apply first.json second.json")
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
def apply(session: Session, files: Sequence[str]) -> None:
    """Create or replace the schedules of files (`-`: stdin). A file is a JSON object, an array, or has an object a
    line."""
    refused = 0
    for document in [each for file in files for each in options.read_documents(file)]:
        refused += not _put(session, document)
    if refused:
        raise Failure(Exit.REFUSED, f"Refused: {count_things(refused, 'schedule')}. The others are stored.")


@schedules.verb("preview", of_app=True)
@definition_options
def preview(session: Session, **given: Any) -> None:
    """Show the next instants of a schedule; nothing is stored."""
    body = schedule_body(session, **given, needs_callback=False)
    answer = session.api.post("schedules", "preview", body=body)

    def fields() -> Fields:
        left_out = [_left_out(session.out, each, _zone(body)) for each in answer.get("left_out", ())[:_FIRST]]
        following = next_instants(session.out, body, answer["next"])
        return [("when", recurrence_word(body)), ("next", following), ("left out", left_out)]

    session.out.show(answer, fields, id="next")


schedules.add_move("fire", "Fire a schedule once, now.", said="Fired {0}: message {id}.", id="id")
schedules.add_move("pause", "Pause a schedule. Nothing fires until it is resumed.", said="Paused schedule {0}.")
schedules.add_move(
    "resume", "Resume a schedule. Its misfire rule decides about missed instants.", said="Resumed schedule {0}."
)


@schedules.verb(
    "move",
    changes=True,
    examples=(
        "schedules move training-42 --anchor '2030-12-24 18:00'",
        "schedules move --label day=2030-12-24 --by +7d",
    ),
)
@click.argument("key", metavar="[KEY]", required=False, shell_complete=complete.schedules)
@click.option("--anchor", type=InstantText(), help="New anchor of the schedule KEY.")
@options.labels("--label", help="Move the schedules with this label; if given several times, with all of them.")
@click.option("--by", metavar="OFFSET", help="With --label: how far to move the anchors: +1d or -90m.")
@options.namespace
def move(session: Session, key: str | None, anchor: str | None, label: str, by: str | None, namespace: str) -> None:
    """Move the anchor of a schedule, or of all with a label. Instants that have not fired move with it."""
    is_one = bool(key and anchor and not (label or by))
    if not is_one and (key or anchor or not (label and by)):
        raise click.UsageError("give KEY and --anchor, or --label and --by")
    if key and anchor:
        found = find_schedule(session, key, namespace=namespace)
        moved = session.api.patch("schedules", found, body={"anchor": anchor}, namespace=namespace)
        session.out.confirm(moved, _in_place(session, moved, "Moved"), id="key")
        return
    answer = session.api.post("schedules", "move", body={"labels": label.split(","), "by": by}, namespace=namespace)
    left = f"; {count_things(answer['unmoved'], 'schedule')} cannot be moved" if answer["unmoved"] else ""
    session.out.confirm(answer, f"Moved {count_things(answer['moved'], 'schedule')}{left}.", id="moved")


@schedules.verb("backfill", changes=True)
@click.argument("key", metavar="KEY", shell_complete=complete.schedules)
@click.option("--from", "since", type=Past(), required=True, help="First past time: yesterday, 7d (ago), 2026-11-01.")
@click.option("--to", "until", type=Past(), required=True, help="Last past time.")
@options.namespace
def backfill(session: Session, key: str, since: datetime, until: datetime, namespace: str) -> None:
    """Fire the instants between two past times, each once."""
    found = find_schedule(session, key, namespace=namespace)
    body = {"from": since.astimezone(UTC).isoformat(), "to": until.astimezone(UTC).isoformat()}
    answer = session.api.post("schedules", found, "backfill", body=body, namespace=namespace)
    said = f"Firing {count_things(answer['instants'], 'instant')} of {found}."
    none = f"Nothing of {found} to fire: no instant lies between these times, or earlier backfills fired them all."
    session.out.confirm(answer, said if answer["instants"] else none, id="instants")


@schedules.verb("cancel", destroys=True)
@click.argument("key", metavar="KEY", shell_complete=complete.schedules)
@click.argument("instant", metavar="INSTANT", type=Instant())
@options.namespace
def cancel(session: Session, key: str, instant: datetime, namespace: str) -> None:
    """Cancel a pending instant of a schedule. An instant is written as 2030-12-24T14:00Z."""
    found = find_schedule(session, key, namespace=namespace)
    at = instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    session.ask(f"This takes {session.out.when(at)} out of schedule {found}.")
    session.api.delete("schedules", found, "occurrences", at, namespace=namespace)
    session.out.confirm({"key": found}, f"Cancelled {session.out.when(at)} of schedule {found}.", id="key")


schedules.add_delete(
    "Delete a schedule and its pending instants.",
    ask="This deletes schedule {0} and all that is pending of it; there is no undo.",
)


def _put(session: Session, document: Any) -> bool:
    """Put one document into its place; whether it was taken."""
    from carillon.errors import Conflict, Invalid

    key = document.get("key") if isinstance(document, dict) else None
    if not isinstance(key, str):
        session.out.tell("Refused a schedule without a key: `key` is required.")
        return False
    try:
        answer = session.api.put("schedules", key, body=document)
    except (Conflict, Invalid, ValueError) as error:
        session.out.tell(f"{key}: {error}")
        return False
    session.out.confirm(answer, _in_place(session, answer, "Stored"), id="key")
    return True


def _in_place(session: Session, schedule: Json, done: str) -> str:
    instants = schedule.get("next") or []
    following = f" Next: {session.out.when(instants[0])}." if instants else ""
    return f"{done} {schedule['key']}: {recurrence_word(schedule)}.{following}"
