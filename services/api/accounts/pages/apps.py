"""`/ui/apps`: the apps, and one of them with what can be done to it."""

from http import HTTPStatus
from typing import Any

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.typed import check_name
from services.api.http.pages.visits import Visit, address

COUNTED = 100
"""How far the templates and the jobs of an app are counted."""


class AppPages(PageSet):
    section = NavSection("Apps", "/apps", order=300, group="Admin")

    @PageRoute("/apps", template="accounts/apps.html")
    async def list_apps(self, visit: Visit) -> Values:
        answer = await visit.read_list("/apps")
        return {"title": "Apps", "apps": answer.value, "next": answer.next}

    @PageRoute("/apps/new", template="accounts/new-app.html")
    async def show_new_app(self, visit: Visit) -> Values:
        if not visit.caller.is_admin:
            raise ApiProblem(HTTPStatus.FORBIDDEN, "only admins make apps")
        return {"title": "New app"}

    @FormRoute("/apps/new", page="show_new_app")
    async def create_app(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/apps", body=_read_app(visit))
        return Moved(address("/apps/{}", made["id"]), "made")

    @PageRoute("/apps/{app_id:str}", template="accounts/app.html")
    async def show_app(self, visit: Visit) -> Values:
        app = await visit.read("/apps/{}", visit.path("app_id"))
        templates, jobs = await visit.read_all(
            visit.try_read("The number of templates", "/apps/{}/templates", app["id"], limit=COUNTED + 1),
            visit.try_read("The number of jobs", "/jobs", app=app["id"], limit=COUNTED + 1),
        )
        return {"title": app["name"], "app": app, "templates": _count(templates), "jobs": _count(jobs)}

    @FormRoute("/apps/{app_id:str}", page="show_app")
    async def save_app(self, visit: Visit) -> Moved:
        app_id = visit.path("app_id")
        await visit.send("PUT", "/apps/{}", app_id, body=_read_app(visit))
        return Moved(address("/apps/{}", app_id), "saved")

    @FormRoute("/apps/{app_id:str}/delete", page="show_app")
    async def delete_app(self, visit: Visit) -> Moved:
        app = await visit.read("/apps/{}", visit.path("app_id"))
        check_name(visit.form, app["name"])
        await visit.send("DELETE", "/apps/{}", app["id"])
        return Moved("/apps", "deleted")


def _count(found: list[Any] | None) -> str:
    if found is None:
        return ""
    return str(len(found)) if len(found) <= COUNTED else f"over {COUNTED}"


def _read_app(visit: Visit) -> dict[str, str]:
    return {"name": visit.read_field("name"), "bundleId": visit.read_field("bundleId")}
