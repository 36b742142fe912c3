"""`carillon schedules`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.names import find_schedule
from services.cli.options import Instant, Pair, Span
from services.cli.output.out import Fields
from services.cli.output.tables import Json, TableColumn, count_things
from services.cli.schedule_options import definition_options, schedule_body
from services.cli.schedule_shape import next_instants, recurrence_word, schedule_columns, schedule_fields
from services.cli.session import Session
from services.cli.verb import noun

schedules = noun("schedules")

_key = click.argument("key", metavar="KEY", shell_complete=complete.schedules)


@schedules.verb("list")
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--state", type=click.Choice(["active", "paused", "finished"]), help="Only those in this state.")
@click.option(
    "--label", "labels", type=Pair(), multiple=True, help="Only those with this label; of several, with all of them."
)
@options.namespace
@options.limit
def list_schedules(
    session: Session,
    prefix: str,
    state: str | None,
    labels: Sequence[tuple[str, str]],
    namespace: str,
    limit: int | None,
) -> None:
    """List schedules by key."""
    label = ",".join(f"{name}:{value}" for name, value in labels)
    found = session.api.items("schedules", limit=limit, prefix=prefix, state=state, label=label, namespace=namespace)
    session.out.show_list(found, schedule_columns(session.out), id="key", limit=limit)


@schedules.verb("due")
@click.option("--within", type=Span(), default="1h", show_default=True, help="Time to look ahead.")
@options.namespace
def due(session: Session, within: timedelta, namespace: str) -> None:
    """List the instants that fire next."""
    told = session.api.get("schedules", "due", within=int(within.total_seconds()), namespace=namespace)
    columns = (
        TableColumn("AT", lambda each: session.out.when(each["at"]), "word"),
        TableColumn("KEY", lambda each: each["key"], "id"),
        TableColumn("OF", lambda each: each["namespace"]),
        TableColumn("KIND", lambda each: each["kind"], "word"),
        TableColumn("TRIES", lambda each: each["attempts"], "number"),
    )
    session.out.show_list(told["instants"], columns, id="key", limit=0)


@schedules.verb("show")
@_key
@options.namespace
def show(session: Session, key: str, namespace: str) -> None:
    """Show a schedule, its next instants and its last outcomes."""
    schedule = session.api.get("schedules", find_schedule(session, key, namespace=namespace), namespace=namespace)
    session.out.show(schedule, lambda: schedule_fields(session.out, schedule), id="key")


@schedules.verb(
    "create",
    changes=True,
    examples=(
        "schedules create report --cron '0 9 * * 1-5' --timezone Europe/Paris --http https://example.com/report",
        "schedules create reminder-42 --at +90m --queue reminders --payload '{\"id\": 42}'",
    ),
)
@click.argument("key", metavar="KEY")
@definition_options
def create(session: Session, key: str, **given: Any) -> None:
    """Create a schedule. One with the same content stays as it is."""
    made, is_new = session.api.create("schedules", body={**schedule_body(**given), "key": key})
    session.out.confirm(made, _in_place(session, made, "Stored" if is_new else "Unchanged"), id="key")


@schedules.verb(
    "apply",
    changes=True,
    examples=(
        "schedules apply schedules.json",
        "schedules apply first.json second.json",
    ),
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


@schedules.verb("preview")
@definition_options
def preview(session: Session, **given: Any) -> None:
    """Show the next instants of a schedule; nothing is stored."""
    body = schedule_body(**given, needs_callback=False)
    answer = session.api.post("schedules", "preview", body=body)

    def fields() -> Fields:
        return [("when", recurrence_word(body)), ("next", next_instants(session.out, body, answer["next"]))]

    session.out.show(answer, fields, id="next")


@schedules.verb("fire", changes=True)
@_key
@options.namespace
def fire(session: Session, key: str, namespace: str) -> None:
    """Fire a schedule once, now."""
    found = find_schedule(session, key, namespace=namespace)
    fired = session.api.post("schedules", found, "fire", namespace=namespace)
    session.out.confirm(fired, f"Fired {found}: message {fired['id']}.", id="id")


@schedules.verb("pause", changes=True)
@_key
@options.namespace
def pause(session: Session, key: str, namespace: str) -> None:
    """Pause a schedule. Nothing fires until it is resumed."""
    _move(session, key, namespace, "pause", "Paused")


@schedules.verb("resume", changes=True)
@_key
@options.namespace
def resume(session: Session, key: str, namespace: str) -> None:
    """Resume a schedule. Its misfire rule decides about missed instants."""
    _move(session, key, namespace, "resume", "Resumed")


@schedules.verb("cancel", destroys=True)
@_key
@click.argument("instant", metavar="INSTANT", type=Instant())
@options.namespace
def cancel(session: Session, key: str, instant: datetime, namespace: str) -> None:
    """Cancel a pending instant of a schedule. An instant is written as 2030-12-24T14:00Z."""
    found = find_schedule(session, key, namespace=namespace)
    at = instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    session.ask(f"This takes {session.out.when(at)} out of schedule {found}.")
    session.api.delete("schedules", found, "occurrences", at, namespace=namespace)
    session.out.confirm({"key": found}, f"Cancelled {session.out.when(at)} of schedule {found}.", id="key")


@schedules.verb("delete", destroys=True)
@_key
@options.namespace
def delete(session: Session, key: str, namespace: str) -> None:
    """Delete a schedule and its pending instants."""
    found = find_schedule(session, key, namespace=namespace)
    session.ask(f"This deletes schedule {found} and all that is pending of it; there is no undo.")
    session.api.delete("schedules", found, namespace=namespace)
    session.out.confirm({"key": found}, f"Deleted schedule {found}.", id="key")


def _move(session: Session, key: str, namespace: str, move: str, done: str) -> None:
    found = find_schedule(session, key, namespace=namespace)
    moved = session.api.post("schedules", found, move, namespace=namespace)
    session.out.confirm(moved, f"{done} schedule {found}.", id="key")


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
