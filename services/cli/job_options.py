"""What somebody wants a job to do: the options of `create` and `preview`, and the body that they become."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from services.cli import complete
from services.cli.options import Instant, JsonText, Pair
from services.cli.session import Session
from services.cli.uploading import upload_file

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--template", "templates", multiple=True, required=True, metavar="NAME",
                 shell_complete=complete.templates,
                 help="The name of the templates to send; of several, each device gets one."),
    click.option("--service", default="apns", show_default=True, help="The push service: apns, gcm, or another."),
    click.option("--filter", "filters", type=Pair(), multiple=True,
                 help="Only devices whose column has one of these values: locale=pt,en. NOTlocale=… : none of them."),
    click.option("--csv", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="A CSV file, whose first column names the users behind a header; it is uploaded."),
    click.option("--csv-path", default="", metavar="PATH", help="A CSV file that is there: <bucket>/<key>."),
    click.option("--at", "starts", type=Instant(), help="When it starts; otherwise at once."),
    click.option("--expires", type=Instant(), help="What is not sent by then is dropped."),
    click.option("--localized", is_flag=True, help="A job for each time zone, at what --at reads in UTC."),
    click.option("--past-time", type=click.Choice(["skip", "nextDay"]),
                 help="For zones whose start has passed: skip them, or start a day later."),
    click.option("--control-group", type=click.FloatRange(0, 1, max_open=True), default=0.0, metavar="SHARE",
                 help="The share of users who get nothing: 0.05."),
    click.option("--set", "tags", type=Pair(), multiple=True, help="Fills a tag of the templates: name=Ana."),
    click.option("--metadata", type=JsonText(), metavar="JSON|@FILE", help="Goes out with each message."),
)  # fmt: skip


def job_options(function: Function) -> Function:
    """Give a verb the options of a job; it passes them on to `job_body`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def job_body(
    session: Session,
    app_id: str,
    *,
    service: str,
    filters: Sequence[tuple[str, str]],
    file: Path | None,
    csv_path: str,
    starts: datetime | None,
    expires: datetime | None,
    localized: bool,
    past_time: str | None,
    control_group: float,
    tags: Sequence[tuple[str, str]],
    metadata: Any,
) -> dict[str, Any]:
    """The body of a request, once the file is uploaded."""
    if file and csv_path:
        raise click.UsageError("--csv uploads a file, --csv-path names one that is there: give one of them")
    if file:
        csv_path = upload_file(session, app_id, file)
    body = {
        "service": service,
        "filters": dict(filters),
        "context": dict(tags),
        "metadata": metadata or {},
        "startsAt": _nanoseconds(starts),
        "expiresAt": _nanoseconds(expires),
        "localized": localized,
        "pastTimeStrategy": past_time or "",
        "csvPath": csv_path,
        "controlGroup": control_group,
    }
    return {name: value for name, value in body.items() if value}


def _nanoseconds(instant: datetime | None) -> int:
    return 0 if instant is None else int(instant.timestamp() * 1_000_000) * 1_000
