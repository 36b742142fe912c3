"""`carillon settings`."""

import click

from services.cli.output.tables import TableColumn
from services.cli.session import Session
from services.cli.verb import noun

settings = noun("settings")

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
