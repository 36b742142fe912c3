"""Roles: the rights of a user or a token over the apps and namespaces of others.

    viewer     sees everything but personal data: payloads, contexts, samples, paths of files
    operator   sees these too; makes and moves jobs, templates, schedules, dead letters
    admin      changes and deletes the app itself, and issues a namespace's secrets

Each covers those above it. `{"*": "viewer"}` holds everywhere, `app/<id>` and `namespace/<namespace>` name one thing.
An admin of the deployment (`is_admin`) needs no role, an app in `allowed_apps` gives the role admin over it, and every
caller is the admin of their own namespace.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from shared.domain.errors import Invalid
from shared.domain.ids import read_uuid

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
