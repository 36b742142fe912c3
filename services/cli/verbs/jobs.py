"""`carillon jobs` and `carillon events`."""

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.job_options import (
    OF_MESSAGES,
    job_body,
    job_options,
    localized_option,
    message_fields,
    message_options,
)
from services.cli.job_screens import (
    MESSAGE_STATES,
    message_columns,
    show_batches,
    show_job,
    show_preview,
    show_rate,
    show_samples,
    tell_warnings,
    watch_group,
    watch_job,
    write_csv,
)
from services.cli.job_shape import BAD, ENDED, creation_of, event_line, events_of, job_columns, state_of, units_of
from services.cli.names import find_app, find_job, newest_jobs
from services.cli.nouns import Noun
from services.cli.options import Past
from services.cli.output import LISTED, Json, as_json, count_things, group_digits, visible
from services.cli.session import NAMED_FROM_DEVICES, Session
from services.cli.watching import PERIOD_SECONDS, redraw

if TYPE_CHECKING:
    from carillon.jobs import RetriedState

jobs = Noun("jobs")
OPEN = ("scheduled", "running", "paused", "circuitbreak")
STATES = (*OPEN, "stopped", "failed", "expired", "completed")
_job = click.argument("job_name", metavar="JOB", shell_complete=complete.jobs)


@jobs.verb("list", of_app=True)
@click.option("--status", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--template", default="", shell_complete=complete.templates, help="Only those of this template.")
@click.option("--by", default="", metavar="CALLER", help="Only those that this user or service made.")
@click.option("--since", type=Past(), help="Only those made since this time: 2h (ago), yesterday, '2025-12-24 14:00'.")
@click.option("--until", type=Past(), help="Only those made before this time.")
@click.option("--watch", "watches", is_flag=True, help="List them again every two seconds, until Ctrl-C.")
@options.limit
def list_jobs(session: Session, limit: int | None, watches: bool, **wanted: Any) -> None:
    """List the jobs, newest first. In a table, a localized push is one row."""
    out = session.out

    def draw(limit: int | None) -> None:
        wanted_more = {"grouped": True} if out.is_for_people else {"limit": limit}
        jobs = newest_jobs(session, **wanted_more, **wanted)
        out.show_list(jobs, job_columns(out, app=not session.app), id="id", limit=limit)

    if watches:
        most = LISTED if limit is None and not out.is_for_people else limit
        redraw(lambda: draw(most), in_place=out.is_for_people)
    draw(limit)


@jobs.verb("show", of_app=True)
@_job
def show(session: Session, job_name: str) -> None:
    """Show a job and its progress."""
    job = _get(session, job_name)
    show_job(session, job)


@jobs.verb(
    "create",
    of_app=True,
    changes=True,
    examples=(
        "jobs create --app shop --template welcome --filter locale=pt --watch",
        "jobs create --app shop --template invoice --credential smtp --csv users.csv --at '2030-12-24 09:00'",
    ),
)
@job_options
@localized_option
@message_options
@click.option("--id", "id_", default="", metavar="UUID", help="Id of your choice, a UUID.")
@click.option("--watch", "watches", is_flag=True, help="Watch it until it ends.")
def create(session: Session, templates: tuple[str, ...], id_: str, watches: bool, **given: Any) -> None:
    """Create a job, which starts at once or at --at."""
    own = message_fields(click.get_current_context(), **{name: given.pop(name) for name in OF_MESSAGES})
    app_id = find_app(session)
    body = job_body(session, app_id, **given, by_credential=bool(own)) | own | ({"id": id_} if id_ else {})
    job = session.api.post("apps", app_id, "jobs", body=body, template=",".join(templates))
    tell_warnings(session, job)
    if not watches:
        session.out.confirm(job, creation_of(session.out, job), id="id")
    elif job["zones"]:
        watch_group(session, app_id, job["jobGroupId"])
    else:
        watch_job(session, app_id, job["id"])


@jobs.verb("preview", of_app=True)
@job_options
@localized_option
@message_options
def preview(session: Session, templates: tuple[str, ...], **given: Any) -> None:
    """Preview the recipients and samples of a job. With --credential, also its duration. Nothing is stored."""
    own = message_fields(click.get_current_context(), **{name: given.pop(name) for name in OF_MESSAGES})
    app_id = find_app(session)
    body = job_body(session, app_id, **given, by_credential=bool(own)) | own
    show_preview(session, session.api.post("apps", app_id, "jobs", "preview", body=body, template=",".join(templates)))


@jobs.verb("watch", of_app=True)
@_job
def watch(session: Session, job_name: str) -> None:
    """Watch a job until it ends. Exits with 8 if it was stopped, failed, expired or broke its circuit."""
    watch_job(session, *find_job(session, job_name, among=OPEN))


@jobs.verb("pause", of_app=True, changes=True)
@_job
def pause(session: Session, job_name: str) -> None:
    """Pause a job. Nothing is sent until it is resumed."""
    app_id, job_id = find_job(session, job_name, among={"scheduled", "running"})
    session.api.jobs.pause(app_id, job_id)
    _confirm(session, app_id, job_id, "Paused")


@jobs.verb("resume", of_app=True, changes=True)
@_job
@click.option("--watch", "watches", is_flag=True, help="Watch it until it ends.")
def resume(session: Session, job_name: str, watches: bool) -> None:
    """Resume a job that is paused or broke its circuit."""
    app_id, job_id = find_job(session, job_name, among={"paused", "circuitbreak"})
    session.api.jobs.resume(app_id, job_id)
    if watches:
        watch_job(session, app_id, job_id)
    else:
        _confirm(session, app_id, job_id, "Resumed")


@jobs.verb("stop", of_app=True, destroys=True)
@_job
def stop(session: Session, job_name: str) -> None:
    """Stop a job for good. The unsent rest is dropped; only a job of messages can be retried."""
    job = _get(session, job_name, among=OPEN)
    if state_of(job) in ENDED - BAD:
        raise Failure(Exit.REFUSED, f"Job {visible(job['id'])} is completed: there is nothing to stop.")
    left = job["totalTokens"] - job["completedTokens"]
    app = job["app"]["name"]
    undo = "`carillon jobs retry` can send the rest later." if job.get("messages") else "There is no undo."
    sentence = f"This stops job {job['id']} of app {app}: {_what_is_left(job, left)} {undo}"
    session.ask(sentence, type_name=app if left > NAMED_FROM_DEVICES else "")
    session.api.jobs.stop(job["appId"], job["id"])
    _confirm(session, job["appId"], job["id"], "Stopped")


@jobs.verb("retry", of_app=True, changes=True)
@_job
@click.option(
    "--state", "states", multiple=True, type=click.Choice(["failed", "unsent", "unknown"]), default=("failed",),
    show_default=True, help="Messages in this state; may be given several times.",
)  # fmt: skip
def retry(session: Session, job_name: str, states: "tuple[RetriedState, ...]") -> None:
    """Retry failed or unsent messages of an ended job. --state chooses which; by default, failed ones."""
    app_id, job_id = find_job(session, job_name, among=ENDED)
    before = session.api.get("apps", app_id, "jobs", job_id, exact="true").get("messages") or {}
    session.api.jobs.retry(app_id, job_id, states=states)
    job = session.api.get("apps", app_id, "jobs", job_id)
    count = sum(before.get(state, 0) for state in {*states})
    session.out.confirm(job, f"Retrying job {job_id}: {count_things(count, 'message')}.", id="id")


@jobs.verb("delete", of_app=True, destroys=True)
@_job
def delete(session: Session, job_name: str) -> None:
    """Delete a job that has ended, and all its messages. Its batches and figures go too. A repeated create sends it
    again."""
    job = _get(session, job_name, among=ENDED)
    sentence = f"This deletes job {job['id']} of app {job['app']['name']} with all its figures; there is no undo."
    session.ask(sentence)
    session.api.jobs.delete(job["appId"], job["id"])
    session.out.confirm(job, f"Deleted job {job['id']}. The server may take a while to delete its messages.", id="id")


@jobs.verb("batches", of_app=True)
@_job
@click.option("--state", default="", help="Only those in this state: planned, queued, sending, sent, failed, dropped.")
@options.limit
def batches(session: Session, job_name: str, state: str, limit: int | None) -> None:
    """List the batches of a job."""
    show_batches(session, [find_job(session, job_name)], state=state, limit=limit)


@jobs.verb("messages", of_app=True)
@_job
@click.option("--state", type=click.Choice(MESSAGE_STATES), help="Only those in this state.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all of them as CSV.")
@options.limit
def messages(session: Session, job_name: str, state: str | None, as_csv: bool, limit: int | None) -> None:
    """List the messages of a job with a credential. Left out: those that no worker has taken."""
    app_id, job_id = find_job(session, job_name)
    wanted = None if as_csv else limit
    found = session.api.items("apps", app_id, "jobs", job_id, "messages", limit=wanted, state=state or "")
    if as_csv:
        write_csv(found)
        return
    session.out.show_list(found, message_columns(session.out), id="id", limit=limit)
    if session.out.is_for_people and not state:
        job = session.api.get("apps", app_id, "jobs", job_id)
        if unsent := (job.get("messages") or {}).get("unsent"):
            are = "were" if state_of(job) in ENDED else "are"
            yet = "" if state_of(job) in ENDED else " yet"
            session.out.tell(f"{group_digits(unsent)} more {are} not sent{yet}.")


@jobs.verb("samples", of_app=True)
@_job
def samples(session: Session, job_name: str) -> None:
    """Show a sample for each template and locale of a job."""
    show_samples(session, *find_job(session, job_name))


@jobs.verb("rate", of_app=True)
@_job
def rate(session: Session, job_name: str) -> None:
    """Show the speed of a job, from its start on."""
    show_rate(session, *find_job(session, job_name))


def _get(session: Session, job_name: str, *, among: Collection[str] = ()) -> Json:
    app_id, job_id = find_job(session, job_name, among=among)
    job: Json = session.api.get("apps", app_id, "jobs", job_id)
    return job


def _confirm(session: Session, app_id: str, job_id: str, done: str) -> None:
    job = session.api.get("apps", app_id, "jobs", job_id)
    session.out.confirm(job, f"{done} job {job_id}.", id="id")


def _what_is_left(job: Json, left: int) -> str:
    if not job["totalBatches"]:
        return "no recipient has got it yet."
    planned = f"{group_digits(left)} of the {group_digits(job['totalTokens'])} {units_of(job)} planned so far"
    return f"{planned} will not be {'sent' if job.get('credentialId') else 'reached'}."


events = Noun("events")


@events.verb("list", of_app=True)
@_job
def list_events(session: Session, job_name: str) -> None:
    """List the events of a job."""
    app_id, job_id = find_job(session, job_name)
    for event in events_of(session.api.get("apps", app_id, "jobs", job_id)):
        _write(session, event)


@events.verb("follow", of_app=True)
@_job
def follow(session: Session, job_name: str) -> None:
    """Print the events of a job until it ends."""
    app_id, job_id = find_job(session, job_name)
    told: set[str] = set()
    while True:
        job = session.api.get("apps", app_id, "jobs", job_id)
        for event in events_of(job):
            if event["id"] not in told:
                told.add(event["id"])
                _write(session, event)
        if state_of(job) in ENDED | BAD:
            return
        time.sleep(PERIOD_SECONDS)


def _write(session: Session, event: Json) -> None:
    if session.out.json:
        session.out.write(as_json(event))
    else:
        session.out.write(visible(event["id"]) if session.out.quiet else event_line(session.out, event))
