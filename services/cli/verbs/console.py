"""`carillon status`, `minutes`, `processes`, `queues`, `audit` and `settings`."""

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any

import click

from services.cli import options
from services.cli.exits import Exit
from services.cli.job_shape import fold_zones, job_columns
from services.cli.names import find_app
from services.cli.nouns import Noun, Verb
from services.cli.output import (
    Json,
    Output,
    TableColumn,
    as_json,
    count_things,
    draw_record,
    group_digits,
    paint,
    state_column,
    visible,
)
from services.cli.session import Session
from services.cli.watching import redraw

minutes = Noun("minutes")
MOST = 8 * 24 * 60


@minutes.verb("list")
@click.option(
    "--minutes",
    type=options.Count(1, MOST),
    metavar="N",
    default=60,
    show_default=True,
    help="Number of minutes to look back.",
)
def list_minutes(session: Session, minutes: int) -> None:
    """List the work of each minute, the oldest first. It counts pushes, messages, scheduled calls and deliveries.
    Minutes without any are left out."""
    columns = (
        TableColumn("FROM", lambda minute: session.out.when(minute["at"]), "word"),
        TableColumn("PUSHES", lambda minute: minute["recipients"].get("sent", 0), "number"),
        TableColumn("MESSAGES", lambda minute: minute["messages"].get("accepted", 0), "number"),
        TableColumn("CALLS", lambda minute: count_calls([minute]), "number"),
        TableColumn("DELIVERIES", lambda minute: minute["deliveries"].get("success", 0), "number"),
        TableColumn("FAILED", _count_failed, "number"),
        TableColumn("RETRIES", lambda minute: minute["retries"], "number"),
        TableColumn("DEAD", lambda minute: minute["deadLetters"], "number"),
        TableColumn("REQUESTS", lambda minute: minute["requests"], "number"),
        TableColumn("5XX", lambda minute: minute["serverErrors"], "number"),
        TableColumn("FEEDBACK", lambda minute: minute["feedback"], "number"),
    )
    session.out.show_list(session.api.get("minutes", minutes=minutes), columns, id="at", limit=0)


def count_calls(minutes: Sequence[Json]) -> int:
    """How many scheduled calls reached their target; an attempt that failed is none."""
    fired = [pair for minute in minutes for pair in minute["fired"].items()]
    return sum(count for kind, count in fired if kind.endswith("/fired"))


def _count_failed(minute: Json) -> int:
    """The devices and messages that were refused. Calls that fail are retries or dead letters."""
    failed: int = minute["recipients"].get("failed", 0) + minute["messages"].get("refused", 0)
    return failed


processes = Noun("processes")


@processes.verb("list")
def list_processes(session: Session) -> None:
    """List the processes and the work that they have in hand."""
    session.out.show_list(session.api.get("processes"), process_columns(session.out), id="id", limit=0)


def process_columns(out: Output) -> Sequence[TableColumn]:
    return (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("ROLES", lambda each: ",".join(each["roles"])),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("HOST", lambda each: each["host"]),
        TableColumn("VERSION", lambda each: each["version"], "word"),
        TableColumn("SINCE", lambda each: out.when(each["startedAt"]), "word"),
        TableColumn("SEEN", lambda each: out.when(each["seenAt"]), "word"),
        TableColumn("IN HAND", lambda each: each["inHandCount"], "number"),
        TableColumn("MB", lambda each: (each["memoryBytes"] or 0) // 2**20, "number"),
        TableColumn("FAILING", lambda each: ", ".join(each["failingChecks"])),
    )


queues = Noun("queues")
QUEUE_COLUMNS = (
    TableColumn("QUEUE", lambda queue: queue["name"]),
    TableColumn("READY", lambda queue: queue["ready"], "number"),
    TableColumn("UNACKED", lambda queue: queue["unacked"], "number"),
    TableColumn("CONSUMERS", lambda queue: queue["consumers"], "number"),
    TableColumn("IN/s", lambda queue: queue["publishRate"], "number"),
    TableColumn("OUT/s", lambda queue: queue["deliverRate"], "number"),
)


@queues.verb("list")
def list_queues(session: Session) -> None:
    """List the queues with their waiting and taken messages."""
    session.out.show_list(session.api.get("queues"), QUEUE_COLUMNS, id="name", limit=0)


VERDICTS = {
    "well": ("All is well.", "green"),
    "ailing": ("Not all is well.", "red"),
    "unknown": ("Whether all is well cannot be known.", "yellow"),
}
COMMANDS = {
    "silent-processes": "carillon processes list",
    "stopped-accounts": "carillon credentials list",
    "failing-callbacks": "carillon schedules due",
    "dead-letters": "carillon dead-letters list",
    "failing-receivers": "carillon subscriptions list",
    "suspended-subscriptions": "carillon subscriptions list",
    "bus-dead-letters": "carillon dead-letters list --of bus",
}
"""The command that shows what needs attention, by its kind."""
SEVERITIES = {"page": "red", "ticket": "yellow"}
SHOWN = 8


@click.command("status", cls=Verb)
@click.option("--watch", "watches", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@click.pass_obj
def status(session: Session, watches: bool) -> None:
    """Tell in one screen whether all is well, and why not; exits with 9 if it is not."""
    if watches:
        redraw(lambda: _show(session, session.api.get("overview")), in_place=session.out.is_for_people)
    overview = session.api.get("overview")
    _show(session, overview)
    if overview["verdict"] != "well":
        sys.exit(Exit.AILING)


def _show(session: Session, overview: Json) -> None:
    if session.out.json:
        session.out.write(as_json(overview))
    elif session.out.quiet:
        session.out.write(visible(overview["verdict"]))
    else:
        _draw(session.out, overview)


def _draw(out: Output, overview: Json) -> None:
    sentence, colour = VERDICTS.get(overview["verdict"], (visible(overview["verdict"]), "yellow"))
    out.write(f"{paint(sentence, colour)}  As of {out.when(overview['asOf'])}.")
    for sign in overview["signs"]:
        severity = paint(visible(sign["severity"]), SEVERITIES.get(sign["severity"], ""))
        since = f", since {out.when(sign['since'])}" if sign["since"] else ""
        seen = f"{visible(sign['seen']).removesuffix('.')}. " if sign["seen"] else ""
        out.write(f"\n{severity}  {visible(sign['name'])}{since}: {seen}{visible(sign['sentence'])}")
        out.write(f"      {visible(sign['remedy'])}")
    for each in overview["attention"]:
        command = COMMANDS.get(each["kind"])
        out.write(f"\n{paint('attention', 'yellow')}  {visible(each['sentence'])}{f': `{command}`' if command else ''}")
    for thing in overview["unknown"]:
        since = f", since {out.when(thing['since'])}"
        out.write(f"\n{paint('unknown', 'yellow')}  {visible(thing['what'])}{since}: {visible(thing['reason'])}")
    out.write("")
    for line in draw_record(_figures(overview)):
        out.write(line)
    busy = [queue for queue in overview["queues"] if queue["ready"] or queue["unacked"]]
    _jobs_section(out, "Paused", overview["jobs"]["paused"])
    _jobs_section(out, "Running", overview["jobs"]["running"])
    _jobs_section(out, "Scheduled", overview["jobs"]["waiting"])
    _section(out, "Queues that are not empty", QUEUE_COLUMNS, busy)
    _section(out, "Processes", process_columns(out), overview["processes"])


def _jobs_section(out: Output, title: str, jobs: list[Json]) -> None:
    """A localized push is one row. The overview has the first jobs only, so neither zones nor jobs are counted."""
    pushes: dict[str, list[Json]] = {}
    for job in jobs:
        pushes.setdefault(job["jobGroupId"] if job["zone"] else job["id"], []).append(job)
    folded = fold_zones(chain.from_iterable(pushes.values()))
    rows = [
        {**row, "id": row["jobGroupId"], "zone": "zones", "states": {}} if row["zone"] or row.get("states") else row
        for row in folded
    ]
    _section(out, title, job_columns(out), rows[:SHOWN])
    if len(rows) > SHOWN:
        out.write("and more: `carillon jobs list` shows them")


def _section(out: Output, title: str, columns: Any, rows: list[Json]) -> None:
    if not rows:
        return
    out.write(f"\n{title}")
    out.show_table(columns, rows[:SHOWN])
    if len(rows) > SHOWN:
        out.write(f"and {len(rows) - SHOWN} more")


def _figures(overview: Json) -> list[tuple[str, object]]:
    minutes = overview["minutes"]
    pushes = sum(minute["recipients"].get("sent", 0) for minute in minutes)
    messages = sum(minute["messages"].get("accepted", 0) for minute in minutes)
    deliveries = sum(minute["deliveries"].get("success", 0) for minute in minutes)
    done = [
        count_things(pushes, "push", "pushes"),
        count_things(messages, "message"),
        count_things(count_calls(minutes), "scheduled call"),
        count_things(deliveries, "delivery", "deliveries"),
    ]
    # An open job that is stopped still waits for the calls that are under way.
    words = {"stopped": "stopping"}
    jobs = [
        f"{group_digits(count)} {words.get(state, state)}" for state, count in overview["jobs"]["open"].items() if count
    ]
    figures = [
        ("open jobs", ", ".join(jobs) or "none"),
        ("dead letters", group_digits(overview["deadLetters"])),
        (
            "last hour",
            ", ".join(done) + " (counted every ten seconds)",
        ),
    ]
    partial = "You have no role over all there is: these are the jobs of your own apps."
    return [("only", partial)] if overview["partial"] else [*figures]


audit = Noun("audit")


@audit.verb("list", of_app=True)
@click.option("--act", default="", help="Only this act, such as job.stop.")
@click.option("--on", "thing", default="", metavar="ID", help="Only acts on the thing with this id or key.")
@click.option("--by", default="", metavar="NAMESPACE", help="Only acts of this caller, such as user:ana@example.com.")
@options.limit
def list_records(session: Session, act: str, thing: str, by: str, limit: int | None) -> None:
    """List acts, newest first; with --app, those on the app."""
    path = ("apps", find_app(session), "audit") if session.app else ("audit",)
    columns = (
        TableColumn("AT", lambda each: session.out.when(each["at"]), "word"),
        TableColumn("WHO", lambda each: each["who"]["name"]),
        TableColumn("ACT", lambda each: each["act"], "word"),
        TableColumn("ON", lambda each: each["on"]["id"], "id"),
        TableColumn("NAME", lambda each: each["on"].get("name", "")),
        state_column("OUTCOME", lambda each: each["outcome"]),
        TableColumn("REASON", lambda each: each["reason"]),
        TableColumn("VIA", lambda each: each["via"]),
    )
    found = session.api.items(*path, limit=limit, act=act, on=thing, by=by)
    session.out.show_list(found, columns, id="id", limit=limit)


settings = Noun("settings")
SETTING_COLUMNS = (
    TableColumn("NAME", lambda setting: setting["name"], "word"),
    TableColumn("VALUE", lambda setting: setting["value"]),
    TableColumn("DEFAULT", lambda setting: setting["default"]),
    TableColumn("MEANING", lambda setting: setting["sentence"]),
)


@settings.verb("list")
@click.option("--changed", is_flag=True, help="Only those that differ from their default.")
def list_settings(session: Session, changed: bool) -> None:
    """List the settings of the API, with secrets masked."""
    found = [each for each in session.api.get("settings") if not changed or each["value"] != each["default"]]
    session.out.show_list(found, SETTING_COLUMNS, id="name", limit=0)
