"""`client.apps`: the mobile apps that jobs push to."""

from collections.abc import AsyncGenerator
from http import HTTPStatus

import msgspec
from msgspec import Struct

from carillon.addresses import path_of
from carillon.calls import M, Resource, call, listing
from carillon.creations import Creation
from carillon.encoding import encode
from carillon.instants import UpdatedAt
from carillon.paging import PAGE_SIZE, items

_EVERY = "/apps"
_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


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


_app = msgspec.json.Decoder(App)
_devices = msgspec.json.Decoder(tuple[Device, ...])
_page = msgspec.json.Decoder(list[App])


class Apps(Resource[M]):
    """The apps. All methods raise `CarillonError`."""

    @call
    async def create(self, name: str | App, bundle_id: str = "", *, reason: str = "") -> App:
        """Create an app, as an admin: an `App`, or its name and bundle id. Raises `Invalid`, and `Conflict` if an app
        has this name or bundle id."""
        wanted = name if isinstance(name, App) else App(name=name, bundle_id=bundle_id)
        names = (wanted.name, wanted.bundle_id)
        creation = Creation(self._transport, _EVERY, _app, _page)
        content = encode({"name": wanted.name, "bundleId": wanted.bundle_id})
        return await creation.create(content, lambda app: (app.name, app.bundle_id) == names, reason)

    @call
    async def get(self, app_id: str) -> App:
        """An app. Raises `NotFound`."""
        return (await self._transport.call("GET", _one(app_id))).read(_app)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[App]:
        """All apps, the oldest first; read page by page."""
        return items(self._transport, _EVERY, {}, _page, limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, *, name: str, bundle_id: str, reason: str = "") -> App:
        """Change an app's bundle id and, as an admin, its name. Raises `NotFound`, `Invalid`, `Conflict`."""
        content = encode({"name": name, "bundleId": bundle_id})
        return (await self._transport.call("PUT", _one(app_id), content=content, reason=reason)).read(_app)

    @call
    async def find_devices(self, app_id: str, user: str) -> tuple[Device, ...]:
        """The devices of one user, as an operator. Raises `NotFound`, `Conflict` if a push table has no index on
        `user_id`, or more devices of the user than are shown."""
        return (await self._transport.call("GET", _one(app_id) + "/devices", query={"user": user})).read(_devices)

    @call
    async def delete(self, app_id: str, *, reason: str = "") -> None:
        """Delete an app with its templates, credentials and jobs; where there is much, the server goes on with it after
        its answer, and the app is there until then. Raises `NotFound`, `Conflict` where a job is unfinished."""
        await self._transport.call("DELETE", _one(app_id), reason=reason, done_before=_GONE)


def _one(app_id: str) -> str:
    return _EVERY + path_of(app_id)
