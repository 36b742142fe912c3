"""Apps, users and templates of Marathon, as Carillon stores them."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from carillon_imports.carry import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.marathon.source import MAX_JSON_BYTES, AppRow, TemplateRow, UserRow
from shared.accounts.rules.apps import App, check_app, fold_email, name_key
from shared.accounts.rules.callers import User, check_email
from shared.core.errors import Conflict, Invalid
from shared.jobs.rules.templates import Template, check_template
from shared.store import Store

_UNREADABLE = (msgspec.DecodeError, RecursionError)


def read_json(field: str, text: str | None) -> dict[str, Any]:
    """A field with a JSON object; `None` means that it was too large to be read. Raises `Invalid` for this, or if it is
    no object."""
    if text is None:
        raise Invalid(f"its JSON makes over {MAX_JSON_BYTES:,} bytes", field=field)
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE as error:
        raise Invalid(f"invalid {field}: it cannot be read: {error}", field=field) from error
    if not isinstance(value, dict):
        raise Invalid(f"invalid {field}: an object is needed", field=field)
    return value


class Names:
    """The apps that exist here, or would after a dry run: things of other apps cannot be imported."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._holders: dict[str, str] = {}

    def add(self, app: App) -> None:
        self._holders.setdefault(name_key(app.name), app.id)
        if not app.deleting:
            self._names[app.id] = app.name

    def holders(self) -> dict[str, str]:
        return dict(self._holders)

    def of(self, app_id: str) -> str:
        """The app's name. Raises `Conflict` if it does not exist here."""
        name = self._names.get(app_id)
        if name is None:
            raise Conflict("its app was not brought, or was deleted here", field="appId", value=app_id)
        return name

    def name_of(self, app_id: str) -> str:
        return self._names.get(app_id, app_id)


class AppsKind(ImportedKind[AppRow, App]):
    name = "apps"

    def __init__(self, store: Store, names: Names) -> None:
        self._apps = store.apps
        self._names = names

    def label(self, row: AppRow) -> str:
        return row.name

    def read(self, row: AppRow) -> App:
        check_app(row.name, row.bundle_id)
        return App(**asdict(row))

    async def here(self, ids: Sequence[str]) -> dict[str, App]:
        return await self._apps.with_ids(ids)

    async def find_refused(self, new: Sequence[App]) -> Reasons:
        taken = await self._apps.ids_of([app.bundle_id for app in new])
        reasons = {app.id: "another app here has its bundle id" for app in new if app.bundle_id in taken}
        holders = self._names.holders() | await self._apps.find_holders([app.name for app in new])
        for app in new:
            if app.id in reasons:
                continue
            holder = holders.setdefault(name_key(app.name), app.id)
            if holder != app.id:
                reasons[app.id] = f"its name is that of app {holder}, but for case: rename one of them there"
        return reasons

    async def add(self, new: Sequence[App]) -> Reasons:
        return taken_meanwhile(new[position].id for position in await self._apps.add_new(new))

    async def replace(self, here: App, there: App) -> bool:
        return await self._apps.replace(here, there)

    def remember(self, present: Iterable[App]) -> None:
        for app in present:
            self._names.add(app)


class UsersKind(ImportedKind[UserRow, User]):
    name = "users"

    def __init__(self, store: Store) -> None:
        self._users = store.users

    def label(self, row: UserRow) -> str:
        return row.email

    def read(self, row: UserRow) -> User:
        check_email(row.email)
        return User(**asdict(row))

    async def here(self, ids: Sequence[str]) -> dict[str, User]:
        return await self._users.with_ids(ids)

    async def find_refused(self, new: Sequence[User]) -> Reasons:
        taken = await self._users.with_emails([user.email for user in new])
        return {user.id: "another user here has this address" for user in new if fold_email(user.email) in taken}

    async def add(self, new: Sequence[User]) -> Reasons:
        return taken_meanwhile(new[position].id for position in await self._users.add_new(new))

    async def replace(self, here: User, there: User) -> bool:
        return await self._users.replace(here, there)


class TemplatesKind(ImportedKind[TemplateRow, Template]):
    name = "templates"

    def __init__(self, store: Store, names: Names) -> None:
        self._templates = store.templates
        self._names = names

    def label(self, row: TemplateRow) -> str:
        return f"{row.name} ({row.locale}) of {self._names.name_of(row.app_id)}"

    def read(self, row: TemplateRow) -> Template:
        self._names.of(row.app_id)
        # The template may have tags of any name, which its jobs fill.
        body, defaults = read_json("body", row.body), read_json("defaults", row.defaults)
        check_template(name=row.name, locale=row.locale, body=body, defaults=defaults, lenient=True)
        return Template(**(asdict(row) | {"body": body, "defaults": defaults}))

    async def here(self, ids: Sequence[str]) -> dict[str, Template]:
        return await self._templates.with_ids(ids)

    async def find_refused(self, new: Sequence[Template]) -> Reasons:
        app_ids, names = {template.app_id for template in new}, {template.name for template in new}
        taken = await self._templates.ids_of(sorted(app_ids), sorted(names))
        reason = "its app has another template with this name and locale here"
        return {template.id: reason for template in new if (template.app_id, template.name, template.locale) in taken}

    async def add(self, new: Sequence[Template]) -> Reasons:
        return taken_meanwhile(new[position].id for position in await self._templates.add_new(new))

    async def replace(self, here: Template, there: Template) -> bool:
        return await self._templates.replace(here, there)
