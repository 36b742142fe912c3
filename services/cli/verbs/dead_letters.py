"""`carillon dead-letters`."""

from collections.abc import Sequence

import click

from services.cli import complete, options
from services.cli.letters import discard_letters, find_letter
from services.cli.output.tables import TableColumn, count_things
from services.cli.output.text import visible
from services.cli.session import Session
from services.cli.verb import noun

command = noun("dead-letters")

_PATH = ("dead-letters",)
_ids = click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete.dead_letters)


@command.verb("list")
@click.option("--key", default="", shell_complete=complete.schedules, help="Only those of this schedule.")
@options.namespace
@options.limit
def list_letters(session: Session, key: str, namespace: str, limit: int | None) -> None:
    """List the dead letters."""
    columns = (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("KEY", lambda each: each["key"], "id"),
        TableColumn("DUE", lambda each: session.out.when(each["due"]), "word"),
        TableColumn("DIED", lambda each: session.out.when(each["died_at"]), "word"),
        TableColumn("TRIES", lambda each: each["attempts"], "number"),
        TableColumn("ERROR", lambda each: each["error"]),
    )
    found = session.api.items(*_PATH, limit=limit, key=key, namespace=namespace)
    session.out.show_list(found, columns, id="id", limit=limit)


@command.verb("show")
@click.argument("id_", metavar="ID", shell_complete=complete.dead_letters)
@options.namespace
def show(session: Session, id_: str, namespace: str) -> None:
    """Show a dead letter and its message."""
    letter = session.api.get(*_PATH, find_letter(session, _PATH, id_, namespace), namespace=namespace)
    session.out.show(letter, lambda: [(visible(name), value) for name, value in letter.items()], id="id")


@command.verb("errors")
@click.option("--key", default="", shell_complete=complete.schedules, help="Only those of this schedule.")
@options.namespace
def errors(session: Session, key: str, namespace: str) -> None:
    """Count the errors of the last 1,000 dead letters. The most frequent is first."""
    columns = (
        TableColumn("COUNT", lambda each: each["count"], "number"),
        TableColumn("LAST DIED", lambda each: session.out.when(each["last_died_at"]), "word"),
        TableColumn("ERROR", lambda each: each["error"]),
    )
    found = session.api.get(*_PATH, "errors", key=key, namespace=namespace)
    session.out.show_list(found, columns, id="error", limit=0)


@command.verb("retry", changes=True)
@_ids
@click.option("--key", default="", shell_complete=complete.schedules, help="All of this schedule.")
@click.option("--all", "everything", is_flag=True, help="All of the namespace.")
@options.namespace
def retry(session: Session, ids: Sequence[str], key: str, everything: bool, namespace: str) -> None:
    """Retry dead letters, as their schedules say now. Choose them by id, by a schedule, or all."""
    if (bool(ids), bool(key), everything).count(True) != 1:
        raise click.UsageError("name the dead letters by their ids, or use one of --key and --all")
    if ids:
        for letter_id in [find_letter(session, _PATH, each, namespace) for each in ids]:
            session.api.end(*_PATH, letter_id, "retry", namespace=namespace)
            session.out.confirm({"id": letter_id}, f"Retrying dead letter {letter_id}.", id="id")
        return
    answer = session.api.post(*_PATH, "retry", body={"key": key} if key else {}, namespace=namespace)
    if action := answer.get("bulkAction"):
        begun = (
            f"Retrying {count_things(answer['retried'], 'dead letter')}. `carillon bulk watch {action}` shows progress."
        )
        session.out.confirm(answer, begun, id="bulkAction")
        return
    session.out.confirm(answer, f"Retrying {count_things(answer['retried'], 'dead letter')}.", id="retried")


@command.verb("discard", destroys=True)
@_ids
@options.namespace
def discard(session: Session, ids: Sequence[str], namespace: str) -> None:
    """Discard dead letters for good. `carillon bulk start dead-letter.discard` discards all that match."""
    discard_letters(session, _PATH, ids, namespace)
