"""`carillon events`: what happened to a job, as it happens."""

import time

import click

from services.cli import complete
from services.cli.job_shape import BAD, ENDED, event_line, events_of, state_of
from services.cli.names import find_job
from services.cli.output.tables import Json
from services.cli.output.text import as_json, visible
from services.cli.session import Session
from services.cli.verb import noun
from services.cli.watching import PERIOD_SECONDS

events = noun("events")

_job = click.argument("job_name", metavar="JOB", shell_complete=complete.jobs)


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
