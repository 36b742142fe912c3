"""`carillon bus-dead-letters`."""

from collections.abc import Sequence

import click

from services.cli import options
from services.cli.bus_attempts import describe_last_answer, describe_sent
from services.cli.letters import discard_letters, find_letter
from services.cli.output.tables import TableColumn, count_things
from services.cli.session import Session
from services.cli.verb import noun

command = noun("bus-dead-letters")

_PATH = ("bus", "dead-letters")
_ids = click.argument("ids", nargs=-1, metavar="[ID]...")
_MOST_CALLS = 1_000


@command.verb("list")
@click.option("--key", default="", help="Only those of this subscription.")
@options.namespace
@options.limit
def list_letters(session: Session, key: str, namespace: str, limit: int | None) -> None:
    """List the dead letters, newest first."""
    columns = (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("KEY", lambda each: each["key"], "id"),
        TableColumn("REASON", lambda each: each["reason"], "word"),
        TableColumn("DIED", lambda each: session.out.when(each["died_at"]), "word"),
        TableColumn("EVENTS", lambda each: each["count"], "number"),
        TableColumn("TRIES", lambda each: each["made"], "number"),
        TableColumn("LAST ANSWER", describe_last_answer),
    )
    found = session.api.items(*_PATH, limit=limit, key=key, namespace=namespace)
    session.out.show_list(found, columns, id="id", limit=limit)


@command.verb("show")
@click.argument("id_", metavar="ID")
@options.namespace
def show(session: Session, id_: str, namespace: str) -> None:
    """Show a dead letter with its events."""
    letter = session.api.get(*_PATH, find_letter(session, _PATH, id_, namespace), namespace=namespace)
    session.out.show(letter, lambda: describe_sent(session.out, letter), id="id")


@command.verb("retry", changes=True)
@_ids
@click.option("--key", default="", help="All of this subscription.")
@click.option("--all", "everything", is_flag=True, help="All of the namespace.")
@options.namespace
def retry(session: Session, ids: Sequence[str], key: str, everything: bool, namespace: str) -> None:
    """Deliver dead letters again under their ids. Choose them by id, by a subscription, or all."""
    if (bool(ids), bool(key), everything).count(True) != 1:
        raise click.UsageError("name the dead letters by their ids, or use one of --key and --all")
    for letter_id in [find_letter(session, _PATH, each, namespace) for each in ids]:
        session.api.end(*_PATH, letter_id, "retry", namespace=namespace)
        session.out.confirm({"id": letter_id}, f"Delivering dead letter {letter_id} again.", id="id")
    if not ids:
        retried = _retry_all(session, key, namespace)
        session.out.confirm(
            {"retried": retried}, f"Delivering {count_things(retried, 'dead letter')} again.", id="retried"
        )


@command.verb("discard", destroys=True)
@_ids
@options.namespace
def discard(session: Session, ids: Sequence[str], namespace: str) -> None:
    """Discard dead letters for good."""
    discard_letters(session, _PATH, ids, namespace)


def _retry_all(session: Session, key: str, namespace: str) -> int:
    """Ask until there are no more that can be retried."""
    retried = 0
    for _ in range(_MOST_CALLS):
        answer = session.api.post(*_PATH, "retry", body={"key": key} if key else {}, namespace=namespace)
        retried += answer["retried"]
        if not answer["more"] or not answer["retried"]:
            break
    return retried
