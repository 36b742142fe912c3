"""`client.templates`: what the messages of an app say, by name and locale."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.values import UpdatedAt, encode


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
    has it. `valueless_tags` have no value: they are replaced by nothing."""

    locale: str
    body: dict[str, Any] | None
    bytes: int
    fault: str
    field: str
    valueless_tags: tuple[str, ...] = ()


class Templates(Resource[M]):
    """The templates of apps. All methods raise `CarillonError`."""

    @call
    async def create(self, app_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Make a template. Raises `Invalid`, `Conflict` where the app has one of this name and locale."""
        path, page = ("apps", app_id, "templates"), list[StoredTemplate]
        return await self._create(
            StoredTemplate, page, *path, content=encode(template), reason=reason, is_wanted=template.is_made_as
        )

    @call
    async def create_many(
        self, app_id: str, templates: Sequence[Template], *, reason: str = ""
    ) -> tuple[StoredTemplate, ...]:
        """Make several templates, all or none. Raises as `create`."""
        path, page, query = ("apps", app_id, "templates"), list[StoredTemplate], {"multiple": "true"}
        answer = await self._call(
            "POST", *path, query=query, content=encode(templates), reason=reason, done_before=CONFLICT
        )
        if answer.status not in CONFLICT:
            return tuple(answer.read(page))
        return tuple([await self._find(page, *path, is_wanted=each.is_made_as, conflict=answer) for each in templates])

    @call
    async def get(self, app_id: str, template_id: str) -> StoredTemplate:
        """A template. Raises `NotFound`."""
        return await self._get(StoredTemplate, "apps", app_id, "templates", template_id)

    @listing
    def list(
        self, app_id: str, *, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredTemplate]:
        """An app's templates, the oldest first; read page by page."""
        return self._list(list[StoredTemplate], "apps", app_id, "templates", limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, template_id: str, template: Template, *, reason: str = "") -> StoredTemplate:
        """Change a template; without `defaults`, those of before stay. Raises `NotFound`, `Invalid`, `Conflict`."""
        content = encode(template)
        return await self._put(StoredTemplate, "apps", app_id, "templates", template_id, content=content, reason=reason)

    @call
    async def render(
        self, app_id: str, template: Template | str, *, locale: str = "", context: Mapping[str, Any] | None = None
    ) -> Rendering:
        """Render a template, or the app's template with this name and locale, with a context; nothing is stored. Raises
        `Invalid`, `NotFound`."""
        named = {"name": template} if isinstance(template, str) else {"template": template, "locale": template.locale}
        chosen = {"locale": locale, "context": context}
        content = encode({**named, **{name: given for name, given in chosen.items() if given}})
        return await self._post(Rendering, "apps", app_id, "templates", "render", content=content)

    @call
    async def delete(self, app_id: str, template_id: str, *, reason: str = "") -> None:
        """Delete a template. Raises `NotFound`."""
        await self._delete("apps", app_id, "templates", template_id, reason=reason)
