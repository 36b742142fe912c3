"""`carillon deliveries` and `carillon dead-letters`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import click

from services.cli import complete, options
from services.cli.names import SHOWN, pick
from services.cli.nouns import FieldColumn, Noun
from services.cli.output import Fields, Json, Output, count_things, visible
from services.cli.session import Session


def describe_answer(attempt: Json) -> str:
    """The error of one call, or its answer."""
    return str(attempt["error"] or f"{attempt['status']} {attempt['excerpt']}".strip())


def describe_last_answer(item: Json) -> str:
    """The answer to the last call of a delivery or a dead letter, if any."""
    return describe_answer(item["attempts"][-1]) if item["attempts"] else ""


def describe_sent(out: Output, item: Json) -> Fields:
    """The fields of a delivery or a dead letter: instants in the reader's zone, calls in words."""
    told = {name: out.when(each) if each and name.endswith("_at") else each for name, each in item.items()}
    calls = [f"{out.when(each['at'])}, {each['ms']:,} ms: {describe_answer(each)}" for each in item["attempts"]]
    return list((told | {"attempts": calls}).items())


deliveries = Noun("deliveries")
_DELIVERY = (
    FieldColumn("id", "id"), FieldColumn("sequence", "number"), FieldColumn("status", "state"),
    FieldColumn("cut_at", "time", title="CUT"), FieldColumn("count", "number", title="EVENTS"),
    FieldColumn("made", "number", title="TRIES"),
    FieldColumn("attempts", title="LAST ANSWER", tell=describe_last_answer),
)  # fmt: skip


@deliveries.verb("list")
@click.argument("key", metavar="KEY")
@click.option("--status", type=click.Choice(["open", "delivered", "dead", "discarded"]),
              help="Only those in this state.")  # fmt: skip
@click.option("--since", type=options.SequenceOrPast(),
              help="Only those after this sequence or since this time: 17, 2h (ago), 2025-12-24.")  # fmt: skip
@options.namespace
@options.limit
def list_deliveries(
    session: Session, key: str, status: str | None, since: str | None, namespace: str, limit: int | None
) -> None:
    """List the deliveries of a subscription, newest first."""
    path = ("bus", "subscriptions", key, "deliveries")
    found = session.api.items(*path, limit=limit, status=status, since=since, namespace=namespace)
    session.out.show_list(found, [each.of(session.out) for each in _DELIVERY], id="id", limit=limit)


@deliveries.verb("show")
@click.argument("id_", metavar="ID")
@click.option("--events", is_flag=True, help="Include its events, as long as they are kept.")
@options.namespace
def show_delivery(session: Session, id_: str, events: bool, namespace: str) -> None:
    """Show a delivery and its attempts."""
    found = session.api.get("bus", "deliveries", id_, events="true" if events else "", namespace=namespace)
    session.out.show(found, lambda: describe_sent(session.out, found), id="id")


dead_letters = Noun("dead-letters")
_PATHS = {"schedules": ("dead-letters",), "bus": ("bus", "dead-letters")}
_MOST_CALLS = 1_000
_ids = click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete.dead_letters)


def _source(letter: Json) -> str:
    return "schedules" if "due" in letter else "bus"


def _describe_death(letter: Json) -> str:
    if _source(letter) == "schedules":
        return str(letter["error"])
    return f"{letter['reason']}, {count_things(letter['count'], 'event')}: {describe_last_answer(letter)}"


_LETTER = (
    FieldColumn("id", "id"), FieldColumn("of", "word", tell=_source), FieldColumn("key", "id"),
    FieldColumn("died_at", "time", title="DIED"),
    FieldColumn("tries", "number", tell=lambda each: each["attempts" if _source(each) == "schedules" else "made"]),
    FieldColumn("error", tell=_describe_death),
)  # fmt: skip
_ERROR = (FieldColumn("count", "number"), FieldColumn("last_died_at", "time", title="LAST DIED"), FieldColumn("error"))


def _option_of(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--of", "of", type=click.Choice(list(_PATHS)), help=text)


@dead_letters.verb("list")
@_option_of("Only those of schedules, or of the bus (default: both).")
@click.option("--key", default="", shell_complete=complete.schedules, help="Only those with this key.")
@options.namespace
@options.limit
def list_letters(session: Session, of: str | None, key: str, namespace: str, limit: int | None) -> None:
    """List the dead letters of schedules, then those of the bus."""
    lists = (session.api.items(*path, limit=limit, key=key, namespace=namespace) for path in _paths(of))
    found = islice(chain.from_iterable(lists), limit or None)
    session.out.show_list(found, [each.of(session.out) for each in _LETTER], id="id", limit=limit)


@dead_letters.verb("show")
@click.argument("id_", metavar="ID", shell_complete=complete.dead_letters)
@_option_of("Look only among those of schedules, or of the bus (default: both).")
@options.namespace
def show_letter(session: Session, id_: str, of: str | None, namespace: str) -> None:
    """Show a dead letter with its message or its events."""
    path, letter_id = _find_letter(session, of, id_, namespace)
    letter = session.api.get(*path, letter_id, namespace=namespace)
    if path == _PATHS["bus"]:
        session.out.show(letter, lambda: describe_sent(session.out, letter), id="id")
    else:
        session.out.show(letter, lambda: [(visible(name), value) for name, value in letter.items()], id="id")


@dead_letters.verb("errors")
@click.option("--key", default="", shell_complete=complete.schedules, help="Only those of this schedule.")
@options.namespace
def errors(session: Session, key: str, namespace: str) -> None:
    """Count the errors of the last 1,000 dead letters of schedules."""
    found = session.api.get(*_PATHS["schedules"], "errors", key=key, namespace=namespace)
    session.out.show_list(found, [each.of(session.out) for each in _ERROR], id="error", limit=0)


@dead_letters.verb("retry", changes=True)
@_ids
@_option_of("Look only among those of schedules, or of the bus (default: both; with --key or --all, schedules).")
@click.option("--key", default="", shell_complete=complete.schedules, help="All of this schedule or subscription.")
@click.option("--all", "everything", is_flag=True, help="All of the namespace.")
@options.namespace
def retry(session: Session, ids: Sequence[str], of: str | None, key: str, everything: bool, namespace: str) -> None:
    """Retry dead letters: some by id, those of a key, or all.

    A call is made as its schedule says now. Events of the bus are delivered again under their ids.
    """
    if (bool(ids), bool(key), everything).count(True) != 1:
        raise click.UsageError("name the dead letters by their ids, or use one of --key and --all")
    for path, letter_id in [_find_letter(session, of, each, namespace) for each in ids]:
        session.api.end(*path, letter_id, "retry", namespace=namespace)
        session.out.confirm({"id": letter_id}, f"Retrying dead letter {letter_id}.", id="id")
    if ids:
        return
    answer = _retry_all(session, _PATHS[of or "schedules"], key, namespace)
    done = f"Retrying {count_things(answer['retried'], 'dead letter')}."
    if action := answer.get("bulkAction"):
        session.out.confirm(answer, f"{done} `carillon bulk watch {action}` shows progress.", id="bulkAction")
    else:
        session.out.confirm(answer, done, id="retried")


@dead_letters.verb("discard", destroys=True)
@_ids
@_option_of("Look only among those of schedules, or of the bus (default: both).")
@options.namespace
def discard(session: Session, ids: Sequence[str], of: str | None, namespace: str) -> None:
    """Discard dead letters for good. `carillon bulk start dead-letter.discard` discards all that match."""
    if not ids:
        raise click.UsageError("name the dead letters by their ids: `carillon dead-letters list` shows them")
    found = [_find_letter(session, of, each, namespace) for each in ids]
    named = ", ".join(letter_id for _, letter_id in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    session.ask(f"This discards {count_things(len(found), 'dead letter')}: {named}{more}. There is no undo.")
    for path, letter_id in found:
        session.api.end(*path, letter_id, "discard", namespace=namespace)
        session.out.confirm({"id": letter_id}, f"Discarded {letter_id}.", id="id")


def _paths(of: str | None) -> list[tuple[str, ...]]:
    return [_PATHS[of]] if of else [*_PATHS.values()]


def _find_letter(session: Session, of: str | None, typed: str, namespace: str) -> tuple[tuple[str, ...], str]:
    letters: Iterator[Json] = chain.from_iterable(session.api.items(*path, namespace=namespace) for path in _paths(of))
    letter = pick(typed, letters, what="dead letter", see="`carillon dead-letters list` shows them.")
    return _PATHS[_source(letter)], str(letter["id"])


def _retry_all(session: Session, path: Sequence[str], key: str, namespace: str) -> dict[str, Any]:
    """Ask until no more can be retried."""
    retried, answer = 0, dict[str, Any]()
    for _ in range(_MOST_CALLS):
        answer = session.api.post(*path, "retry", body={"key": key} if key else {}, namespace=namespace)
        retried += answer["retried"]
        if not answer.get("more") or not answer["retried"]:
            break
    return {**answer, "retried": retried}
