"""Options of `create` and `preview` for a job, the upload of its file, and the body made of them."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from services.cli import complete
from services.cli.exits import Exit, Failure
from services.cli.options import Count, Instant, JsonText, Number, Start, join, pairs
from services.cli.output import read_local
from services.cli.session import Session
from services.cli.watching import PERIOD_SECONDS, Drawing, Glance, open_drawing

IN_PARTS_BYTES = 2**30
PAUSES = (1, 2, 4, 8, 16, 30)
_BAR_SECONDS = 0.1


def upload_file(session: Session, app_id: str, file: Path) -> str:
    """Upload the file; returns its name for a job."""
    with open_drawing() as drawing:
        progress = _UploadProgress(drawing, file.name)
        if file.stat().st_size <= IN_PARTS_BYTES:
            return _send_in_parts(session, app_id, file, progress)
        return str(session.api.uploads.put(file, on_progress=progress))


class _UploadProgress:
    """Draws the progress now and then, and always at the end."""

    def __init__(self, drawing: Drawing, title: str) -> None:
        self.has_begun = False
        self._drawing = drawing
        self._title = title
        self._period = _BAR_SECONDS if sys.stderr.isatty() else PERIOD_SECONDS
        self._drawn_at = time.monotonic()
        self._drawn = -1

    def __call__(self, done: int, total: int) -> None:
        self.has_begun = True
        now, over = time.monotonic(), done == total
        if done != self._drawn and (over or now - self._drawn_at >= self._period):
            self._drawn_at, self._drawn = now, done
            self._drawing.draw(Glance(title=self._title, state="uploading", done=done, total=total, over=over))


def _send_in_parts(session: Session, app_id: str, file: Path, progress: _UploadProgress) -> str:
    """Send the file, and continue after a broken connection. An API that never answered is not waited for."""
    from carillon.errors import Unavailable

    for pause in (*PAUSES, None):
        try:
            return str(session.api.uploads.upload_csv(app_id, file, on_progress=progress).csv_path)
        except Unavailable as error:
            if error.status is None and not progress.has_begun:
                raise
            if pause is None:
                advice = "What was sent is kept for a day: the same command goes on where this one stood."
                raise Failure(Exit.UNREACHABLE, str(error), advice) from error
            session.out.tell(f"{error}; going on in {pause} s.")
            time.sleep(pause)
    raise AssertionError("the last pause is none")


job_options = join(
    click.option("--template", "templates", multiple=True, required=True, metavar="NAME",
                 shell_complete=complete.templates,
                 help="Name of a template; may be given several times: each user gets one of them."),
    click.option("--name", "job_name", default="", help="Name for people, as lists show it (default: the template's)."),
    click.option("--service", help="Push service: apns (default), gcm or another."),
    pairs("--filter", "filters",
          help="Only devices whose column has one of these values: locale=pt,en. NOTlocale=… leaves them out."),
    click.option("--csv", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="CSV file to upload: a header, and user ids in the first column."),
    click.option("--csv-path", default="", metavar="PATH", help="CSV file that is uploaded already: <bucket>/<key>."),
    click.option("--at", "starts", type=Start(),
                 help="Start time (default: now); for a localized push, local time everywhere, without a zone."),
    click.option("--expires", type=Instant(), help="Drop what is not sent by this time."),
    click.option("--past-time", type=click.Choice(["skip", "nextDay"]),
                 help="Skip zones whose start has passed, or start them a day later."),
    click.option("--control-group", type=Number(0, 1, max_open=True), default=0.0, metavar="SHARE",
                 help="Share of users who are held out and get nothing, such as 0.05."),
    pairs("--set", "tags", help="Fill a tag of the templates: name=Ana."),
    click.option("--metadata", type=JsonText(), metavar="JSON|@FILE", help="JSON that is sent with each message."),
)  # fmt: skip
localized_option = click.option(
    "--localized", is_flag=True, help="Send at the time of --at in each recipient's zone, as `groups create` does."
)
message_options = join(
    click.option("--credential", default="", metavar="NAME", shell_complete=complete.credentials,
                 help="Send messages by this provider account (name or id), in place of --service."),
    click.option("--recipient-column", default="", metavar="COLUMN",
                 help="With --credential: column of the recipients (default: recipient or token)."),
    click.option("--locale", default="", help="With --credential: locale of recipients without a template of their own "
                                              "(default: en)."),
    click.option("--default-region", default="", metavar="COUNTRY",
                 help="With --credential: country of phone numbers without a country code, such as SG."),
    click.option("--duplicates", type=click.Choice(["once", "each"]),
                 help="With --credential: send to repeated addresses once (default) or each time."),
    click.option("--on-unknown", type=click.Choice(["hold", "retry"]),
                 help="With --credential: hold or send again messages whose outcome is unknown."),
    click.option("--halt-on", type=JsonText(), metavar="JSON|null",
                 help='With --credential: bounces that hold the job: {"share": 0.1, "minimum": 10}; null: never.'),
    click.option("--share", type=Count(1, 100), metavar="N",
                 help="With --credential: weight among the account's jobs if its order is shares (default: 1)."),
    click.option("--list", "list_name", default="", metavar="NAME",
                 help="With --credential: list that recipients can unsubscribe from."),
    click.option("--transactional/--marketing", default=None,
                 help="With --credential: send to unsubscribed recipients too, or not (default)."),
    click.option("--max-recipients", type=Count(1), metavar="N",
                 help="With --credential: fail a job with more recipients."),
)  # fmt: skip
OF_MESSAGES: Mapping[str, str] = {
    "credential": "credential",
    "recipient_column": "recipientColumn",
    "locale": "locale",
    "default_region": "defaultRegion",
    "duplicates": "duplicates",
    "on_unknown": "onUnknown",
    "halt_on": "haltOn",
    "share": "share",
    "list_name": "list",
    "transactional": "transactional",
    "max_recipients": "maxRecipients",
}
"""The options for jobs by a credential, and their fields."""


def message_fields(context: click.Context, **chosen: Any) -> dict[str, Any]:
    """The fields of a body for jobs by a credential; none without one."""
    given = {OF_MESSAGES[name]: value for name, value in chosen.items() if value}
    # `null` is a value too.
    if context.get_parameter_source("halt_on") is ParameterSource.COMMANDLINE:
        given["haltOn"] = chosen["halt_on"]
    if given and not chosen["credential"]:
        named = [
            f"--{name.removesuffix('_name').replace('_', '-')}" for name in OF_MESSAGES if OF_MESSAGES[name] in given
        ]
        raise click.UsageError(f"{', '.join(named)}: only with --credential, which names a provider account")
    return given


def job_body(
    session: Session,
    app_id: str,
    *,
    service: str | None,
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
    job_name: str = "",
    by_credential: bool = False,
) -> dict[str, Any]:
    """The body of a request, after the file is uploaded."""
    if file and csv_path:
        raise click.UsageError("use --csv, which uploads a file, or --csv-path, which names an uploaded one, not both")
    starts_at = read_start(starts, localized=localized)
    if file:
        csv_path = upload_file(session, app_id, file)
    body = {
        "name": job_name,
        "service": service or ("" if by_credential else "apns"),
        "filters": dict(filters),
        "context": dict(tags),
        "metadata": metadata or {},
        "startsAt": starts_at,
        "expiresAt": _nanoseconds(expires),
        "localized": localized,
        "pastTimeStrategy": past_time or "",
        "csvPath": csv_path,
        "controlGroup": control_group,
    }
    return {name: value for name, value in body.items() if value}


def read_start(start: datetime | None, *, localized: bool) -> int:
    """The start as the API takes it: for a localized push, the local time as if it were UTC."""
    if start is None or not localized:
        return _nanoseconds(start and read_local(start))
    if start.tzinfo:
        reason = "a localized push starts at this time on each recipient's clock: leave out the zone, as in"
        raise click.BadParameter(f"{reason} '2030-12-24 14:00'", param_hint="--at")
    return _nanoseconds(start.replace(tzinfo=UTC))


def _nanoseconds(instant: datetime | None) -> int:
    return 0 if instant is None else int(instant.timestamp() * 1_000_000) * 1_000
