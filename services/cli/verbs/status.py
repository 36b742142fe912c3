"""`carillon status`: one screen that says whether all is well, and why not."""

import sys
from itertools import chain
from typing import Any

import click

from services.cli.exits import Exit
from services.cli.job_shape import fold_zones, job_columns
from services.cli.output.out import Output
from services.cli.output.tables import Json, count_things, draw_record, group_digits
from services.cli.output.text import as_json, paint, visible
from services.cli.session import Session
from services.cli.verb import Verb
from services.cli.verbs.minutes import count_calls
from services.cli.verbs.processes import process_columns
from services.cli.verbs.queues import QUEUE_COLUMNS
from services.cli.watching import redraw

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
    for each in overview.get("attention", ()):
        command = COMMANDS.get(each["kind"])
        out.write(f"\n{paint('attention', 'yellow')}  {visible(each['sentence'])}{f': `{command}`' if command else ''}")
    for thing in overview["unknown"]:
        since = f", since {out.when(thing['since'])}"
        out.write(f"\n{paint('unknown', 'yellow')}  {visible(thing['what'])}{since}: {visible(thing['reason'])}")
    out.write("")
    for line in draw_record(_figures(overview)):
        out.write(line)
    busy = [queue for queue in overview["queues"] if queue["ready"] or queue["unacked"]]
    _jobs_section(out, "Paused", overview["jobs"].get("paused", []))
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
    messages = sum(minute.get("messages", {}).get("accepted", 0) for minute in minutes)
    deliveries = sum(minute.get("deliveries", {}).get("success", 0) for minute in minutes)
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
