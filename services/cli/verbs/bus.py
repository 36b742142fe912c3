"""`carillon topics`, `publish` and `listen`."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click

from services.cli import options
from services.cli.exits import Exit, Failure
from services.cli.nouns import Noun, Verb
from services.cli.output import Json, TableColumn, as_json, visible
from services.cli.session import Session
from services.cli.watching import PERIOD_SECONDS
from shared.core.errors import suggest

if TYPE_CHECKING:
    from services.cli.listening import CopyTarget, DeliveryFollower, FoundDelivery

topics = Noun("topics")
_topic = click.argument("topic")


@topics.verb("list")
@options.limit
def list_topics(session: Session, limit: int | None) -> None:
    """List the topics of the bus by name."""
    columns = (
        TableColumn("NAME", lambda topic: topic["name"], "id"),
        TableColumn("OWNER", lambda topic: topic["owner"] or "(none)"),
        TableColumn("EVENTS", lambda topic: topic["events"], "number"),
        TableColumn("DESCRIPTION", lambda topic: topic["description"]),
        TableColumn("MADE", lambda topic: session.out.when(topic["created_at"]), "word"),
    )
    session.out.show_list(session.api.items("bus", "topics", limit=limit), columns, id="name", limit=limit)


@topics.verb("show")
@_topic
def show(session: Session, topic: str) -> None:
    """Show a topic."""
    found = session.api.get("bus", "topics", topic)
    fields = [
        ("name", found["name"]),
        ("owner", found["owner"] or "(none)"),
        ("subscribers", "its owner only" if found["private"] else "every namespace"),
        ("description", found["description"]),
        ("events", found["events"]),
        ("bytes", found["bytes"]),
        ("made", session.out.when(found["created_at"])),
    ]
    session.out.show(found, lambda: fields, id="name")


@topics.verb(
    "put",
    changes=True,
    examples=(
        "topics put orders --description 'Changes of orders'",
        "topics put orders --private",
    ),
)
@_topic
@click.option("--description", help="Description of its events.")
@click.option("--owner", metavar="NAMESPACE", help="Owner: `token:<id>` or `user:<e-mail address>` (admins only).")
@click.option("--private/--open", default=None, help="Let only its owner subscribe; `--open`: every namespace.")
@click.option("--free", is_flag=True, help="Let the next publisher own it (admins only).")
def put(
    session: Session, topic: str, description: str | None, owner: str | None, private: bool | None, free: bool
) -> None:
    """Create or describe a topic. A topic without an owner becomes yours."""
    if owner is not None and free:
        raise click.UsageError("use --owner or --free, not both")
    body: dict[str, Any] = {} if description is None else {"description": description}
    body |= {} if private is None else {"private": private}
    body |= {"owner": owner} if owner is not None else {"owner": None} if free else {}
    stored = session.api.put("bus", "topics", topic, body=body)
    owned = f"is owned by {stored['owner']}" if stored["owner"] else "has no owner"
    session.out.confirm(stored, f"Topic {stored['name']} {owned}.", id="name")


@topics.verb("delete", destroys=True)
@_topic
def delete(session: Session, topic: str) -> None:
    """Delete a topic from all subscriptions. Only admins delete one that others subscribe to."""
    found = session.api.get("bus", "topics", topic)
    session.ask(f"This deletes the topic {found['name']} and takes it from every subscription; there is no undo.")
    session.api.delete("bus", "topics", topic)
    session.out.confirm(found, f"Deleted topic {found['name']}.", id="name")


@topics.verb("pressure")
def pressure(session: Session) -> None:
    """Show the backlog of the bus, as autoscalers read it."""
    told: Json = session.api.get("bus", "pressure")
    fields = [
        ("batches that are due", told["due"]),
        ("events that wait", told["queued"]),
        ("the oldest for", f"{told['oldest_seconds']:.1f} s"),
        ("records in no queue yet", told["log_lag"]),
    ]
    session.out.show(told, lambda: fields, id="due")


_AT_ONCE = 5_000
_COMPARED = 1_000  # topics, to find one with a name like that of a new one
_DATA = (("data",),)  # of an event: the bus hands it on as it came


@click.command(
    "publish",
    cls=Verb,
    examples=(
        "publish orders.v1 --type order.paid --url https://shop.example.com/orders/1 --data '{\"total\": 12.5}'",
        "publish orders.v1 --file events.ndjson",
    ),
)
@click.argument("topic")
@click.option("--type", "type_", metavar="TYPE", help="Type of the event, such as create or order.paid.")
@click.option("--url", help="URL of the thing that the event is about.")
@click.option("--data", type=options.RawText(), help="Data of the event: JSON, or @FILE.")
@click.option("--id", "event_id", metavar="ID", help="Id by which receivers know a repetition (default: a new one).")
@click.option("--file", metavar="FILE", help="Events as JSON: one, an array, or one a line (`-`: stdin).")
@click.pass_obj
def publish(
    session: Session,
    topic: str,
    type_: str | None,
    url: str | None,
    data: Any,
    event_id: str | None,
    file: str | None,
) -> None:
    """Publish events on a topic of the bus. The topic belongs to its first publisher.

    Give one event by --type and --url, or many in a --file. Receivers get repeated events again.
    """
    given = {"type": type_, "url": url, "data": data, "id": event_id}
    event = {name: value for name, value in given.items() if value is not None}
    if bool(file) == bool(event) or (event and not (type_ and url)):
        raise click.UsageError("give --type and --url for one event, or --file for many")
    events = options.read_documents(file, _DATA) if file else [event]
    is_new = session.out.is_for_people and _is_missing(session, topic)
    published, refused = list[Json](), 0
    for start in range(0, len(events), _AT_ONCE):
        results = session.api.post("bus", "topics", topic, "events", body=events[start : start + _AT_ONCE], once=True)
        published += [each for each in results if each["status"] < HTTPStatus.BAD_REQUEST]
        refused += _tell_refused(session, start, results)
    ids = " ".join(str(each["id"]) for each in published)
    if published or session.out.json:
        told = {"published": len(published), "refused": refused, "ids": ids}
        what = ids if len(published) == 1 else f"{len(published):,} events"
        session.out.confirm(told, f"Published {what}.", id="ids")
    if published and is_new:
        names = [each["name"] for each in session.api.items("bus", "topics", limit=_COMPARED)]
        near = suggest(topic, [name for name in names if name != topic])
        advice = f" Did you mean {near.removeprefix('; did you mean ')}" if near else ""
        session.out.tell(f"Made topic {topic}; it has no subscriptions.{advice}")
    if refused:
        rest = "the others are published" if published else "nothing is published"
        raise Failure(Exit.REFUSED, f"Refused: {refused:,} of {len(events):,}; {rest}.")


def _is_missing(session: Session, topic: str) -> bool:
    """Whether there is no such topic. A subscription makes the topics that it names."""
    from carillon.errors import CarillonError, NotFound

    try:
        session.api.get("bus", "topics", topic)
    except NotFound:
        return True
    except CarillonError:
        pass  # the publication tells of it
    return False


def _tell_refused(session: Session, start: int, results: Sequence[Json]) -> int:
    """Tell which were refused, by their places among all; returns how many."""
    bad = [each for each in results if each["status"] >= HTTPStatus.BAD_REQUEST]
    for each in bad:
        session.out.tell(f"{start + each['index'] + 1}: {each['error']['field']}: {each['error']['reason']}")
    return len(bad)


@click.command("listen", cls=Verb)
@click.argument("key", metavar="KEY")
@click.option("--to", "url", required=True, metavar="URL",
              help="URL that copies are posted to, such as http://localhost:3000/events.")  # fmt: skip
@click.option("--since", type=options.SequenceOrPast(),
              help="Begin after this sequence or at this time: 17, 2h (ago), 2025-12-24 (default: now).")  # fmt: skip
@click.option("--secret-file", metavar="FILE",
              help="Sign copies with the secret in this file (`-`: stdin; default: no signature).")  # fmt: skip
@options.namespace
@click.pass_obj
def listen(session: Session, key: str, url: str, since: str | None, secret_file: str | None, namespace: str) -> None:
    """Post copies of a subscription's deliveries to a program on your machine, until Ctrl-C.

    The subscription does not change: Carillon calls its receiver as before, and only this command sees your program's
    answers. Copies have the headers of deliveries and `carillon-copy: true`. They are signed only with --secret-file.
    """
    from services.cli.listening import DeliveryFollower, open_target

    secret = next(iter(options.read_lines(secret_file)), "") if secret_file else ""
    follower = DeliveryFollower(session, key, namespace, since or "")
    with open_target(url, secret) as target:
        _check(session, session.api.get("bus", "subscriptions", key, namespace=namespace))
        follower.begin()
        session.out.tell(f"Listening to {key}. Ctrl-C ends this.")
        while True:
            for found in follower.find_new():
                _copy(session, follower, target, found)
            time.sleep(PERIOD_SECONDS)


def _check(session: Session, subscription: Json) -> None:
    """Raise `Failure` if the caller may see no events; tell why none may come."""
    if subscription["redacted"]:
        raise Failure(Exit.NOT_ALLOWED, "You may not see the events of this subscription: that takes an operator.")
    if subscription["state"] != "active":
        session.out.tell(f"It is {subscription['state']}: nothing is delivered until it is resumed.")


def _copy(session: Session, follower: "DeliveryFollower", target: "CopyTarget", found: "FoundDelivery") -> None:
    delivery = follower.read(found)
    if isinstance(delivery, str):
        session.out.tell(f"{found.id} cannot be copied: {delivery}")
    else:
        answer = target.post(delivery)
        told = {"at": answer.at.isoformat(), "id": delivery.id, "sequence": delivery.sequence, "events": delivery.count}
        _write(session, told | {"status": answer.status, "ms": answer.ms, "error": answer.error})
    follower.pass_by(found)


def _write(session: Session, told: Json) -> None:
    if session.out.json:
        session.out.write(as_json(told))
    elif session.out.quiet:
        session.out.write(visible(told["id"]))
    else:
        events = f"{told['events']:,} event{'s' * (told['events'] != 1)}"
        answer = str(told["status"] or told["error"])
        words = (session.out.when(told["at"]), told["id"], events, answer, f"{told['ms']:,} ms")
        session.out.write(visible("  ".join(words)))
