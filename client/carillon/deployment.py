"""`client.whoami()`: what the deployment takes its caller for; `client.healthcheck()`: whether it is well."""

from http import HTTPStatus

import msgspec
from msgspec import Struct

from carillon.calls import M, Resource, call
from carillon.errors import CarillonError

_UNWELL = int(HTTPStatus.INTERNAL_SERVER_ERROR)


class Caller(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who is calling. `namespace` owns their schedules, `allowed_apps` are apps whose admin they are, and `roles` are
    what else they may do. Who `is_admin` needs neither."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: dict[str, str]


_caller = msgspec.json.Decoder(Caller)


class Deployment(Resource[M]):
    """What concerns a deployment as a whole."""

    @call
    async def whoami(self) -> Caller:
        """Who is calling, and what they may do. Raises `Unauthorized`."""
        return (await self._transport.call("GET", "/whoami")).read(_caller)

    @call
    async def healthcheck(self) -> bool:
        """Whether the API and its databases are well. Nobody needs credentials for this. Raises `Unavailable`."""
        try:
            await self._transport.call("GET", "/healthcheck")
        except CarillonError as error:
            if error.status == _UNWELL:
                return False
            raise
        return True
