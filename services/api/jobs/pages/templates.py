"""`/ui/templates`: the templates of an app, and one of them in all its locales."""

from http import HTTPStatus

from services.api.http.pages.apps import choose_app, read_apps
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.template_texts import (
    ENGLISH,
    TemplateItem,
    describe_locale,
    group_by_name,
    sort_locales,
)

READ_AT_ONCE = 1_000
MOST_READS = 4
"""How many pages of an app's templates are read to find those of one name."""


class TemplatePages(PageSet):
    """What messages say."""

    section = NavSection("Templates", "/templates", order=20)

    @PageRoute("/templates", template="jobs/templates.html")
    async def list_templates(self, visit: Visit) -> Values:
        """The templates of one app, by name."""
        apps = await read_apps(visit)
        app = await choose_app(visit, apps)
        found, more, wanted = [], "", visit.query("q").strip().lower()
        if app is not None:
            answer = await visit.read_list("/apps/{}/templates", app["id"], limit=READ_AT_ONCE)
            found, more = answer.value, answer.next
        return {
            "title": "Templates",
            "apps": apps,
            "app": app,
            "next": more,
            "templates": [named for named in group_by_name(found) if wanted in named.name.lower()],
        }

    @PageRoute("/templates/{app_id:str}/named", template="jobs/template.html")
    async def show_template(self, visit: Visit) -> Values:
        """All locales of one template."""
        app, name = await visit.read("/apps/{}", visit.path("app_id")), visit.query("name")
        found, is_complete = await read_named(visit, app["id"], name)
        if not found:
            raise ApiProblem(HTTPStatus.NOT_FOUND, "the app has no template of this name")
        english = next((item for item in found if item["locale"] == ENGLISH), None)
        return {
            "title": name,
            "app": app,
            "name": name,
            "has_english": english is not None or not is_complete,
            "is_complete": is_complete,
            "looked_through": MOST_READS * READ_AT_ONCE,
            "locales": [describe_locale(item, english) for item in found],
        }

    @FormRoute("/templates/{app_id:str}/{template_id:str}/delete", page="list_templates")
    async def delete_locale(self, visit: Visit) -> Moved:
        """Delete one locale of a template."""
        app_id, template_id = visit.path("app_id"), visit.path("template_id")
        name = (await visit.read("/apps/{}/templates/{}", app_id, template_id))["name"]
        await visit.send("DELETE", "/apps/{}/templates/{}", app_id, template_id)
        left, _ = await read_named(visit, app_id, name)
        if left:
            return Moved(address("/templates/{}/named?name={}", app_id, name), "deleted")
        return Moved(address("/templates?app={}", app_id), "deleted")


async def read_named(visit: Visit, app_id: str, name: str) -> tuple[list[TemplateItem], bool]:
    """The templates of one name, English first, and whether all of the app's were looked through. Raises
    `ApiProblem`."""
    found: list[TemplateItem] = []
    cursor = ""
    for _ in range(MOST_READS):
        answer = await visit.read_list("/apps/{}/templates", app_id, limit=READ_AT_ONCE, cursor=cursor)
        found += [item for item in answer.value if item["name"] == name]
        cursor = answer.next
        if not cursor:
            break
    return sort_locales(found), not cursor
