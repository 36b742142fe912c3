"""`/apps/{appId}/templates`: the messages of an app by name and locale, and a trial of one before it is stored."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.apps import APP, AppView, app_of, app_view
from services.api.http import bodies, paging
from services.api.http.acts import UNRECORDED, note_change, note_name
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_APP, VIEW_APP
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import App, check_not_deleting
from shared.core.errors import Invalid, NotFound
from shared.core.ids import read_uuid
from shared.jobs.rules.templates import (
    Template,
    Trial,
    check_filled,
    check_template,
    find_locale,
    places_by_locale,
    try_template,
)
from shared.runtime.clock import Clock
from shared.store import Store

Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255, "examples": ["like"]})]
Locale = Annotated[
    str,
    Meta(
        description="For recipients of this locale. Case does not count, `_` is `-`, and `pt` serves "
        "`pt-BR` unless that has a template. A withdrawn code such as `iw` is `he`. `en` serves all others.",
        extra_json_schema={"minLength": 1, "maxLength": 10, "examples": ["en"]},
    ),
]
Content = Annotated[
    dict[str, Any],
    Meta(
        description="Becomes `aps` (apns) or `data` (gcm); the context, else the defaults, fill `{{name}}`.",
        extra_json_schema={"minProperties": 1, "examples": [{"alert": "{{user}} liked your {{thing}}"}]},
    ),
]
TEMPLATES = APP + "/templates"
TEMPLATE = TEMPLATES + "/{template_id:str}"
MULTIPLE = Parameter(
    name="multiple",
    description="`true`: the body is an array of templates, which are all made or none.",
    schema={"type": "boolean"},
)


class TemplateBody(bodies.Body, frozen=True, kw_only=True):
    """A template to be made or changed."""

    name: Name = ""
    locale: Locale = ""
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)
    body: Content = msgspec.field(default_factory=dict)


class TemplateView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A template. Times in nanoseconds since the epoch."""

    id: str
    name: str
    locale: str
    defaults: dict[str, Any]
    body: dict[str, Any]
    created_by: str
    app: AppView
    app_id: str
    created_at: int
    updated_at: int


class TemplateItemBody(TemplateBody, frozen=True, kw_only=True):
    """One of several templates to be made."""


class TemplateItemView(TemplateView, frozen=True, kw_only=True):
    """One of several templates that were made."""


# In such a union, the generator for TypeScript needs two names for one thing.
TemplateBodies = Annotated[
    TemplateBody | list[TemplateItemBody],
    Meta(title="TemplateBodies", description="A template; with `multiple=true`, several."),
]
Templates = Annotated[
    TemplateView | list[TemplateItemView],
    Meta(title="Templates", description="The template that was made; with `multiple=true`, all of them."),
]


def template_view(template: Template, app: App) -> TemplateView:
    return TemplateView(
        id=template.id,
        name=template.name,
        locale=template.locale,
        defaults=template.defaults,
        body=template.body,
        created_by=template.created_by,
        app=app_view(app),
        app_id=template.app_id,
        created_at=template.created_at,
        updated_at=template.updated_at,
    )


class TemplatesResource(Resource):
    def __init__(self, store: Store, clock: Clock, *, max_record_bytes: int, lenient: bool) -> None:
        self._store = store
        self._clock = clock
        self._max_record_bytes = max_record_bytes
        self._lenient = lenient

    @Route(
        "GET", TEMPLATES, summary="List an app's templates, the oldest first; an unknown app has none.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[TemplateView]}, paged=True,
    )  # fmt: skip
    async def list_templates(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            return bodies.answer([])
        templates = await self._store.templates.page(app.id, after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, templates, lambda template: template.id)
        return bodies.answer([template_view(template, app) for template in templates], headers=headers)

    @Route(
        "POST", TEMPLATES, summary="Make a template, or with `multiple=true` several, all or none.",
        act="template.create", who=OPERATE_APP, body=TemplateBodies,
        answers={HTTPStatus.CREATED: Templates}, problems=(HTTPStatus.CONFLICT,),
        parameters=(MULTIPLE,),
    )  # fmt: skip
    async def create_template(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        wanted = read_uuid(app_id, field="appId")
        content = await request.body()
        several = paging.read_flag(request, MULTIPLE.name)
        given = await asyncio.to_thread(_read_many if several else _read_alone, content, lenient=self._lenient)
        app = await self._store.apps.get(wanted)
        if app is None:
            raise Invalid("App not found with given id.", field="appId", value=app_id)
        check_not_deleting(app, app.id)
        templates = self._make_templates(given, app, caller_of(request).name)
        await self._check_size(templates)
        if several:
            await self._store.templates.add_many(templates)
        else:
            await self._store.templates.add(templates[0])
        views = [template_view(template, app) for template in templates]
        if not several:
            note_change(None, views[0])
        return bodies.answer(views if several else views[0], HTTPStatus.CREATED)

    @Route(
        "GET", TEMPLATE, summary="Show a template.",
        who=VIEW_APP, answers={HTTPStatus.OK: TemplateView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_template(self, app_id: FromPath[str], template_id: FromPath[str]) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        template = await self._store.templates.get(read_uuid(template_id, field="templateId"))
        if template is None or template.app_id != app.id:
            raise _no_such_template(template_id)
        return bodies.answer(template_view(template, app))

    @Route(
        "PUT", TEMPLATE,
        summary="Change a template; its defaults stay where none are given. Jobs that are being sent keep their copy.",
        act="template.update", who=OPERATE_APP, body=TemplateBody, answers={HTTPStatus.OK: TemplateView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def update_template(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], template_id: FromPath[str]
    ) -> Response[bytes]:
        [body] = await asyncio.to_thread(_read_alone, await request.body(), lenient=self._lenient)
        wanted = read_uuid(template_id, field="templateId")
        app = await app_of(self._store, app_id)
        await self._check_size(self._make_templates([body], app, ""))
        earlier = await self._store.templates.get(wanted)
        changed = await self._store.templates.update(
            app.id, wanted, name=body.name, locale=body.locale, body=body.body, defaults=body.defaults or None,
            at=self._clock.now_ns(),
        )  # fmt: skip
        if changed is None or earlier is None:
            raise _no_such_template(template_id)
        note_change(template_view(earlier, app), template_view(changed, app))
        return bodies.answer(template_view(changed, app))

    @Route(
        "DELETE", TEMPLATE, summary="Delete a template.",
        act="template.delete", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def delete_template(self, app_id: FromPath[str], template_id: FromPath[str]) -> Response[None]:
        app, wanted = await app_of(self._store, app_id), read_uuid(template_id, field="templateId")
        found = await self._store.templates.get(wanted)
        if found is None or found.app_id != app.id:
            raise _no_such_template(template_id)
        note_name("template", found.name)
        if not await self._store.templates.remove(app.id, wanted):
            raise _no_such_template(template_id)
        note_change(template_view(found, app), None)
        return bodies.empty()

    async def _check_size(self, templates: list[Template]) -> None:
        await asyncio.to_thread(check_filled, templates, {}, {}, most=self._max_record_bytes, field="body")

    def _make_templates(self, given: list[TemplateBody], app: App, created_by: str) -> list[Template]:
        now = self._clock.now_ns()
        return [
            Template(
                id=fresh_id(now + 1_000 * index),  # a microsecond apart, so that they sort as they were given
                app_id=app.id,
                name=body.name,
                locale=body.locale,
                body=body.body,
                defaults=body.defaults,
                created_by=created_by,
                created_at=now,
                updated_at=now,
            )
            for index, body in enumerate(given)
        ]


def _read_alone(content: bytes, *, lenient: bool) -> list[TemplateBody]:
    """One template, checked. With a third of a million texts this takes long, so it runs outside the event loop."""
    return [_check(bodies.read(content, TemplateBody), lenient=lenient)]


def _read_many(content: bytes, *, lenient: bool) -> list[TemplateBody]:
    given = list(bodies.read_list(content, TemplateBody))
    if not given:
        raise Invalid("the array must hold at least one template")
    for index, body in enumerate(given):
        with bodies.name_element(index):
            _check(body, lenient=lenient)
    return given


def _check(body: TemplateBody, *, lenient: bool) -> TemplateBody:
    check_template(name=body.name, locale=body.locale, body=body.body, defaults=body.defaults, lenient=lenient)
    return body


def _no_such_template(template_id: str) -> NotFound:
    return NotFound("the app has no template with this id", field="templateId", value=template_id)


SHOWN_TAGS = 100
_DEFAULT_LOCALE = "en"


class TriedTemplate(Struct, frozen=True, kw_only=True):
    """A template that is not stored."""

    body: Content
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)


class TrialBody(bodies.Body, frozen=True, kw_only=True):
    """The template to render: an unstored `template`, or the app's of this `name`, in the `locale` or in English."""

    template: TriedTemplate | None = None
    name: str = ""
    locale: str = ""
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class TrialView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The rendered template: the value of `aps` or `data`, and its bytes as JSON. Or the `fault`, and the `field`
    that has it, as in `body.alert.title`. `valuelessTags` have no value: they are replaced by nothing."""

    locale: str
    body: dict[str, Any] | None
    bytes: int
    fault: str
    field: str
    valueless_tags: Annotated[list[str], Meta(description=f"At most {SHOWN_TAGS}.")]


class TemplateTrialResource(Resource):
    def __init__(self, store: Store, *, max_record_bytes: int, lenient: bool) -> None:
        self._store = store
        self._max_record_bytes = max_record_bytes
        self._lenient = lenient

    @Route(
        "POST", TEMPLATES + "/render", summary="Tell what a template becomes with a context, and store nothing.",
        act=UNRECORDED, who=OPERATE_APP, body=TrialBody, answers={HTTPStatus.OK: TrialView},
        problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def render_template(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content = await request.body()
        app = await app_of(self._store, app_id)
        body = await asyncio.to_thread(bodies.read, content, TrialBody)
        template = await self._choose(app, body)
        # A stored template may be older than the rule for names of tags, and jobs go on sending it.
        lenient, most = self._lenient or body.template is None, self._max_record_bytes
        trial = await asyncio.to_thread(try_template, template, body.context, most=most, lenient=lenient)
        return await asyncio.to_thread(_answer, trial, template.locale)

    async def _choose(self, app: App, body: TrialBody) -> Template:
        """The template that is meant. Raises `Invalid` unless exactly one is given, `NotFound` if it does not exist."""
        if (body.template is None) == (not body.name):
            raise Invalid("a template is needed, or the name of one", field="template")
        if body.template is not None:
            tried, locale = body.template, body.locale or _DEFAULT_LOCALE
            return Template(id="", app_id=app.id, name="tried", locale=locale, body=tried.body, defaults=tried.defaults)
        found = await self._store.templates.find_named(app.id, (body.name,))
        exact = [template for template in found if template.locale == body.locale]
        if exact:
            return exact[0]
        places = places_by_locale(found).get(body.name, {})
        place = places.get(find_locale(body.locale, places) or _DEFAULT_LOCALE)
        if place is None:
            raise NotFound("the app has no template of this name in this locale", field="name", value=body.name)
        return found[place]


def _answer(trial: Trial, locale: str) -> Response[bytes]:
    return bodies.answer(
        TrialView(
            locale=locale,
            body=trial.body,
            bytes=trial.size,
            fault=trial.fault,
            field=trial.field,
            valueless_tags=list(trial.valueless[:SHOWN_TAGS]),
        )
    )
