"""What the verbs of dead letters have in common, whatever died."""

from collections.abc import Sequence

import click

from services.cli.names import find_listed
from services.cli.session import Session


def find_letter(session: Session, path: Sequence[str], typed: str, namespace: str) -> str:
    """The id of the dead letter that is meant, of those that the list at this path has."""
    return str(find_listed(session, typed, *path, what="dead letter", namespace=namespace)["id"])


def discard_letters(session: Session, path: Sequence[str], ids: Sequence[str], namespace: str) -> None:
    """Ask, and give these up."""
    if not ids:
        raise click.UsageError(f"name ids, as `carillon {'-'.join(path)} list` shows them")
    found = [find_letter(session, path, each, namespace) for each in ids]
    session.ask(f"This gives up {len(found)} dead letters for good: {', '.join(found[:5])}. There is no undo.")
    for letter_id in found:
        session.api.end(*path, letter_id, "discard", namespace=namespace)
        session.out.confirm({"id": letter_id}, f"Discarded {letter_id}.", id="id")
