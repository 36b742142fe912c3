"""Steps that all verbs of dead letters share, whatever died."""

from collections.abc import Sequence

import click

from services.cli.names import SHOWN, find_listed
from services.cli.output.tables import count_things
from services.cli.session import Session


def find_letter(session: Session, path: Sequence[str], typed: str, namespace: str) -> str:
    """The id of the dead letter that is meant, of those that the list at this path has."""
    return str(find_listed(session, typed, *path, what="dead letter", namespace=namespace)["id"])


def discard_letters(session: Session, path: Sequence[str], ids: Sequence[str], namespace: str) -> None:
    """Ask, and give these up."""
    if not ids:
        raise click.UsageError(f"name the dead letters by their ids: `carillon {'-'.join(path)} list` shows them")
    found = [find_letter(session, path, each, namespace) for each in ids]
    named = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    session.ask(f"This discards {count_things(len(found), 'dead letter')}: {named}. There is no undo.")
    for letter_id in found:
        session.api.end(*path, letter_id, "discard", namespace=namespace)
        session.out.confirm({"id": letter_id}, f"Discarded {letter_id}.", id="id")
