"""What somebody may do, as a page's form has it: one grant a line, `app/<id> operator`."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.typed import refuse

_ADMIN, _APP = "admin", "app/"


def write_grants(holder: Mapping[str, Any]) -> str:
    """The grants of a user or a token, a line each."""
    apps = [f"{_APP}{app} {_ADMIN}" for app in holder.get("allowedApps") or ()]
    return "\n".join(apps + [f"{over} {role}" for over, role in (holder.get("roles") or {}).items()])


def read_grants(text: str) -> tuple[list[str], dict[str, str]]:
    """The apps whose admin somebody is, as the API calls them apart, and what else they may do. Raises `ApiProblem` for
    a line that is no grant."""
    apps: list[str] = []
    roles: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        words: Sequence[str] = line.split()
        if len(words) != 2:
            raise refuse("roles", f"a line is what it is over, a space and a role: not {line!r}")
        over, role = words
        if over.startswith(_APP) and role == _ADMIN:
            apps.append(over.removeprefix(_APP))
        else:
            roles[over] = role
    return apps, roles
