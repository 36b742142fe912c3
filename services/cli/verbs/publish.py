"""`carillon publish`."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import click

from services.cli import options
from services.cli.exits import Exit, Failure
from services.cli.output.tables import Json
from services.cli.session import Session
from services.cli.verb import Verb
from shared.domain.errors import suggest

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
        session.out.confirm(told, _sentence(published), id="ids")
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


def _sentence(published: Sequence[Json]) -> str:
    return f"Published {published[0]['id']}." if len(published) == 1 else f"Published {len(published):,} events."
