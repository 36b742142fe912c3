"""The editor of templates: one locale at a time, and beside it what becomes of the text."""

from typing import Any

from services.api.http.pages.apps import ShownApp, require_app
from services.api.http.pages.filters import pretty
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.fields import read_object_or_empty
from services.api.jobs.pages.template_texts import ENGLISH, TemplateItem, read_notification
from services.api.jobs.pages.templates import read_named

SECTION = "/templates"
_NEW = "/templates/{app_id:str}/new"
_EDIT = "/templates/{app_id:str}/edit/{template_id:str}"
_PAGE, _RENDERED = "jobs/editor.html", "jobs/rendered.html"
_FIRST_BODY = {"alert": {"title": "Hello {{user}}", "body": "Here is what is new."}}
_FIRST_DEFAULTS = {"user": "you"}


class TemplateEditorPages(PageSet):
    """Makes templates and changes them."""

    @PageRoute(_NEW, template=_PAGE, section=SECTION)
    async def show_new(self, visit: Visit) -> Values:
        """A template that is not there yet: a first one, or another locale of one that is."""
        app = await require_app(visit, visit.path("app_id"))
        name = visit.form.get("name") or visit.query("name")
        siblings = (await read_named(visit, app["id"], name))[0] if name else []
        start = siblings[0] if siblings else {"body": _FIRST_BODY, "defaults": _FIRST_DEFAULTS}
        locale = "" if siblings else ENGLISH
        draft = {"id": "", "name": name, "locale": locale, "body": start["body"], "defaults": start["defaults"]}
        return _describe(app, draft, siblings) | await self._try(visit, app["id"], draft)

    @PageRoute(_EDIT, template=_PAGE, section=SECTION)
    async def show_editor(self, visit: Visit) -> Values:
        """One locale of a template."""
        app = await require_app(visit, visit.path("app_id"))
        template = await visit.read("/apps/{}/templates/{}", app["id"], visit.path("template_id"))
        siblings, _ = await read_named(visit, app["id"], template["name"])
        return _describe(app, template, siblings) | await self._try(visit, app["id"], template)

    @FormRoute(_NEW, page="show_new")
    async def create_template(self, visit: Visit) -> Moved:
        """Make it."""
        made = await visit.send("POST", "/apps/{}/templates", visit.path("app_id"), body=_read_template(visit))
        return Moved(_address_of(made), "made")

    @FormRoute(_EDIT, page="show_editor")
    async def save_template(self, visit: Visit) -> Moved:
        """Change it."""
        parts = visit.path("app_id"), visit.path("template_id")
        saved = await visit.send("PUT", "/apps/{}/templates/{}", *parts, body=_read_template(visit))
        return Moved(_address_of(saved), "saved")

    @FormRoute(_NEW + "/rendered", page="show_new", fragment=_RENDERED)
    async def render_new(self, visit: Visit) -> Values:
        """What becomes of what is typed."""
        return await self._try(visit, visit.path("app_id"), {})

    @FormRoute(_EDIT + "/rendered", page="show_editor", fragment=_RENDERED)
    async def render_change(self, visit: Visit) -> Values:
        """What becomes of what is typed."""
        return await self._try(visit, visit.path("app_id"), {})

    async def _try(self, visit: Visit, app_id: str, template: TemplateItem) -> Values:
        """What the template becomes, or what was typed in its place; or what is wrong with it."""
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


def _read_template(visit: Visit) -> dict[str, Any]:
    return {"name": visit.read_field("name"), "locale": visit.read_field("locale"), **_read_texts(visit)}


def _address_of(template: TemplateItem) -> str:
    return address("/templates/{}/named?name={}", template["appId"], template["name"])
