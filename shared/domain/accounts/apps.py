"""Apps: the names of a mobile app, and whether it accepts anything new.

The rules of the fields are Marathon's, and an error's text begins as Marathon's does: `invalid bundleId`.
"""

import re

from msgspec import Struct, field

from shared.domain.errors import Conflict, Invalid

APP_NAME_RULE = "1 to 50 of the letters A to Z, digits, '-' and '_'"
NAME_CHARACTERS = 255
BUNDLE_ID = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+){2,}")
_APP_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")


def check_app_name(name: str) -> None:
    """Raise `Invalid` unless the name can be a part of the names of tables and topics."""
    if not _APP_NAME.fullmatch(name):
        raise Invalid(f"invalid name: an app's name is {APP_NAME_RULE}", field="name", value=name)


class App(Struct, frozen=True, kw_only=True):
    """A mobile app: `name` is part of its table and topic names and is unique except for case, as is `bundle_id`. Times
    in ns since the epoch.

    `deleting`: its deletion has begun, so it accepts no more jobs and templates, for good.
    """

    id: str
    name: str
    bundle_id: str
    created_by: str
    created_at: int
    updated_at: int
    deleting: bool = field(default=False, name="going")


def check_app(name: str, bundle_id: str) -> None:
    check_app_name(name)
    if len(bundle_id) > NAME_CHARACTERS or BUNDLE_ID.fullmatch(bundle_id) is None:
        rule = "at least three labels of lower-case letters and digits, joined by dots, as in com.example.game"
        raise Invalid(f"invalid bundleId: {rule}", field="bundleId", value=bundle_id)


def name_key(name: str) -> str:
    """The form of a name that two apps must not share, because names of push tables ignore case."""
    return name.lower()


def check_not_deleting(app: App | None, app_id: str) -> None:
    """Raise `Conflict` if an app accepts nothing new, because its deletion has begun or is complete."""
    if app is None or app.deleting:
        raise Conflict("the app is being deleted", field="appId", value=app_id)
