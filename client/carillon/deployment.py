"""A deployment as a whole: its caller, its health, its processes and its settings."""

from collections.abc import AsyncGenerator
from http import HTTPStatus

from msgspec import Struct

from carillon.calls import M, Resource, call, listing
from carillon.errors import CarillonError
from carillon.overview import Overview
from carillon.paging import PAGE_SIZE
from carillon.processes import Minute, Process, Setting

_UNWELL = int(HTTPStatus.INTERNAL_SERVER_ERROR)


class Caller(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller. `namespace` owns their schedules, `allowed_apps` are apps whose admin they are, and `roles` are their
    other rights. A caller who `is_admin` needs neither. If `reasons` are `required`, a caller who ends something gives
    a `reason=`."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: dict[str, str]
    reasons: str = "optional"


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace: how many tokens share it, and how many schedules it has, finished ones too. 1,001 stands for more
    than 1,000; None, if the caller asked for no counts."""

    namespace: str
    tokens: int | None = None
    schedules: int | None = None


class Deployment(Resource[M]):
    """The deployment as a whole."""

    @call
    async def whoami(self) -> Caller:
        """The caller, and what they may do. Raises `Unauthorized`."""
        return await self._get(Caller, "whoami")

    @call
    async def overview(self) -> Overview:
        """Whether all is well and why not: what is wrong, what runs and what waits."""
        return await self._get(Overview, "overview")

    @call
    async def processes(self) -> tuple[Process, ...]:
        """The processes that run, and those that fell silent lately."""
        return await self._get(tuple[Process, ...], "processes")

    @call
    async def minutes(self, minutes: int = 60) -> tuple[Minute, ...]:
        """The work of each of the last minutes, the oldest first."""
        return await self._get(tuple[Minute, ...], "minutes", query={"minutes": str(minutes)})

    @call
    async def settings(self) -> tuple[Setting, ...]:
        """The settings, with secrets masked. Raises `Forbidden` for who is no admin."""
        return await self._get(tuple[Setting, ...], "settings")

    @listing
    def list_namespaces(
        self, *, counts: bool = True, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[Namespace]:
        """The namespaces over which the caller has a role, by name; read page by page. Quicker without `counts`."""
        query = {} if counts else {"counts": "false"}
        return self._list(list[Namespace], "namespaces", query=query, limit=limit, page_size=page_size)

    @call
    async def healthcheck(self) -> bool:
        """Whether the API and its databases are well. Nobody needs credentials for this. Raises `Unavailable`."""
        try:
            await self._call("GET", "healthcheck")
        except CarillonError as error:
            if error.status == _UNWELL:
                return False
            raise
        return True
