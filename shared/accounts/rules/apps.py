"""Apps, and the rights of a user or a token over the apps and namespaces of others.

    viewer     sees everything but personal data: payloads, contexts, samples, paths of files
    operator   sees these too; makes and moves jobs, templates, schedules, dead letters
    admin      changes and deletes the app itself, and issues a namespace's secrets

Each role covers those above it. `{"*": "viewer"}` holds everywhere, `app/<id>` and `namespace/<namespace>` name
one thing. An admin of the deployment (`is_admin`) needs no role, an app in `allowed_apps` gives the role admin
over it, and every caller is the admin of its own namespace.

The rules of an app's fields are Marathon's, and an error's text begins as Marathon's does: `invalid bundleId`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from shared.core.errors import Conflict, Invalid
from shared.core.ids import read_uuid

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


EVERYWHERE = "*"
ROLES = 1_000
"""Maximum for a caller."""
NAMESPACE = re.compile(r"(token|user):[^\s\x00-\x1f\x7f]{1,300}")
_APP, _NAMESPACE, _USER = "app/", "namespace/", "user:"


class Role(StrEnum):
    """The rights of a caller, the smallest first."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: "Role") -> bool:
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = tuple(Role)


def role_over_app(roles: Mapping[str, Role], app_id: str) -> Role | None:
    return _highest(roles, _APP + app_id)


def apps_named(roles: Mapping[str, Role]) -> frozenset[str]:
    return frozenset(place.removeprefix(_APP) for place in roles if place.startswith(_APP))


def role_over_namespace(roles: Mapping[str, Role], namespace: str) -> Role | None:
    return _highest(roles, _NAMESPACE + fold_namespace(namespace))


def namespaces_named(roles: Mapping[str, Role]) -> frozenset[str]:
    return frozenset(place.removeprefix(_NAMESPACE) for place in roles if place.startswith(_NAMESPACE))


def read_roles(given: Mapping[str, str]) -> dict[str, Role]:
    if len(given) > ROLES:
        raise Invalid(f"at most {ROLES:,} roles", field="roles", value=len(given))
    roles: dict[str, Role] = {}
    for place, name in given.items():
        canonical = _read_place(place)
        if canonical in roles:
            raise Invalid("this place is named twice", field=f"roles.{place}", value=place)
        roles[canonical] = _read_role(place, name)
    return roles


def read_namespace(written: str, *, field: str) -> str:
    if NAMESPACE.fullmatch(written) is None:
        rule = "a namespace is token: and a token's id, or user: and an e-mail address"
        raise Invalid(rule, field=field, value=written)
    return fold_namespace(written)


def fold_email(email: str) -> str:
    """The address that identifies a person: in lower case, by Unicode's mapping of single characters. No character
    beyond ASCII becomes one of ASCII, so a lookalike remains another address."""
    return "".join(each if each.lower().isascii() and not each.isascii() else each.lower() for each in email)


def fold_namespace(written: str) -> str:
    """The stored spelling of a person's namespace; any other text as it is."""
    return fold_email(written) if written.startswith(_USER) else written


def _highest(roles: Mapping[str, Role], place: str) -> Role | None:
    held = [role for role in (roles.get(EVERYWHERE), roles.get(place)) if role is not None]
    return max(held, key=_ORDER.index, default=None)


def _read_place(place: str) -> str:
    field = f"roles.{place}"
    if place.startswith(_APP):
        return _APP + read_uuid(place.removeprefix(_APP), field=field)
    if place.startswith(_NAMESPACE):
        return _NAMESPACE + read_namespace(place.removeprefix(_NAMESPACE), field=field)
    if place != EVERYWHERE:
        raise Invalid("a role holds over *, app/<id> or namespace/<namespace>", field=field, value=place)
    return place


def _read_role(place: str, name: str) -> Role:
    try:
        return Role(name)
    except ValueError:
        raise Invalid(f"must be one of {', '.join(Role)}", field=f"roles.{place}", value=name) from None
