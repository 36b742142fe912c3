"""`carillon calendars`."""

from collections.abc import Sequence
from typing import Any

import click

from services.cli import complete, options
from services.cli.names import find_listed
from services.cli.nouns import ApiNoun, FieldColumn
from services.cli.output import Fields, Json, Output, count_things
from services.cli.session import Session

_SHOWN = 3


def _find(session: Session, typed: str, **query: Any) -> str:
    return str(find_listed(session, typed, "calendars", what="calendar", names=("name",), **query)["name"])


def _days(calendar: Json) -> str:
    dates = calendar["dates"]
    return ", ".join(dates[:_SHOWN]) + (f" and {len(dates) - _SHOWN} more" if len(dates) > _SHOWN else "")


def _fields(out: Output, calendar: Json) -> Fields:
    return [
        ("name", calendar["name"]),
        ("timezone", calendar["timezone"]),
        ("dates", calendar["dates"]),
        ("changed", out.when(calendar["updated_at"])),
    ]


calendars = ApiNoun(
    "calendars", path="calendars", id="name", find=_find, complete=complete.calendars, scope=(options.namespace,),
    fields=_fields,
    columns=(
        FieldColumn("name", "id"), FieldColumn("timezone", "word"), FieldColumn("dates", tell=_days),
        FieldColumn("updated_at", "time", title="CHANGED"),
    ),
)  # fmt: skip
calendars.add_list("List calendars by name.")
calendars.add_show("Show a calendar and its dates.")


@calendars.verb(
    "put",
    changes=True,
    examples=(
        "calendars put feasts --date 2030-12-25 --date 2030-12-26 --timezone Europe/Paris",
        "calendars put closed --date 2030-08-01",
    ),
)
@click.argument("name", metavar="NAME", shell_complete=complete.calendars)
@click.option("--date", "dates", multiple=True, required=True, help="Date; may be given several times.")
@click.option("--timezone", default="UTC", metavar="ZONE", help="Time zone of the dates (default: UTC).")
def put(session: Session, name: str, dates: Sequence[str], timezone: str) -> None:
    """Create or replace a calendar. The schedules that exclude it follow within seconds."""
    stored = session.api.put("calendars", name, body={"dates": list(dates), "timezone": timezone})
    session.out.confirm(stored, f"Stored {name}: {count_things(len(stored['dates']), 'day')}.", id="name")


calendars.add_delete("Delete a calendar.", ask="This deletes calendar {0}; there is no undo.")
