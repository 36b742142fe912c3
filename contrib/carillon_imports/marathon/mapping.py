"""Marathon's apps, users and templates as Carillon's, checked by Carillon's rules. Pure."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from carillon_imports.marathon.source import MAX_JSON_BYTES, AppRow, TemplateRow, UserRow
from shared.domain.accounts.apps import App, check_app
from shared.domain.accounts.callers import User, check_email
from shared.domain.errors import Invalid
from shared.domain.jobs.templates import Template, check_template

_UNREADABLE = (msgspec.DecodeError, RecursionError)


def read_app(row: AppRow) -> App:
    """The app. Raises `Invalid` if its name or bundle id breaks a rule."""
    check_app(row.name, row.bundle_id)
    return App(**asdict(row))


def read_user(row: UserRow) -> User:
    """The user. Raises `Invalid` if the address is malformed."""
    check_email(row.email)
    return User(**asdict(row))


def read_template(row: TemplateRow) -> Template:
    """The template, with tags of any name, which its jobs fill. Raises `Invalid` if the API would refuse it for another
    reason."""
    body, defaults = read_json("body", row.body), read_json("defaults", row.defaults)
    check_template(name=row.name, locale=row.locale, body=body, defaults=defaults, lenient=True)
    return Template(**(asdict(row) | {"body": body, "defaults": defaults}))


def read_json(field: str, text: str | None) -> dict[str, Any]:
    """A field with a JSON object; `None` means that it was too large to be read. Raises `Invalid` for this, or if it is
    no object."""
    if text is None:
        raise Invalid(f"its JSON makes over {MAX_JSON_BYTES:,} bytes", field=field)
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE as error:
        raise Invalid(f"invalid {field}: it cannot be read: {error}", field=field) from error
    if not isinstance(value, dict):
        raise Invalid(f"invalid {field}: an object is needed", field=field)
    return value
