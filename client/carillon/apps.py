"""`client.apps`: the mobile apps that jobs push to."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from carillon.calls import M, Resource, call, listing
from carillon.encoding import encode
from carillon.instants import UpdatedAt
from carillon.paging import PAGE_SIZE


class App(UpdatedAt, frozen=True, kw_only=True, rename="camel"):
    """An app. Its name says whose devices its jobs reach; name and bundle id are unique. The API sets the other
    fields."""

    id: str = ""
    name: str
    bundle_id: str
    created_by: str = ""


class Device(Struct, frozen=True, kw_only=True, rename="camel"):
    """A device of a push table. Pushes skip one without a `token`."""

    service: str
    seq_id: int
    token: str
    locale: str
    tz: str


class Apps(Resource[M]):
    """The apps. All methods raise `CarillonError`."""

    @call
    async def create(self, name: str | App, bundle_id: str = "", *, reason: str = "") -> App:
        """Create an app, as an admin: an `App`, or its name and bundle id. Raises `Invalid`, and `Conflict` if an app
        has this name or bundle id."""
        wanted = name if isinstance(name, App) else App(name=name, bundle_id=bundle_id)
        content = encode({"name": wanted.name, "bundleId": wanted.bundle_id})

        def is_wanted(app: App) -> bool:
            return (app.name, app.bundle_id) == (wanted.name, wanted.bundle_id)

        return await self._create(App, list[App], "apps", content=content, reason=reason, is_wanted=is_wanted)

    @call
    async def get(self, app_id: str) -> App:
        """An app. Raises `NotFound`."""
        return await self._get(App, "apps", app_id)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[App]:
        """All apps, the oldest first; read page by page."""
        return self._list(list[App], "apps", limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, *, name: str, bundle_id: str, reason: str = "") -> App:
        """Change an app's bundle id and, as an admin, its name. Raises `NotFound`, `Invalid`, `Conflict`."""
        content = encode({"name": name, "bundleId": bundle_id})
        return await self._put(App, "apps", app_id, content=content, reason=reason)

    @call
    async def find_devices(self, app_id: str, user: str) -> tuple[Device, ...]:
        """The devices of one user, as an operator. Raises `NotFound`, `Conflict` if a push table has no index on
        `user_id`, or more devices of the user than are shown."""
        return await self._get(tuple[Device, ...], "apps", app_id, "devices", query={"user": user})

    @call
    async def delete(self, app_id: str, *, reason: str = "") -> None:
        """Delete an app with its templates, credentials and jobs; where there is much, the server goes on with it after
        its answer, and the app is there until then. Raises `NotFound`, `Conflict` where a job is unfinished."""
        await self._delete("apps", app_id, reason=reason)
