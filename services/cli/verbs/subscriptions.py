"""`carillon subscriptions` and `carillon replays`."""

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import click

from services.cli import options
from services.cli.exits import Exit, Failure
from services.cli.nouns import Noun
from services.cli.options import JsonText, Past
from services.cli.output import STATE_COLOURS, Fields, Json, TableColumn, as_json, count_things, state_column
from services.cli.session import Session
from services.cli.verbs.deliveries import describe_answer

subscriptions = Noun("subscriptions")
_key = click.argument("key", metavar="KEY")
_PATH = ("bus", "subscriptions")


@subscriptions.verb("list")
@options.namespace
@options.limit
def list_subscriptions(session: Session, namespace: str, limit: int | None) -> None:
    """List subscriptions by key."""
    columns = (
        TableColumn("KEY", lambda each: each["key"], "id"),
        TableColumn("STATE", partial(_describe_state, session), "word", _state_colour),
        TableColumn("CALLBACK", lambda each: each["callback"]),
        TableColumn("TOPICS", lambda each: ", ".join(each["topics"])),
    )
    found = session.api.items(*_PATH, limit=limit, namespace=namespace)
    session.out.show_list(found, columns, id="key", limit=limit)


@subscriptions.verb("show")
@_key
@options.namespace
def show(session: Session, key: str, namespace: str) -> None:
    """Show a subscription."""
    found = session.api.get(*_PATH, key, namespace=namespace)
    session.out.show(found, lambda: _fields(session, found), id="key")


@subscriptions.verb("health")
@_key
@options.namespace
def health(session: Session, key: str, namespace: str) -> None:
    """Show the health of a subscription's receiver and its backlog."""
    found = session.api.get(*_PATH, key, "health", namespace=namespace)
    session.out.show(found, lambda: _health_fields(session, found), id="key")
    if found["state"] != "active":
        session.out.tell(f"It is not called until `carillon subscriptions resume {key}`.")


@subscriptions.verb("test", changes=True)
@_key
@options.namespace
def send_test(session: Session, key: str, namespace: str) -> None:
    """Send a made-up event to the receiver now. Exits with 1 unless the receiver takes it."""
    told = session.api.post(*_PATH, key, "test", once=True, namespace=namespace)
    session.out.confirm(told, f"After {told['ms']:,} ms: {describe_answer(told)}", id="status")
    if not HTTPStatus.OK <= told["status"] < HTTPStatus.MULTIPLE_CHOICES:
        raise Failure(Exit.FAILED, f"The receiver of {key} did not accept the test event.")


@subscriptions.verb(
    "put",
    changes=True,
    examples=(
        "subscriptions put orders --topic orders.v1 --callback https://example.com/events",
        'subscriptions put orders --body \'{"filter": {"types": ["order.paid"]}}\'',
    ),
)
@_key
@click.option("--callback", metavar="URL", help="URL that events are sent to; a new subscription needs one.")
@click.option("--topic", "topics", multiple=True, metavar="NAME",
              help="Topic, in place of those before; may be given several times.")  # fmt: skip
@click.option("--body", type=JsonText(), metavar="JSON|@FILE",
              help="All fields, as in the API; the options above override it.")  # fmt: skip
def put(session: Session, key: str, callback: str | None, topics: tuple[str, ...], body: Any) -> None:
    """Create or change a subscription. Fields that are not named stay.

    The secret of a new one is printed once. --body takes the fields without an option: '{"filter": {"types":
    ["create"]}, "max_events": 50}'.
    """
    if body is not None and not isinstance(body, dict):
        raise click.UsageError("--body must be a JSON object, such as '{\"max_events\": 50}'")
    given = {"callback": callback, "topics": list(topics)}
    made = session.api.put(*_PATH, key, body={**(body or {}), **{name: each for name, each in given.items() if each}})
    _confirm(session, made, f"Subscription {key} is in place.")


@subscriptions.verb("pause", changes=True)
@_key
@options.namespace
def pause(session: Session, key: str, namespace: str) -> None:
    """Pause a subscription. Its events are collected."""
    moved = session.api.post(*_PATH, key, "pause", namespace=namespace)
    session.out.confirm(moved, f"Paused subscription {key}.", id="key")


@subscriptions.verb("resume", changes=True)
@_key
@options.namespace
def resume(session: Session, key: str, namespace: str) -> None:
    """Resume a subscription after a pause or a suspension."""
    moved = session.api.post(*_PATH, key, "resume", namespace=namespace)
    session.out.confirm(moved, f"Resumed subscription {key}.", id="key")


@subscriptions.verb("secret", changes=True)
@_key
@click.option("--keep-hours", type=options.Count(0, 168), metavar="HOURS", default=24, show_default=True,
              help="Hours for which the old secret signs beside it.")  # fmt: skip
@options.namespace
def secret(session: Session, key: str, keep_hours: int, namespace: str) -> None:
    """Create a new secret for a subscription and print it once."""
    made = session.api.post(*_PATH, key, "secrets", body={"keep_hours": keep_hours}, once=True, namespace=namespace)
    _confirm(session, made, f"Subscription {key} has a new secret.")


@subscriptions.verb("delete", destroys=True)
@_key
@options.namespace
def delete(session: Session, key: str, namespace: str) -> None:
    """Delete a subscription and its backlog."""
    session.ask(f"This removes subscription {key} and all that waits for it; there is no undo.")
    session.api.delete(*_PATH, key, namespace=namespace)
    session.out.confirm({"key": key}, f"Deleted subscription {key}.", id="key")


def _confirm(session: Session, made: Json, sentence: str) -> None:
    """Say what was done. A new secret is all of stdout, so that it can be piped."""
    secret = made.get("secret")
    if secret and not session.out.json and not session.out.quiet:
        session.out.tell(f"{sentence} The secret is not shown again:")
        sentence = secret
    session.out.confirm(made, sentence, id="key")


def _describe_state(session: Session, found: Json) -> str:
    since = found.get("failing_since") if found["state"] == "active" else None
    return f"failing since {session.out.when(since)}" if since else str(found["state"])


def _state_colour(found: Json) -> str:
    return STATE_COLOURS["failed" if found["state"] == "active" and found.get("failing_since") else found["state"]]


def _health_fields(session: Session, found: Json) -> Fields:
    oldest = f", the first since {session.out.when(found['oldest_at'])}" if found["oldest_at"] else ""
    lost = f", and {found['lost']:,} were lost" if found["lost"] else ""
    return [
        ("subscription", found["key"]),
        ("state", _describe_state(session, found)),
        ("reason", found["reason"]),
        ("calls", _describe_calls(found)),
        ("failures", f"{found['failures']:,} in a row" if found["failures"] else "none in a row"),
        ("last call", session.out.when(found["last_attempt_at"]) if found["last_attempt_at"] else "none"),
        ("next call", f"not before {session.out.when(found['next_probe_at'])}" if found["next_probe_at"] else ""),
        ("waiting", f"{count_things(found['queued'], 'event')}{oldest}"),
        ("in progress", f"{found['in_flight']:,} {'delivery' if found['in_flight'] == 1 else 'deliveries'}"),
        ("delivered", count_things(found["sent"], "event")),
        ("dead", f"{count_things(found['dead'], 'event')}{lost}"),
    ]


def _describe_calls(found: Json) -> str:
    last = found["last_calls"]
    return f"{found['accepted_calls']} of the last {count_things(last, 'call')} accepted" if last else "none yet"


def _fields(session: Session, found: Json) -> list[tuple[str, Any]]:
    plain = ("reason", "callback", "max_events", "max_bytes", "timeout_ms", "ordered", "in_flight")
    more = ("max_attempts", "max_age_hours", "uuid", "contact", "id")
    told = [("key", found["key"]), ("state", _describe_state(session, found))]
    told += [(name, found[name]) for name in (*plain, *more)]
    headers = [f"{name}: {value}" for name, value in found["headers"].items()]
    listed = [("topics", list(found["topics"])), ("filter", _describe_filter(found["filter"])), ("headers", headers)]
    return [*told, *listed, ("created", session.out.when(found["created_at"]))]


def _describe_filter(wanted: Json) -> list[str]:
    """The conditions that must all hold of an event, a line each; a value as JSON."""
    types = [f"types: {', '.join(wanted['types'])}"] if wanted["types"] else []
    prefix = [f"url_prefix: {wanted['url_prefix']}"] if wanted["url_prefix"] else []
    return [*types, *prefix, *(f"{each['path']} {each['op']} {as_json(each['value'])}" for each in wanted["data"])]


replays = Noun("replays")


@replays.verb(
    "create",
    changes=True,
    examples=(
        "replays create invoices --from 2h",
        "replays create invoices --from 2025-12-24 --to 2025-12-25 --topic orders",
    ),
)
@_key
@click.option(
    "--from", "since", type=Past(), required=True, help="Time of the first event: 2h (ago), yesterday, 2025-12-24."
)
@click.option("--to", "until", type=Past(), help="Time after the last event (default: now).")
@click.option("--topic", "topics", multiple=True, metavar="NAME",
              help="Only this topic; may be given several times (default: all of the subscription).")  # fmt: skip
@options.namespace
def create(
    session: Session, key: str, since: datetime, until: datetime | None, topics: tuple[str, ...], namespace: str
) -> None:
    """Deliver past events once more, as far back as the log goes."""
    body: dict[str, Any] = {"from": since.isoformat()}
    body |= {"to": until.isoformat()} if until else {}
    body |= {"topics": list(topics)} if topics else {}
    made = session.api.post(*_PATH, key, "replays", body=body, once=True, namespace=namespace)
    cut = " The log does not reach back to the beginning." if made["begins_late"] else ""
    session.out.confirm(
        made, f"Replay {made['number']} of {key} reads {count_things(made['total'], 'record')}.{cut}", id="number"
    )


@replays.verb("list")
@_key
@options.namespace
@options.limit
def list_replays(session: Session, key: str, namespace: str, limit: int | None) -> None:
    """List the replays of a subscription and their progress."""
    columns = (
        TableColumn("NUMBER", lambda each: each["number"], "number"),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("READ", lambda each: f"{each['read']:,} of {each['total']:,}", "number"),
        TableColumn("EVENTS", lambda each: f"{each['events']:,}", "number"),
        TableColumn("LOST", lambda each: f"{each['lost']:,}", "number"),
        TableColumn("FROM", lambda each: session.out.when(each["from"]), "word"),
        TableColumn("TO", lambda each: session.out.when(each["from"] and (each["to"] or each["created_at"])), "word"),
        TableColumn("CREATED", lambda each: session.out.when(each["created_at"]), "word"),
        TableColumn("REASON", lambda each: each["reason"]),
    )
    found = session.api.items(*_PATH, key, "replays", limit=limit, namespace=namespace)
    session.out.show_list(found, columns, id="number", limit=limit)


@replays.verb("cancel", destroys=True)
@_key
@options.namespace
def cancel(session: Session, key: str, namespace: str) -> None:
    """Cancel the replays of a subscription. Events that they brought stay in its queue."""
    session.ask(f"This cancels what is being delivered again to {key}.")
    session.api.delete(*_PATH, key, "replays", namespace=namespace)
    session.out.confirm({"key": key}, f"Cancelled the replays of {key}.", id="key")
