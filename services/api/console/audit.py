"""`/audit`: who did what. Admins see all of it, and the admin of an app what was done with the app and what belongs to
it."""

from datetime import datetime
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp
from services.api.http.rights import ADMIN, OWN_APP
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import fold_namespace
from shared.console.rules.audit import ActOutcome, AuditRecord
from shared.core.ids import read_uuid
from shared.core.instants import format_instant
from shared.store import Store
from shared.time import DatabaseTime

_ACT = Parameter(name="act", description="Only these acts, `job.stop` for instance.", schema={"type": "string"})
_ON = Parameter(name="on", description="Only acts on the thing with this id or key.", schema={"type": "string"})
_BY = Parameter(name="by", description="Only acts of this namespace.", schema={"type": "string"})


class ActorView(Struct, frozen=True, kw_only=True):
    """The caller: a `user` or a `token`, how they proved who they are (`token`, `proxy` or `session`), and from where.
    Or it was `system`, Carillon by itself: then `name` is the role of the process."""

    kind: str
    namespace: str
    name: str
    way: str
    address: str


class ActedOnView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The thing that the act changed, its readable name if it is known, and its app or namespace."""

    kind: str
    id: str
    name: str
    app_id: str
    namespace: str


class AuditView(Struct, frozen=True, kw_only=True, rename="camel"):
    """An act. `outcome` is `begun`, `done`, `refused`, `failed`, or `unknown`: the process died, or a server was away.
    `status` is that of the answer, 0 until there is one; `via` the caller's program; `reason` what they gave.
    `requestId` is what the answer bore in `X-Request-Id`, `trace` the id of the request's trace, if it has one. `count`
    is how many things an act on many was done to. `before` and `after` have what it changed, by field, where it was
    done to an app, a template, a user or a token."""

    id: str
    at: Timestamp
    act: str
    who: ActorView
    on: ActedOnView
    via: str
    request_id: str
    trace: str
    reason: str
    outcome: ActOutcome
    status: int
    before: dict[str, Any]
    after: dict[str, Any]
    count: int


def audit_view(record: AuditRecord, now: datetime) -> AuditView:
    who, on = record.who, record.on
    return AuditView(
        id=record.id,
        at=format_instant(record.at),
        act=record.act,
        who=ActorView(kind=who.kind, namespace=who.namespace, name=who.name, way=who.way, address=who.address),
        on=ActedOnView(kind=on.kind, id=on.id, name=on.name, app_id=on.app_id, namespace=on.namespace),
        via=record.via,
        request_id=record.request_id,
        trace=record.trace,
        reason=record.reason,
        outcome=record.outcome_at(now),
        status=record.status,
        before=record.before,
        after=record.after,
        count=record.count,
    )


class AuditResource(Resource):
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    @Route(
        "GET", "/audit", summary="List who did what, the newest first.",
        who=ADMIN, answers={HTTPStatus.OK: list[AuditView]}, parameters=(_ACT, _ON, _BY), paged=True,
    )  # fmt: skip
    async def list_audit_records(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        return await self._answer(request)

    @Route(
        "GET", "/apps/{app_id:str}/audit",
        summary="List who did what with an app and what belongs to it, the newest first.",
        who=OWN_APP, answers={HTTPStatus.OK: list[AuditView]}, parameters=(_ACT, _ON, _BY), paged=True,
    )  # fmt: skip
    async def list_audit_records_of_app(
        self, request: Request[Any, Any, Any], app_id: FromPath[str]
    ) -> Response[bytes]:
        return await self._answer(request, app_id=read_uuid(app_id, field="appId"))

    async def _answer(self, request: Request[Any, Any, Any], *, app_id: str = "") -> Response[bytes]:
        asked, now = paging.read_page(request, str), await self._time.now()
        wanted = {name: fold_namespace(paging.first(request, name)) for name in ("act", "on", "by")}
        found = await self._store.audit.page(**wanted, app_id=app_id, before=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, found, lambda record: record.id)
        return bodies.answer([audit_view(record, now) for record in found], headers=headers)
