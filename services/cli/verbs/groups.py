"""`carillon groups`: localized pushes."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import click

from services.cli import complete, options
from services.cli.job_options import job_body, job_options
from services.cli.job_screens import show_batches, show_group, show_preview, show_samples, tell_warnings, watch_group
from services.cli.job_shape import ENDED, creation_of, state_of, zone_columns, zones_with_devices
from services.cli.names import find_app, find_group, newest_jobs
from services.cli.nouns import Noun
from services.cli.output import TableColumn, group_digits
from services.cli.session import NAMED_FROM_DEVICES, Session

groups = Noun("groups")

_group = click.argument("group_name", metavar="GROUP", shell_complete=complete.groups)


@groups.verb("list", of_app=True)
@options.limit
def list_groups(session: Session, limit: int | None) -> None:
    """List the groups, newest first."""
    columns = (
        TableColumn("ID", lambda job: job["jobGroupId"], "id"),
        TableColumn("APP", lambda job: job["app"]["name"]),
        TableColumn("NAME", lambda job: job["name"]),
        TableColumn("MADE", lambda job: session.out.when(job["createdAt"]), "word"),
        TableColumn("MADE BY", lambda job: job["createdBy"]),
    )
    groups = (job for job in newest_jobs(session, grouped=True) if job.get("states"))
    session.out.show_list(groups, columns, id="jobGroupId", limit=limit)


@groups.verb("show", of_app=True)
@_group
def show(session: Session, group_name: str) -> None:
    """Show a group, its progress and its zones with devices. --json has all zones."""
    group = session.api.get(*_path(session, group_name))
    show_group(session, group)
    if (zones := zones_with_devices(group)) and session.out.is_for_people:
        session.out.write("")
        session.out.show_table(zone_columns(), zones)


@groups.verb(
    "create",
    of_app=True,
    changes=True,
    examples=(
        "groups create --app shop --template welcome --at '2030-12-24 18:00'",
        "groups create --app shop --template welcome --at '2030-12-24 18:00' --past-time skip",
    ),
)
@job_options
@click.option("--watch", "watches", is_flag=True, help="Watch it until all its jobs end.")
def create(session: Session, templates: tuple[str, ...], watches: bool, **given: Any) -> None:
    """Create a push for the local time of each zone. It starts in each zone when its clocks show the time of --at."""
    app_id = find_app(session)
    body = job_body(session, app_id, **given | {"localized": True})
    job = session.api.post("apps", app_id, "jobs", body=body, template=",".join(templates))
    tell_warnings(session, job)
    if watches:
        watch_group(session, app_id, job["jobGroupId"])
    else:
        session.out.confirm(job, creation_of(session.out, job), id="jobGroupId")


@groups.verb("preview", of_app=True)
@job_options
def preview(session: Session, templates: tuple[str, ...], **given: Any) -> None:
    """Preview recipients, samples and start of each zone. Nothing is stored."""
    app_id = find_app(session)
    body = job_body(session, app_id, **given | {"localized": True})
    show_preview(session, session.api.post("apps", app_id, "jobs", "preview", body=body, template=",".join(templates)))


@groups.verb("watch", of_app=True)
@_group
def watch(session: Session, group_name: str) -> None:
    """Watch a group until all its jobs end."""
    watch_group(session, *find_group(session, group_name))


@groups.verb("pause", of_app=True, changes=True)
@_group
def pause(session: Session, group_name: str) -> None:
    """Pause all open jobs of a group."""
    _move(session, _path(session, group_name, among={"scheduled", "running"}), "pause", "Paused")


@groups.verb("resume", of_app=True, changes=True)
@_group
def resume(session: Session, group_name: str) -> None:
    """Resume all held jobs of a group."""
    _move(session, _path(session, group_name, among={"paused", "circuitbreak"}), "resume", "Resumed")


@groups.verb("stop", of_app=True, destroys=True)
@_group
def stop(session: Session, group_name: str) -> None:
    """Stop all jobs of a group for good. The unsent rest is dropped."""
    path = _path(session, group_name, among={"scheduled", "running", "paused", "circuitbreak"})
    group = session.api.get(*path)
    # Not by the API's dry run, for the reason that `jobs stop` has.
    zones = [zone for zone in group["zones"] if state_of(zone) not in ENDED]
    left = sum(zone["totalTokens"] - zone["completedTokens"] for zone in zones)
    ahead = sum(state_of(zone) == "scheduled" for zone in zones)
    sentence = (
        f"This stops {len(zones)} of the {len(group['zones'])} jobs of group {group['id']}: {group_digits(left)} "
        f"devices planned so far will not be reached, nor those of {ahead} zones that have not started. "
        "There is no undo."
    )
    session.ask(sentence, type_name=group["name"] if left > NAMED_FROM_DEVICES else "")
    _move(session, path, "stop", "Stopped")


@groups.verb("batches", of_app=True)
@_group
@click.option("--state", default="", help="Only those in this state: planned, queued, sending, sent, failed, dropped.")
@options.limit
def batches(session: Session, group_name: str, state: str, limit: int | None) -> None:
    """List the batches of all jobs of a group."""
    path = _path(session, group_name)
    jobs = [(path[1], zone["jobId"]) for zone in session.api.get(*path)["zones"]]
    show_batches(session, jobs, state=state, limit=limit)


@groups.verb("samples", of_app=True)
@_group
def samples(session: Session, group_name: str) -> None:
    """Show a sample for each template and locale of a group."""
    path = _path(session, group_name)
    show_samples(session, path[1], session.api.get(*path)["zones"][0]["jobId"])


def _path(session: Session, group_name: str, *, among: Collection[str] = ()) -> tuple[str, str, str, str]:
    app_id, group_id = find_group(session, group_name, among=among)
    return "apps", app_id, "groups", group_id


def _move(session: Session, path: tuple[str, ...], move: str, done: str) -> None:
    group = session.api.put(*path, move)
    states = Counter(map(state_of, group["zones"]))
    now = ", ".join(f"{group_digits(count)} {state}" for state, count in states.most_common())
    session.out.confirm(group, f"{done} group {group['id']}. Its jobs: {now}.", id="id")
