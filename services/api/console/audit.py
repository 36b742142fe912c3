"""`/audit`: who did what. Admins see all of it, and the admin of an app what was done with the app and what belongs to
it."""

from datetime import datetime
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from carillon.wire import console as wire
from carillon.wire.console import ActedOn, Actor
from services.api.http import bodies, paging
from services.api.http.bodies import Checks, OneOf, Timestamp
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
_LIMITS = Checks({wire.AuditRecord: {"outcome": OneOf(tuple(ActOutcome))}})
_Shown = wire.AuditRecord[Timestamp]
_BY = Parameter(name="by", description="Only acts of this namespace.", schema={"type": "string"})


def show_record(record: AuditRecord, now: datetime) -> wire.AuditRecord[str]:
    who, on = record.who, record.on
    return wire.AuditRecord(
        id=record.id,
        at=format_instant(record.at),
        act=record.act,
        who=Actor(kind=who.kind, namespace=who.namespace, name=who.name, way=who.way, address=who.address),
        on=ActedOn(kind=on.kind, id=on.id, name=on.name, app_id=on.app_id, namespace=on.namespace),
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
        who=ADMIN, answers={HTTPStatus.OK: list[_Shown]}, parameters=(_ACT, _ON, _BY), paged=True,
        limits=_LIMITS,
    )  # fmt: skip
    async def list_audit_records(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        return await self._answer(request)

    @Route(
        "GET", "/apps/{app_id:str}/audit",
        summary="List who did what with an app and what belongs to it, the newest first.",
        who=OWN_APP, answers={HTTPStatus.OK: list[_Shown]}, parameters=(_ACT, _ON, _BY), paged=True,
        limits=_LIMITS,
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
        return bodies.answer([show_record(record, now) for record in found], headers=headers)
