"""`GET /apps/{appId}/devices`: the devices of one user, as the push tables have them now."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import APP, app_of
from services.api.http import bodies, paging
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Parameter, Resource, Route
from shared.audience.rules.audiences import table_name
from shared.audience.rules.devices import Devices
from shared.core.errors import Conflict, Invalid
from shared.drivers.postgres import USER, Audience
from shared.drivers.postgres.inspection import AudienceInspection, FoundTable
from shared.push.rules.records import SERVICES
from shared.store import Store

_MOST = 100
_USER = Parameter(
    name="user",
    description="The id of a user, as the push tables and files have it.",
    schema={"type": "string", "minLength": 1, "maxLength": 1024},
    required=True,
)


class DeviceView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A device of a push table. Pushes skip one without a `token`. NULL is an empty text."""

    service: str
    seq_id: int
    token: str
    locale: str
    tz: str


class DevicesResource(Resource):
    def __init__(self, store: Store, audience: Audience) -> None:
        self._store = store
        self._audience = audience

    @Route(
        "GET", APP + "/devices",
        summary=f"List the devices of one user, by service. 409 if a push table has more than {_MOST} of them, or no "
                "index on user_id. A service for which the app has no push table has none.",
        who=OPERATE_APP, answers={HTTPStatus.OK: list[DeviceView]}, parameters=(_USER,),
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def find_devices(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        user, app = paging.first(request, _USER.name), await app_of(self._store, app_id)
        if not 1 <= len(user) <= _USER.schema["maxLength"]:
            raise Invalid("user must be the id of a user, of 1 to 1,024 characters", field=_USER.name)
        services = {table_name(app.name, service): service for service in SERVICES}
        tables = await AudienceInspection(self._audience.connections).find_tables(list(services))
        usable = [table for table in tables if not table.missing and not table.key_type]
        found = [(services[table.name], await self._read(table, user)) for table in usable]
        return bodies.answer([view for service, devices in found for view in _device_views(service, devices)])

    async def _read(self, table: FoundTable, user: str) -> Devices:
        if USER in table.unindexed:
            raise Conflict(f'table "{table.name}" has no index on {USER}, so no user can be looked up: create one')
        devices = await self._audience.read_users(table.name, [user], limit=_MOST)
        if devices is None:
            raise Conflict(f'table "{table.name}" has more than {_MOST} devices of this user: read it in PostgreSQL')
        return devices


def _device_views(service: str, devices: Devices) -> list[DeviceView]:
    columns = zip(devices.keys.tolist(), devices.tokens, devices.locales, devices.zones, strict=True)
    return [
        DeviceView(service=service, seq_id=key, token=token.decode(), locale=locale.decode(), tz=zone.decode())
        for key, token, locale, zone in columns
    ]
