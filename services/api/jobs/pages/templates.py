"""`/ui/templates`: the templates of an app, one of them in all its locales, and the editor."""

from http import HTTPStatus
from typing import Any

from services.api.http.pages.apps import ShownApp, choose_app, read_apps, require_app
from services.api.http.pages.filters import pretty
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.fields import read_object_or_empty
from services.api.jobs.pages.template_texts import (
    ENGLISH,
    TemplateItem,
    describe_locale,
    group_by_name,
    read_notification,
    sort_locales,
)

READ_AT_ONCE = 1_000
MOST_READS = 4
"""How many pages of an app's templates are read to find those of one name."""

SECTION = NavSection("Templates", "/templates", order=20)
_NEW = "/templates/{app_id:str}/new"
_EDIT = "/templates/{app_id:str}/edit/{template_id:str}"
_PAGE, _RENDERED = "jobs/editor.html", "jobs/rendered.html"
_FIRST_BODY = {"alert": {"title": "Hello {{user}}", "body": "Here is what is new."}}
_FIRST_DEFAULTS = {"user": "you"}


class TemplatePages(PageSet):
    """Templates and their editor."""

    section = SECTION

    @PageRoute("/templates", template="jobs/templates.html")
    async def list_templates(self, visit: Visit) -> Values:
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


class TemplateEditorPages(PageSet):
    """The editor of one locale, with the rendered text beside it."""

    section = SECTION

    @PageRoute(_NEW, template=_PAGE)
    async def show_new(self, visit: Visit) -> Values:
        """The form of a new template, or of another locale of a stored one."""
        app = await require_app(visit, visit.path("app_id"))
        name = visit.form.get("name") or visit.query("name")
        siblings = (await read_named(visit, app["id"], name))[0] if name else []
        start = siblings[0] if siblings else {"body": _FIRST_BODY, "defaults": _FIRST_DEFAULTS}
        locale = "" if siblings else ENGLISH
        draft = {"id": "", "name": name, "locale": locale, "body": start["body"], "defaults": start["defaults"]}
        return _describe(app, draft, siblings) | await self._try(visit, app["id"], draft)

    @PageRoute(_EDIT, template=_PAGE)
    async def show_editor(self, visit: Visit) -> Values:
        app = await require_app(visit, visit.path("app_id"))
        template = await visit.read("/apps/{}/templates/{}", app["id"], visit.path("template_id"))
        siblings, _ = await read_named(visit, app["id"], template["name"])
        return _describe(app, template, siblings) | await self._try(visit, app["id"], template)

    @FormRoute(_NEW, page="show_new")
    async def create_template(self, visit: Visit) -> Moved:
        made = await _send_template(visit, "POST", "/apps/{}/templates", visit.path("app_id"))
        return Moved(_address_of(made), "made")

    @FormRoute(_EDIT, page="show_editor")
    async def save_template(self, visit: Visit) -> Moved:
        parts = visit.path("app_id"), visit.path("template_id")
        saved = await _send_template(visit, "PUT", "/apps/{}/templates/{}", *parts)
        return Moved(_address_of(saved), "saved")

    @FormRoute(_NEW + "/rendered", page="show_new", fragment=_RENDERED)
    @FormRoute(_EDIT + "/rendered", page="show_editor", fragment=_RENDERED)
    async def render(self, visit: Visit) -> Values:
        return await self._try(visit, visit.path("app_id"), {})

    async def _try(self, visit: Visit, app_id: str, template: TemplateItem) -> Values:
        """The rendered template, stored or as typed; or its error."""
        try:
            tried = _read_texts(visit) if visit.form else {part: template[part] for part in ("body", "defaults")}
            context = read_object_or_empty(visit, "context")
            body = {"template": tried, "context": context}
            trial = await visit.send("POST", "/apps/{}/templates/render", app_id, body=body)
        except ApiProblem as problem:
            if not problem.is_refusal:
                raise
            trial = {"body": None, "bytes": 0, "fault": problem.detail, "field": problem.field, "valuelessTags": []}
        return {"trial": trial, "notification": read_notification(trial["body"])}


def _describe(app: ShownApp, template: TemplateItem, siblings: list[TemplateItem]) -> Values:
    return {
        "title": f"Edit {template['name']}" if template["id"] else "New template",
        "app": app,
        "template": template,
        "siblings": siblings,
        "texts": {part: pretty(template[part]) for part in ("body", "defaults")},
    }


def _read_texts(visit: Visit) -> dict[str, Any]:
    return {"body": read_object_or_empty(visit, "body"), "defaults": read_object_or_empty(visit, "defaults")}


async def _send_template(visit: Visit, method: str, path: str, *parts: str) -> TemplateItem:
    try:
        saved: TemplateItem = await visit.send(method, path, *parts, body=_read_template(visit))
    except ApiProblem as problem:
        # Marathon's clients know that a name is taken by this word.
        raise ApiProblem(problem.status, problem.detail.replace(" (name_locale_app)", ""), problem.field) from None
    return saved


def _read_template(visit: Visit) -> dict[str, Any]:
    return {"name": visit.read_field("name"), "locale": visit.read_field("locale"), **_read_texts(visit)}


def _address_of(template: TemplateItem) -> str:
    return address("/templates/{}/named?name={}", template["appId"], template["name"])
