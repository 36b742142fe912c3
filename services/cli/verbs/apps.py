"""`carillon apps`."""

import click

from services.cli import complete, options
from services.cli.names import find_app
from services.cli.output.out import Fields
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

apps = noun("apps")

_COLUMNS = (
    TableColumn("ID", lambda app: app["id"], "id"),
    TableColumn("NAME", lambda app: app["name"]),
    TableColumn("BUNDLE ID", lambda app: app["bundleId"]),
    TableColumn("MADE BY", lambda app: app["createdBy"]),
)
_app = click.argument("app_name", metavar="APP", shell_complete=complete.apps)


@apps.verb("list")
@options.limit
def list_apps(session: Session, limit: int | None) -> None:
    """List the apps, oldest first."""
    session.out.show_list(session.api.items("apps", limit=limit), _COLUMNS, id="id", limit=limit)


@apps.verb("show")
@_app
def show_app(session: Session, app_name: str) -> None:
    """Show an app."""
    app = session.api.get("apps", find_app(session, app_name))
    session.out.show(app, lambda: _fields(session, app), id="id")


@apps.verb(
    "create",
    changes=True,
    examples=(
        "apps create shop com.example.shop",
        "apps create shop com.example.shop --reason 'the new shop'",
    ),
)
@click.argument("name")
@click.argument("bundle_id", metavar="BUNDLE_ID")
def create_app(session: Session, name: str, bundle_id: str) -> None:
    """Create an app. Its name becomes part of its push tables and topics."""
    made = session.api.post("apps", body={"name": name, "bundleId": bundle_id})
    session.out.confirm(made, f"Created app {made['name']}, {made['id']}.", id="id")


@apps.verb("edit", changes=True)
@_app
@click.option("--name", default="", help="New name (admins only).")
@click.option("--bundle-id", default="", help="New bundle id.")
def edit_app(session: Session, app_name: str, name: str, bundle_id: str) -> None:
    """Change an app's name or bundle id."""
    if not (name or bundle_id):
        raise click.UsageError("nothing to change: give --name or --bundle-id")
    app_id = find_app(session, app_name)
    app = session.api.get("apps", app_id)
    wanted = {"name": name or app["name"], "bundleId": bundle_id or app["bundleId"]}
    changed = session.api.put("apps", app_id, body=wanted)
    session.out.confirm(changed, f"Changed app {changed['name']}.", id="id")


@apps.verb("devices")
@_app
@click.argument("user")
def find_devices(session: Session, app_name: str, user: str) -> None:
    """List the devices of a user, by the id in push tables."""
    columns = (
        TableColumn("SERVICE", lambda device: device["service"]),
        TableColumn("SEQ ID", lambda device: str(device["seqId"]), "id"),
        TableColumn("LOCALE", lambda device: device["locale"]),
        TableColumn("ZONE", lambda device: device["tz"]),
        TableColumn("TOKEN", lambda device: device["token"]),
    )
    found = session.api.get("apps", find_app(session, app_name), "devices", user=user)
    session.out.show_list(found, columns, id="seqId", limit=0)


@apps.verb("delete", destroys=True)
@_app
def delete_app(session: Session, app_name: str) -> None:
    """Delete an app, its templates and its jobs. All jobs must have ended."""
    app = session.api.get("apps", find_app(session, app_name))
    session.ask(f"This deletes app {app['name']} with its templates and jobs; there is no undo.", type_name=app["name"])
    session.api.delete("apps", app["id"])
    session.out.confirm(app, f"Deleted app {app['name']}. Much data may take a while to go.", id="id")


def _fields(session: Session, app: Json) -> Fields:
    return [
        ("id", app["id"]),
        ("name", app["name"]),
        ("bundle id", app["bundleId"]),
        ("made by", app["createdBy"]),
        ("made", session.out.when(app["createdAt"])),
        ("changed", session.out.when(app["updatedAt"])),
    ]
