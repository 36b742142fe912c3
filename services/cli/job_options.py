"""What somebody wants a job to do: the options of `create` and `preview`, and the body that they become."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from services.cli import complete
from services.cli.options import Instant, JsonText, Pair
from services.cli.session import Session
from services.cli.uploading import upload_file

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--template", "templates", multiple=True, required=True, metavar="NAME",
                 shell_complete=complete.templates,
                 help="The name of the templates to send; of several, each device gets one."),
    click.option("--service", help="The push service: apns (unless told), gcm, or another."),
    click.option("--filter", "filters", type=Pair(), multiple=True,
                 help="Only devices whose column has one of these values: locale=pt,en. NOTlocale=… : none of them."),
    click.option("--csv", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="A CSV file, whose first column names the users behind a header; it is uploaded."),
    click.option("--csv-path", default="", metavar="PATH", help="A CSV file that is there: <bucket>/<key>."),
    click.option("--at", "starts", type=Instant(), help="When it starts; otherwise at once."),
    click.option("--expires", type=Instant(), help="What is not sent by then is dropped."),
    click.option("--localized", is_flag=True, help="Send at the time of --at in each recipient's zone."),
    click.option("--past-time", type=click.Choice(["skip", "nextDay"]),
                 help="For zones whose start has passed: skip them, or start a day later."),
    click.option("--control-group", type=click.FloatRange(0, 1, max_open=True), default=0.0, metavar="SHARE",
                 help="The share of users who get nothing: 0.05."),
    click.option("--set", "tags", type=Pair(), multiple=True, help="Fills a tag of the templates: name=Ana."),
    click.option("--metadata", type=JsonText(), metavar="JSON|@FILE", help="Goes out with each message."),
)  # fmt: skip
_OF_MESSAGES = (
    click.option("--credential", default="", metavar="NAME", shell_complete=complete.credentials,
                 help="A provider account in the place of --service, by name or id: each recipient gets a message."),
    click.option("--recipient-column", default="", metavar="COLUMN",
                 help="With --credential: where the recipients stand; otherwise recipient, or token."),
    click.option("--locale", default="", help="With --credential: for recipients whose own has no template; otherwise "
                                              "en."),
    click.option("--default-region", default="", metavar="COUNTRY",
                 help="With --credential: of phone numbers without one, SG for instance."),
    click.option("--duplicates", type=click.Choice(["once", "each"]),
                 help="With --credential, for repeated addresses: send once (default) or each time."),
    click.option("--on-unknown", type=click.Choice(["hold", "retry"]),
                 help="With --credential: what becomes of messages of which nobody knows whether they were sent."),
    click.option("--halt-on", type=JsonText(), metavar="JSON|null",
                 help="With --credential: share and minimum of bounces that hold the job; null: never."),
    click.option("--share", type=click.IntRange(1, 100), help="With --credential: its share beside other jobs."),
    click.option("--list", "list_name", default="", metavar="NAME",
                 help="With --credential: what recipients can unsubscribe from."),
    click.option("--transactional", is_flag=True, help="With --credential: also to those who have unsubscribed."),
    click.option("--max-recipients", type=click.IntRange(1), metavar="N",
                 help="With --credential: stop a job that has more."),
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
"""The options that only jobs by a credential have, and their fields."""


def job_options(function: Function) -> Function:
    """Give a verb the options of a job; it passes them on to `job_body`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def message_options(function: Function) -> Function:
    """Give a verb the options of a job by a credential; it passes them on to `message_fields`."""
    for option in reversed(_OF_MESSAGES):
        function = option(function)
    return function


def message_fields(context: click.Context, **chosen: Any) -> dict[str, Any]:
    """The fields of a body that only jobs by a credential have; none of them without one."""
    given = {OF_MESSAGES[name]: value for name, value in chosen.items() if value}
    # `null` is an answer, too.
    if context.get_parameter_source("halt_on") is ParameterSource.COMMANDLINE:
        given["haltOn"] = chosen["halt_on"]
    if given and not chosen["credential"]:
        raise click.UsageError("what is sent by a provider account needs --credential")
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
    by_credential: bool = False,
) -> dict[str, Any]:
    """The body of a request, once the file is uploaded."""
    if file and csv_path:
        raise click.UsageError("--csv uploads a file, --csv-path names one that is there: give one of them")
    if file:
        csv_path = upload_file(session, app_id, file)
    body = {
        "service": service or ("" if by_credential else "apns"),
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
