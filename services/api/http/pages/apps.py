"""The apps that a page lets its reader choose from, and the one that its address names."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.visits import Visit

MOST_APPS = 500
"""From how many apps one can be chosen."""

_KEPT_SECONDS = 30

ShownApp = Mapping[str, Any]


async def read_apps(visit: Visit, role: str = "viewer") -> list[ShownApp]:
    """The apps over which the reader has this role, by name. Raises `ApiProblem`."""
    # The route lists all apps to everybody, so one reading serves all.
    read = partial(visit.read, "/apps", limit=MOST_APPS)
    found = await visit.read_shared(("/apps",), read, seconds=_KEPT_SECONDS)
    return sorted((app for app in found if visit.may(role, app=app["id"])), key=lambda app: app["name"].lower())


async def choose_app(visit: Visit, apps: Sequence[ShownApp]) -> ShownApp | None:
    """The app that the address names, even if it is not in `apps`; without a name the first, or `None`. Raises
    `ApiProblem`."""
    wanted = visit.query("app")
    if not wanted:
        return next(iter(apps), None)
    listed = next((app for app in apps if app["id"] == wanted), None)
    return listed or await require_app(visit, wanted, "viewer")


async def require_app(visit: Visit, app_id: str, role: str = "operator") -> ShownApp:
    """The app, for a page that needs this role over it. Raises `ApiProblem`."""
    app: ShownApp = await visit.read("/apps/{}", app_id)
    if not visit.may(role, app=app["id"]):
        raise ApiProblem(HTTPStatus.FORBIDDEN, f"this needs the role {role} over the app {app['name']}")
    return app
