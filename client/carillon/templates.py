"""`client.templates`: what the messages of an app say, by name and locale."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from carillon.addresses import path_of
from carillon.calls import M, Resource, call, listing
from carillon.creations import CONFLICT, Creation
from carillon.encoding import encode
from carillon.instants import UpdatedAt
from carillon.paging import PAGE_SIZE, items

_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class Template(Struct, frozen=True, kw_only=True):
    """A template to be made. `locale` is that of the devices that get it; `en` serves all others. `body` becomes `aps`
    (apns) or `data` (gcm); a job's context, else `defaults`, fill its `{{name}}`."""

    name: str
    locale: str
    body: Mapping[str, Any]
    defaults: Mapping[str, Any] = {}

    def is_made_as(self, stored: "StoredTemplate") -> bool:
        """Whether this is what is stored."""
        content = (stored.name, stored.locale, stored.body, stored.defaults)
        return content == (self.name, self.locale, self.body, self.defaults)


class StoredTemplate(UpdatedAt, frozen=True, kw_only=True, rename="camel"):
    """A template of an app."""

    id: str
    app_id: str
    name: str
    locale: str
    body: dict[str, Any]
    defaults: dict[str, Any]
    created_by: str


class Rendering(Struct, frozen=True, kw_only=True, rename="camel"):
    """A rendered template: the value of `aps` or `data`, and its `bytes` as JSON. Or the `fault`, and the `field` that
    has it. `valueless_tags` have no value: nothing stands in their place."""

    locale: str
    body: dict[str, Any] | None
    bytes: int
    fault: str
    field: str
    valueless_tags: tuple[str, ...] = ()


_template = msgspec.json.Decoder(StoredTemplate)
_page = msgspec.json.Decoder(list[StoredTemplate])
_rendering = msgspec.json.Decoder(Rendering)


class Templates(Resource[M]):
    """The templates of apps. All methods raise `CarillonError`."""

    @call
    async def create(self, app_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Make a template. Raises `Invalid`, `Conflict` where the app has one of this name and locale."""
        content = encode(template)
        return await self._creation(app_id).create(content, template.is_made_as, reason)

    @call
    async def create_many(
        self, app_id: str, templates: Sequence[Template], *, reason: str = ""
    ) -> tuple[StoredTemplate, ...]:
        """Make several templates, all or none. Raises as `create`."""
        answer = await self._transport.call(
            "POST",
            _of(app_id),
            query={"multiple": "true"},
            content=encode(templates),
            reason=reason,
            done_before=CONFLICT,
        )
        if answer.status != HTTPStatus.CONFLICT:
            made = answer.read(_page)
            return tuple(made)
        creation = self._creation(app_id)
        return tuple([await creation.find(template.is_made_as, answer) for template in templates])

    @call
    async def get(self, app_id: str, template_id: str) -> StoredTemplate:
        """A template. Raises `NotFound`."""
        return (await self._transport.call("GET", _of(app_id, template_id))).read(_template)

    @listing
    def list(
        self, app_id: str, *, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredTemplate]:
        """An app's templates, the oldest first; read page by page."""
        return items(self._transport, _of(app_id), {}, _page, limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, template_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Change a template; without `defaults`, those of before stay. Raises `NotFound`, `Invalid`, `Conflict`."""
        path, content = _of(app_id, template_id), encode(template)
        return (await self._transport.call("PUT", path, content=content, reason=reason)).read(_template)

    @call
    async def render(
        self, app_id: str, template: Template | str, *, locale: str = "", context: Mapping[str, Any] | None = None
    ) -> Rendering:
        """Render a template, or the app's template with this name and locale, with a context; nothing is stored. Raises
        `Invalid`, `NotFound`."""
        named = {"name": template} if isinstance(template, str) else {"template": template, "locale": template.locale}
        chosen = {"locale": locale, "context": context}
        content = encode({**named, **{name: given for name, given in chosen.items() if given}})
        answer = await self._transport.call("POST", f"{_of(app_id)}/render", content=content)
        return answer.read(_rendering)

    @call
    async def delete(self, app_id: str, template_id: str, *, reason: str = "") -> None:
        """Delete a template. Raises `NotFound`."""
        await self._transport.call("DELETE", _of(app_id, template_id), reason=reason, done_before=_GONE)

    def _creation(self, app_id: str) -> Creation[StoredTemplate]:
        return Creation(self._transport, _of(app_id), _template, _page)


def _of(app_id: str, *template_id: str) -> str:
    return path_of("apps", app_id, "templates", *template_id)
