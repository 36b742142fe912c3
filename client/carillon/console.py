"""The deployment as a whole: its overview, processes, queues, settings, audit, and acts on many things at once."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from msgspec import Struct

from carillon.attempts import query_of
from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.errors import CarillonError
from carillon.push_jobs import StoredJob
from carillon.values import encode
from carillon.wire import Short
from carillon.wire.console import (
    AuditRecord,
    Caller,
    Minute,
    Namespace,
    Overview,
    Process,
    Queue,
    Setting,
)

BulkAct = Literal[
    "dead-letter.retry",
    "dead-letter.discard",
    "schedule.pause",
    "schedule.resume",
    "schedule.delete",
    "job.pause",
    "job.resume",
    "job.stop",
]


class BulkFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which things; at least one field is needed. Dead letters: of a `namespace` (`*` for all), a `key`, an `error`.
    Schedules: of a `namespace`, whose keys begin with `prefix`, in a `state`, with a `label` (`team:billing`; of
    several, joined by commas, all are needed). Jobs: of the `app` with this id, in a `status`, with exactly these
    `template` names (joined by commas), made by the caller that `by` names."""

    namespace: str | None = None
    key: str | None = None
    error: str | None = None
    prefix: str | None = None
    state: str | None = None
    label: str | None = None
    app: str | None = None
    status: str | None = None
    template: str | None = None
    by: str | None = None


class BulkFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a bulk action. For stopped jobs, `devices_not_reached` is the number of devices that would get
    nothing, as far as the jobs are planned; `unplanned` jobs are not. Both are `None` for other acts, and if nothing
    was counted."""

    matched: int
    devices_not_reached: int | None = None
    unplanned: int | None = None
    act: str = ""
    filter: BulkFilter = BulkFilter()


class BulkFailure(Struct, frozen=True, kw_only=True):
    """A thing that could not be acted on, and why."""

    id: str
    reason: str


class BulkAction(Short, frozen=True, kw_only=True, rename="camel"):
    """A bulk action. `state` is `waiting`, `running`, `done`, `cancelled` or `failed`. `matched` things were there when
    it was made; of these, `done`, `skipped` (there was nothing to do) and `failed` count those that ended. `redacted`
    says that the filter's error and the reasons of failures are left out: the caller is a viewer."""

    id: str
    act: str
    filter: BulkFilter
    reason: str = ""
    state: str
    matched: int
    done: int
    failed: int
    skipped: int
    failures: tuple[BulkFailure, ...] = ()
    failure: str = ""
    created_by: str
    created_at: datetime
    changed_at: datetime | None = None
    ended_at: datetime | None = None
    cancelled_by: str = ""
    redacted: bool = False


class BulkActions(Resource[M]):
    """The bulk actions that the caller may see. All methods raise `CarillonError`."""

    @call
    async def dry_run(self, act: BulkAct, filter: BulkFilter) -> BulkFigures:
        """Figures of what an action would do; nothing is done. Raises `Invalid`, `Forbidden`."""
        content = encode({**_body_of(act, filter), "reason": "a dry run"})
        return await self._post(BulkFigures, "bulk-actions", query={"dryRun": "true"}, content=content)

    @call
    async def create(
        self, act: BulkAct, filter: BulkFilter, *, reason: str, at_most: int | None = None, idempotency_key: str = ""
    ) -> BulkAction:
        """Do something to all that a filter matches; workers do it from now on. `get` tells how far they are.

        Raises:
            Invalid: the filter names nothing, or what these things do not have.
            Forbidden: the caller may not do this to all that it may match.
            Conflict: more than `at_most` match, so nothing is done.
        """
        body = {**_body_of(act, filter), "reason": reason, **({} if at_most is None else {"atMost": at_most})}
        return await self._post(
            BulkAction, "bulk-actions", content=encode(body), idempotency_key=idempotency_key, reason=reason
        )

    @call
    async def get(self, action_id: str) -> BulkAction:
        """An action, and how far it is. Raises `NotFound`."""
        return await self._get(BulkAction, "bulk-actions", action_id)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[BulkAction]:
        """The actions, the newest first; read page by page."""
        return self._list(list[BulkAction], "bulk-actions", limit=limit, page_size=page_size)

    @call
    async def cancel(self, action_id: str, *, reason: str = "") -> BulkAction:
        """Leave what is not done yet; what is done stays done. Raises `NotFound`, `Conflict` where it is over."""
        answer = await self._call("POST", "bulk-actions", action_id, "cancel", reason=reason, done_before=CONFLICT)
        return await self._settle_move(
            BulkAction, "bulk-actions", action_id, answer=answer, is_moved=lambda action: action.state == "cancelled"
        )


def _body_of(act: BulkAct, filter: BulkFilter) -> Mapping[str, Any]:
    return {"act": act, "filter": filter}


class Queues(Resource[M]):
    """The queues. All methods raise `CarillonError`."""

    @listing
    async def list(self) -> AsyncGenerator[Queue]:
        """All queues."""
        for queue in await self._get(list[Queue], "queues"):
            yield queue


class Audit(Resource[M]):
    """The recorded acts. All methods raise `CarillonError`."""

    @listing
    def list(
        self,
        *,
        app_id: str = "",
        act: str = "",
        on: str = "",
        by: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[AuditRecord[datetime]]:
        """The recorded acts, the newest first, or only this `act`, `on` the thing with this id or key, `by` this
        namespace. With `app_id`, the acts on the app and on the things that belong to it; its admin may see them."""
        path = ("apps", app_id, "audit") if app_id else ("audit",)
        query = query_of(act=act, on=on, by=by)
        return self._list(list[AuditRecord[datetime]], *path, query=query, limit=limit, page_size=page_size)


_UNWELL = int(HTTPStatus.INTERNAL_SERVER_ERROR)


class Deployment(Resource[M]):
    """The deployment as a whole."""

    @call
    async def whoami(self) -> Caller:
        """The caller, and what they may do. Raises `Unauthorized`."""
        return await self._get(Caller, "whoami")

    @call
    async def overview(self) -> Overview[datetime, StoredJob]:
        """Whether all is well and why not: what is wrong, what runs and what waits."""
        return await self._get(Overview[datetime, StoredJob], "overview")

    @call
    async def processes(self) -> tuple[Process[datetime], ...]:
        """The processes that run, and those that fell silent lately."""
        return await self._get(tuple[Process[datetime], ...], "processes")

    @call
    async def minutes(self, minutes: int = 60) -> tuple[Minute[datetime], ...]:
        """The work of each of the last minutes, the oldest first."""
        return await self._get(tuple[Minute[datetime], ...], "minutes", query={"minutes": str(minutes)})

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
        """Whether the API and its databases are well. This needs no credentials. Raises `Unavailable`."""
        try:
            await self._call("GET", "healthcheck")
        except CarillonError as error:
            if error.status == _UNWELL:
                return False
            raise
        return True
