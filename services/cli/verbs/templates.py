"""`carillon templates`."""

import difflib
import json
from typing import Any

import click
import msgspec

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.names import find_app, find_template
from services.cli.nouns import Noun
from services.cli.options import JsonText
from services.cli.output import Fields, Json, TableColumn, as_json, paint, visible
from services.cli.session import Session
from shared.core.plain_words import decode_but, find_json_fault

templates = Noun("templates")

_COLUMNS = (
    TableColumn("ID", lambda template: template["id"], "id"),
    TableColumn("NAME", lambda template: template["name"]),
    TableColumn("LOCALE", lambda template: template["locale"], "word"),
    TableColumn("BODY", lambda template: template["body"]),
    TableColumn("MADE BY", lambda template: template["createdBy"]),
)
_CONTENT = ("name", "locale", "defaults", "body")
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}

_template = click.argument("template_name", metavar="TEMPLATE", shell_complete=complete.templates)
_locale = click.option("--locale", default="", help="Locale, if several templates have the name.")
_body = click.option("--body", type=JsonText(), metavar="JSON|@FILE", help="Content of the message.")
_defaults = click.option(
    "--defaults", type=JsonText(), metavar="JSON|@FILE", help="Values for tags that nothing else fills."
)


@templates.verb("list", of_app=True)
@options.limit
def list_templates(session: Session, limit: int | None) -> None:
    """List an app's templates."""
    templates = session.api.items("apps", find_app(session), "templates", limit=limit)
    session.out.show_list(templates, _COLUMNS, id="id", limit=limit)


@templates.verb("show", of_app=True)
@_template
@_locale
def show(session: Session, template_name: str, locale: str) -> None:
    """Show a template."""
    template = find_template(session, find_app(session), template_name, locale)
    session.out.show(template, lambda: _fields(session, template), id="id")


@templates.verb(
    "create",
    of_app=True,
    changes=True,
    examples=(
        'templates create welcome --app shop --body \'{"alert": "Welcome, {{name}}"}\'',
        "templates create welcome --app shop --locale pt --body @welcome.pt.json",
    ),
)
@click.argument("name")
@click.option("--locale", default="en", show_default=True, help="Locale of its recipients; `en` serves all others.")
@click.option("--body", type=JsonText(), required=True, metavar="JSON|@FILE", help="Content of the message.")
@_defaults
def create(session: Session, name: str, locale: str, body: Any, defaults: Any) -> None:
    """Create a template."""
    wanted = {"name": name, "locale": locale, "body": body, "defaults": defaults or {}}
    made = session.api.post("apps", find_app(session), "templates", body=wanted)
    session.out.confirm(made, f"Created template {made['name']} ({made['locale']}), {made['id']}.", id="id")


@templates.verb("edit", of_app=True, changes=True)
@_template
@_locale
@_body
@_defaults
def edit(session: Session, template_name: str, locale: str, body: Any, defaults: Any) -> None:
    """Change a template by --body and --defaults, or in an editor."""
    app_id = find_app(session)
    template = find_template(session, app_id, template_name, locale)
    wanted = {name: template[name] for name in _CONTENT}
    if body is None and defaults is None:
        wanted = _edit(wanted)
    wanted |= {name: value for name, value in (("body", body), ("defaults", defaults)) if value is not None}
    changed = session.api.put("apps", app_id, "templates", template["id"], body=wanted)
    session.out.confirm(changed, f"Changed template {changed['name']} ({changed['locale']}).", id="id")


@templates.verb("delete", of_app=True, destroys=True)
@_template
@_locale
def delete(session: Session, template_name: str, locale: str) -> None:
    """Delete a template. Jobs keep their copies of it."""
    app_id = find_app(session)
    template = find_template(session, app_id, template_name, locale)
    what = f"template {template['name']} ({template['locale']})"
    session.ask(f"This deletes {what} of app {template['app']['name']}; there is no undo.")
    session.api.delete("apps", app_id, "templates", template["id"])
    session.out.confirm(template, f"Deleted {what}.", id="id")


@templates.verb("render", of_app=True)
@click.argument("template_name", metavar="[TEMPLATE]", default="", shell_complete=complete.templates)
@_locale
@click.option("--body", type=JsonText(), metavar="JSON|@FILE", help="Content to render in place of a stored template.")
@_defaults
@options.pairs("--set", "tags", help="Fill a tag: name=Ana.")
def render(
    session: Session, template_name: str, locale: str, body: Any, defaults: Any, tags: tuple[tuple[str, str], ...]
) -> None:
    """Render a template, or show the fault in it; nothing is stored."""
    if bool(template_name) == (body is not None):
        raise click.UsageError("name a TEMPLATE, or give --body")
    wanted: Json = (
        {"name": template_name} if template_name else {"template": {"body": body, "defaults": defaults or {}}}
    )
    asked = {**wanted, "locale": locale or "en", "context": dict(tags)}
    answer = session.api.post("apps", find_app(session), "templates", "render", body=asked)
    if answer["fault"] and not session.out.json:
        raise Failure(Exit.FAILED, visible(f"{answer['field']}: {answer['fault']}".removeprefix(": ")))
    session.out.write(as_json(answer) if session.out.json else _indent(answer["body"]))
    if answer["fault"]:
        click.get_current_context().exit(Exit.FAILED)


@templates.verb("diff", of_app=True)
@_template
@_locale
@click.argument("file", metavar="FILE")
def diff(session: Session, template_name: str, locale: str, file: str) -> None:
    """Compare a template with a file (`-`: stdin). The file is that of `show --json`. Exits with 1 if they differ."""
    stored = find_template(session, find_app(session), template_name, locale)
    [given, *_] = options.read_documents(file)
    if not isinstance(given, dict):
        raise click.UsageError(f"{file} is not a template, as `carillon templates show --json` prints it")
    before, after = (
        _indent({name: side.get(name, stored[name]) for name in _CONTENT}).split("\n") for side in (stored, given)
    )
    lines = list(difflib.unified_diff(before, after, f"stored {stored['id']}", file, lineterm=""))
    for line in lines:
        session.out.write(paint(visible(line), _DIFF_COLOURS.get(line[:1], "")))
    if lines:
        click.get_current_context().exit(1)


def _fields(session: Session, template: Json) -> Fields:
    return [
        ("id", template["id"]),
        ("app", template["app"]["name"]),
        ("name", template["name"]),
        ("locale", template["locale"]),
        ("body", _indent(template["body"]).split("\n")),
        ("defaults", template["defaults"]),
        ("made", f"{session.out.when(template['createdAt'])} by {template['createdBy']}"),
        ("changed", session.out.when(template["updatedAt"])),
    ]


def _edit(wanted: dict[str, Any]) -> dict[str, Any]:
    """The body as it comes back from the person's editor."""
    text = click.edit(_indent(wanted), extension=".json")
    if text is None:
        raise click.UsageError("nothing was changed in the editor; --body and --defaults change a template without one")
    try:
        edited: dict[str, Any] = decode_but(text, ())
    except (msgspec.DecodeError, RecursionError):
        raise click.UsageError(f"the edited text is not JSON: {find_json_fault(text)}") from None
    return edited


def _indent(value: Any) -> str:
    """JSON on lines of its own, of printable characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(
        "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line) for line in text.split("\n")
    )
