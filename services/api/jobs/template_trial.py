"""`POST /apps/{appId}/templates/render`: what a template becomes, before anybody stores it or sends it."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.apps import app_of
from services.api.http import wire
from services.api.http.acts import UNRECORDED
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from services.api.jobs.templates import TEMPLATES, Content
from shared.domain.accounts.apps import App
from shared.domain.errors import Invalid, NotFound
from shared.domain.jobs.templates import Template, find_locale, places_by_locale
from shared.domain.jobs.trial import Trial, try_template
from shared.store import Store

SHOWN_TAGS = 100
_DEFAULT_LOCALE = "en"


class TriedTemplate(Struct, frozen=True, kw_only=True):
    """A template that is not stored."""

    body: Content
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)


class TrialBody(wire.Body, frozen=True, kw_only=True):
    """The template to render: an unstored `template`, or the app's of this `name`, in the `locale` or in English."""

    template: TriedTemplate | None = None
    name: str = ""
    locale: str = ""
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class TrialView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The rendered template: the value of `aps` or `data`, and its bytes as JSON. Or the `fault`, and the `field`
    that has it, as in `body.alert.title`. `valuelessTags` have no value: nothing stands in their place."""

    locale: str
    body: dict[str, Any] | None
    bytes: int
    fault: str
    field: str
    valueless_tags: Annotated[list[str], Meta(description=f"At most {SHOWN_TAGS}.")]


class TemplateTrialResource(Resource):
    """The route of trials."""

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
        body = await asyncio.to_thread(wire.read, content, TrialBody)
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
    return wire.answer(
        TrialView(
            locale=locale,
            body=trial.body,
            bytes=trial.size,
            fault=trial.fault,
            field=trial.field,
            valueless_tags=list(trial.valueless[:SHOWN_TAGS]),
        )
    )
