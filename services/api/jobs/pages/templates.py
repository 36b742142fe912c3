"""`/ui/templates`: the templates of an app, one of them in all its locales, and the editor."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from services.api.http.pages.html import pretty
from services.api.http.pages.namespaces import ShownApp, choose_app, read_apps, require_app
from services.api.http.pages.routes import (
    EMPTY_OBJECT,
    FormRoute,
    Moved,
    NavSection,
    PageRoute,
    PageSet,
    Values,
    read_object,
)
from services.api.http.pages.visits import ApiProblem, Visit, address
from shared.audience.rules.audiences import normal_locale
from shared.jobs.rules.templates import Template, places_by_locale, tags_of, texts_of

READ_AT_ONCE = 1_000
MOST_READS = 4
"""How many pages of an app's templates are read to find those of one name."""

ENGLISH = "en"
_UNSERVED = "No device gets it: another text has the same locale. Delete one of them."
_TAG = re.compile(r"(\{\{.*?\}\})", re.DOTALL)

SECTION = NavSection("Templates", "/templates", order=20, group="Send")
_NEW = "/templates/{app_id:str}/new"
_EDIT = "/templates/{app_id:str}/edit/{template_id:str}"
_PAGE, _RENDERED = "jobs/editor.html", "jobs/rendered.html"
_FIRST_BODY = {"alert": {"title": "Hello {{user}}", "body": "Here is what is new."}}
_FIRST_DEFAULTS = {"user": "you"}

TemplateItem = dict[str, Any]
"""A template of one locale, as the API shows it."""


class TemplatePages(PageSet):
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
            "templates": [named for named in group_by_name(found) if wanted in named["name"].lower()],
        }

    @PageRoute("/templates/{app_id:str}/named", template="jobs/template.html")
    async def show_template(self, visit: Visit) -> Values:
        app, name = await visit.read("/apps/{}", visit.path("app_id")), visit.query("name")
        found, is_complete = await read_named(visit, app["id"], name)
        if not found:
            raise ApiProblem(HTTPStatus.NOT_FOUND, "the app has no template of this name")
        served = _find_served(found)
        english = next((item for item in served if normal_locale(item["locale"]) == ENGLISH), None)
        return {
            "title": name,
            "app": app,
            "name": name,
            "has_english": english is not None or not is_complete,
            "is_complete": is_complete,
            "looked_through": MOST_READS * READ_AT_ONCE,
            "locales": [_describe_locale(item, english, is_served=item in served) for item in found],
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

    @PageRoute(_NEW, template=_PAGE)
    async def show_new(self, visit: Visit) -> Values:
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
        return await self._try(visit, visit.path("app_id"), {"body": {}, "defaults": {}})

    async def _try(self, visit: Visit, app_id: str, template: TemplateItem) -> Values:
        try:
            tried = _read_texts(visit) if visit.form else {part: template[part] for part in ("body", "defaults")}
            body = {"template": tried, "context": read_object(visit.form, "context") or EMPTY_OBJECT}
            trial = await visit.send("POST", "/apps/{}/templates/render", app_id, body=body)
        except ApiProblem as problem:
            if not problem.is_refusal:
                raise
            trial = {"body": None, "bytes": 0, "fault": problem.detail, "field": problem.field, "valuelessTags": []}
        return {"trial": trial, "notification": message_of(trial["body"])}


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
    return sorted(found, key=lambda item: _english_first(item["locale"])), not cursor


def _describe(app: ShownApp, template: TemplateItem, siblings: list[TemplateItem]) -> Values:
    return {
        "title": f"Edit {template['name']}" if template["id"] else "New template",
        "app": app,
        "template": template,
        "siblings": siblings,
        "texts": {part: pretty(template[part]) for part in ("body", "defaults")},
    }


def _read_texts(visit: Visit) -> dict[str, Any]:
    return {part: read_object(visit.form, part) or EMPTY_OBJECT for part in ("body", "defaults")}


async def _send_template(visit: Visit, method: str, path: str, *parts: str) -> TemplateItem:
    body = {"name": visit.read_field("name"), "locale": visit.read_field("locale"), **_read_texts(visit)}
    try:
        saved: TemplateItem = await visit.send(method, path, *parts, body=body)
    except ApiProblem as problem:
        # Marathon's clients know that a name is taken by this word.
        raise ApiProblem(problem.status, problem.detail.replace(" (name_locale_app)", ""), problem.field) from None
    return saved


def _address_of(template: TemplateItem) -> str:
    return address("/templates/{}/named?name={}", template["appId"], template["name"])


def group_by_name(templates: Iterable[TemplateItem]) -> list[Values]:
    """The templates by their names, in alphabetical order. Only those with an English text can be pushed."""
    named: dict[str, Values] = {}
    for item in templates:
        group = named.setdefault(item["name"], {"name": item["name"], "locales": [], "created_by": item["createdBy"]})
        group["locales"].append(item["locale"])
        group["changed_at"] = max(group.get("changed_at", 0), item["updatedAt"])
    for group in named.values():
        group["locales"].sort(key=_english_first)
        group["has_english"] = ENGLISH in map(normal_locale, group["locales"])
    return sorted(named.values(), key=lambda group: group["name"].lower())


def _english_first(locale: str) -> tuple[bool, str]:
    """English serves all readers without a text of their own."""
    return (normal_locale(locale) != ENGLISH, locale)


def _find_served(found: Sequence[TemplateItem]) -> list[TemplateItem]:
    """The templates of one name that a job sends: if two have one locale, only the first."""
    texts = [
        Template(id=item["id"], app_id=item["appId"], name=item["name"], locale=item["locale"], body={})
        for item in found
    ]
    return [found[place] for places in places_by_locale(texts).values() for place in places.values()]


def _describe_locale(item: TemplateItem, english: TemplateItem | None, *, is_served: bool) -> Values:
    tags = tags_in(item["body"])
    return {
        "template": item,
        "pieces": _TAG.split(pretty(item["body"])),
        "needed": [f"{{{{{tag}}}}}" for tag in tags if item["defaults"].get(tag) is None],
        "faults": ([] if is_served else [_UNSERVED]) + [*_missing_tags(tags, english)],
    }


def _missing_tags(tags: Sequence[str], english: TemplateItem | None) -> Sequence[str]:
    if english is None:
        return ()
    own = tags_in(english["body"])
    faults = [f"The English text has {{{{{tag}}}}}, this one does not." for tag in own if tag not in tags]
    return faults + [f"This text has {{{{{tag}}}}}, the English one does not." for tag in tags if tag not in own]


def tags_in(body: Any) -> list[str]:
    return list(dict.fromkeys(tag for text in texts_of(body) for tag in tags_of(text)))


def read_notification(body: Any) -> dict[str, str] | None:
    """The title and the text that a phone would show, where the body has them in their usual places."""
    if not isinstance(body, dict):
        return None
    alert = body.get("alert")
    if isinstance(alert, str):
        return {"title": "", "body": alert}
    texts = alert if isinstance(alert, dict) else body
    found = {part: text for part in ("title", "body") if isinstance(text := texts.get(part), str) and text}
    return {"title": "", "body": ""} | found if found else None


def notification_of(record: Any) -> dict[str, str] | None:
    """The same of a record, as services get it."""
    if not isinstance(record, dict):
        return None
    payload = record.get("Payload")
    return read_notification(payload.get("aps") if isinstance(payload, dict) else record.get("data"))


def message_of(content: Any) -> dict[str, str] | None:
    """The title and body of an account's message, such as the subject and text of a mail; `None` for neither."""
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("text") or content.get("subject"), str):
        return {"title": str(content.get("subject") or ""), "body": str(content.get("text") or "")}
    return read_notification(content.get("aps") or content.get("notification") or content)
