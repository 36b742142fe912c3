"""`carillon bulk`."""

from collections.abc import Sequence

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.names import find_app, find_listed
from services.cli.nouns import Noun
from services.cli.output import Fields, Json, TableColumn, count_things, group_digits, state_column, visible
from services.cli.session import NAMED_FROM_DEVICES, NAMED_FROM_THINGS, Session
from services.cli.watching import Glance, watch

bulk = Noun("bulk")

PATH = "bulk-actions"
COUNTED = 1_000_000
"""The API counts no further."""
_OPEN = frozenset({"waiting", "running"})
_id = click.argument("id_", metavar="ID", shell_complete=complete.bulk)


@bulk.verb("list")
@options.limit
def list_actions(session: Session, limit: int | None) -> None:
    """List the bulk actions, newest first."""
    columns = (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("ACT", lambda each: each["act"], "word"),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("DONE", lambda each: each["done"], "number"),
        TableColumn("FAILED", lambda each: each["failed"], "number"),
        TableColumn("MATCHED", lambda each: each["matched"], "number"),
        TableColumn("STARTED", lambda each: session.out.when(each["createdAt"]), "word"),
        TableColumn("BY", lambda each: each["createdBy"]),
    )
    session.out.show_list(session.api.items(PATH, limit=limit), columns, id="id", limit=limit)


@bulk.verb(
    "start",
    destroys=True,
    examples=(
        "bulk start job.stop --filter app=shop --reason 'a wrong link'",
        "bulk start dead-letter.retry --filter prefix=invoice- --watch --reason 'the receiver is back'",
    ),
)
@click.argument("act", metavar="ACT")
@options.pairs(
    "--filter",
    "filters",
    help="Only those with this value. NAME: namespace, key, error, prefix, state, label, app, status, template or by.",
)
@click.option(
    "--at-most",
    type=options.Count(1),
    metavar="N",
    help="Maximum number of things (default: as many as match when it asks).",
)
@click.option("--watch", "watches", is_flag=True, help="Watch it until it ends.")
def start(session: Session, act: str, filters: Sequence[tuple[str, str]], at_most: int | None, watches: bool) -> None:
    """Start an act on all things that match. Acts are `job.stop`, `schedule.pause`, `dead-letter.retry` and others."""
    wanted = {name: find_app(session, value) if name == "app" and value else value for name, value in filters}
    body: Json = {"act": act, "filter": wanted, "reason": session.require_reason()}
    figures = session.api.post(PATH, body=body, dryRun="true")
    matched, devices = figures["matched"], figures.get("devicesNotReached") or 0
    if at_most is None and matched >= COUNTED:
        raise click.UsageError(f"{group_digits(COUNTED)} things or more match: give a maximum by --at-most")
    much = matched > NAMED_FROM_THINGS or devices > NAMED_FROM_DEVICES
    session.ask(
        f"This does {act} to {count_things(matched, 'thing')}{_losses(figures)}.", type_name=act if much else ""
    )
    begun = session.api.post(PATH, body={**body, "atMost": matched if at_most is None else at_most})
    if watches:
        _watch(session, begun["id"])
    else:
        session.out.confirm(
            begun, f"Started {act} on {count_things(matched, 'thing')}: bulk action {begun['id']}.", id="id"
        )


@bulk.verb("show")
@_id
def show(session: Session, id_: str) -> None:
    """Show a bulk action."""
    action = session.api.get(PATH, _find(session, id_))
    session.out.show(action, lambda: _fields(session, action), id="id")


@bulk.verb("watch")
@_id
def watch_action(session: Session, id_: str) -> None:
    """Watch a bulk action until it ends; exits with 1 if anything failed."""
    _watch(session, _find(session, id_))


@bulk.verb("cancel", destroys=True)
@_id
def cancel(session: Session, id_: str) -> None:
    """Cancel a bulk action. Its finished steps stay done."""
    found = _find(session, id_)
    session.ask(f"This cancels bulk action {found}; what it has done stays done.")
    action = session.api.post(PATH, found, "cancel")
    session.out.confirm(action, f"Cancelled bulk action {action['id']}.", id="id")


def _watch(session: Session, action_id: str) -> None:
    seen: dict[str, Json] = {}

    def look() -> Glance:
        action = seen["action"] = session.api.get(PATH, action_id)
        return Glance(
            title=action["act"],
            state=action["state"],
            done=action["done"] + action["failed"] + action["skipped"],
            total=action["matched"],
            details=f"{group_digits(action['failed'])} failed" if action["failed"] else "",
            over=action["state"] not in _OPEN,
        )

    watch(look)
    action = seen["action"]
    session.out.show(action, lambda: _fields(session, action), id="id")
    if action["state"] == "failed":
        raise Failure(Exit.FAILED, visible(action["failure"]))
    if action["failed"]:
        raise Failure(Exit.FAILED, f"Failed: {count_things(action['failed'], 'thing')}.")


def _losses(figures: Json) -> str:
    devices, unplanned = figures.get("devicesNotReached") or 0, figures.get("unplanned") or 0
    lost = f"; {count_things(devices, 'device')} will not be reached" if devices else ""
    return lost + (f"; {group_digits(unplanned)} of the jobs are not planned to their end" if unplanned else "")


def _find(session: Session, typed: str) -> str:
    return str(find_listed(session, typed, PATH, what="bulk action", noun="bulk")["id"])


def _fields(session: Session, action: Json) -> Fields:
    counts = [(name, group_digits(action[name])) for name in ("matched", "done", "failed", "skipped")]
    return [
        ("id", action["id"]),
        ("act", action["act"]),
        ("filter", action["filter"]),
        ("state", action["state"]),
        *counts,
        ("reason", action.get("reason")),
        ("failure", action.get("failure")),
        ("failures", [f"{each['id']}: {each['reason']}" for each in action.get("failures", [])]),
        ("begun", f"{session.out.when(action['createdAt'])} by {action['createdBy']}"),
    ]
