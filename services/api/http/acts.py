"""Acts: what a route does, written down before it is done and when it has ended (`shared.console.rules.audit`)."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

import msgspec
import structlog
from litestar import Response
from msgspec import Struct

from services.api.http import errors, paging
from services.api.http.errors import current_request_id, fresh_id, header_text, sole_header
from services.api.http.identity import Connection, caller_of, shown_by, way_of
from services.api.http.paging import is_dry_run
from services.api.http.rights import NAMESPACE, OnBus
from shared.accounts.rules.apps import fold_namespace
from shared.accounts.rules.callers import Caller
from shared.console.rules.audit import (
    OF_NAMESPACES,
    REASON_CHARACTERS,
    ActedOn,
    Actor,
    ActOutcome,
    AuditRecord,
    Fields,
    compare,
    ends_something,
    is_written_of_services,
    kind_of,
    outcome_of,
)
from shared.core.errors import Invalid
from shared.core.ids import read_uuid
from shared.core.instants import ns
from shared.runtime.metrics import AUDIT_RECORDS
from shared.runtime.settings import AuditSettings
from shared.runtime.tracing import TRACEPARENT, name_trace
from shared.store import Store
from shared.time import DatabaseTime

ACTS = "acts"
"""The key in the application's state that has the `Acts`."""

REASON_HEADER = "x-carillon-reason"
AGENT_CHARACTERS = 200
ID_CHARACTERS = 512
UNRECORDED = ""
"""The act of a route that is no GET and is not written down: it changes nothing, or has no caller (uploads)."""

_APP = "app_id"
_CHANGE = "change"
_NAMES = "names"
_connection: ContextVar[Connection] = ContextVar("connection")
_record: ContextVar[str] = ContextVar("record", default="")

Change = tuple[Fields, Fields]
Masks = Mapping[str, Callable[[str], str]]
Method = Callable[..., Awaitable[Response[Any]]]
log = structlog.get_logger(__name__)


class _Made(Struct):
    id: str = ""
    key: str = ""


_made = msgspec.json.Decoder(_Made)


class Acts:
    """Writes the record of an act: before it is done, and when it has ended. `demands_reasons` says that acts which end
    something are refused without one."""

    def __init__(self, store: Store, time: DatabaseTime, settings: AuditSettings) -> None:
        self._store = store
        self._time = time
        self._of_services = settings.services == "written"
        self.demands_reasons = settings.reasons == "required"

    async def begin(self, act: str, connection: Connection, masks: Masks) -> AuditRecord | None:
        """Write the begin of an act; `None` if the act has no record. If this fails, the act must not be done. `masks`
        hide parts of the path and the query in the record. Raises `Invalid` for a missing or overlong reason."""
        caller = caller_of(connection)
        if self._leaves_out(act, caller, connection):
            return None
        reason, on = self._read_reason(act, connection), _read_target(act, caller, connection, masks)
        now = await self._time.now()
        record = AuditRecord(
            id=fresh_id(ns(now)),
            at=now,
            act=act,
            who=_actor(caller, connection),
            on=on,
            via=header_text(connection.headers.get("user-agent", ""))[:AGENT_CHARACTERS],
            request_id=current_request_id(),
            trace=name_trace(sole_header(connection.scope, TRACEPARENT)),
            reason=reason,
        )
        await self._store.audit.begin(record)
        log.info(
            "act begins",
            record=record.id,
            act=act,
            on=on.id,
            app=on.app_id,
            who=caller.namespace,
            address=record.who.address,
            reason=record.reason,
        )
        return record

    def _leaves_out(self, act: str, caller: Caller, connection: Connection) -> bool:
        """Whether a service acts on its own things in a way that is too frequent for the audit."""
        if self._of_services or is_written_of_services(act) or not caller.is_service:
            return False
        return _namespace(caller, connection) == caller.namespace

    async def end(
        self, record: AuditRecord, status: int, made: str = "", name: str = "", change: Change = ({}, {})
    ) -> None:
        """Write the end of an act and its changes. If that fails, the end stays unknown."""
        outcome = outcome_of(status)
        log.info("act ended", record=record.id, on=made or record.on.id, status=status, outcome=outcome.value)
        try:
            before, after = compare(*change)
            await self._store.audit.end(
                record, outcome=outcome, status=status, made=made, name=name, before=before, after=after
            )
            AUDIT_RECORDS.labels(record.act, outcome).inc()
        except Exception as error:  # noqa: BLE001 - what was done is done, and its answer must not change
            AUDIT_RECORDS.labels(record.act, ActOutcome.UNKNOWN).inc()
            log.warning("the end of an act is not written down", record=record.id, reason=str(error))

    def _read_reason(self, act: str, connection: Connection) -> str:
        reason = reason_of(connection)
        # Routemaster's clients have no way to give one.
        may_give_one = not isinstance(connection.scope["route_handler"].opt.get("who"), OnBus)
        if self.demands_reasons and may_give_one and not reason and ends_something(act):
            raise Invalid(f"a reason is needed here: give it in the header {REASON_HEADER}", field="reason")
        return reason


def remember_request(connection: Connection) -> None:
    """Remember which request this task answers."""
    _connection.set(connection)


def note_change(before: object, after: object) -> None:
    """Note for the audit the view of a thing before and after this request; `None` if it does not exist then. Views
    contain no secrets."""
    _connection.get().scope["state"][_CHANGE] = (_fields(before), _fields(after))


def note_name(kind: str, name: str) -> None:
    """Note for the audit the display name of this request's thing of this kind."""
    _connection.get().scope["state"].setdefault(_NAMES, {})[kind] = name[:ID_CHARACTERS]


def _fields(view: object) -> Fields:
    fields: Fields = {} if view is None else msgspec.to_builtins(view)
    return fields


def current_record() -> str:
    """The id of this task's audit record; `""` if it has none."""
    return _record.get()


def record_act(act: str, method: Method, *, may_be_dry: bool, masks: Masks) -> Method:
    """The method of a route with an audit record of its act. With `may_be_dry`, a dry run does nothing and has no
    record."""

    @wraps(method)
    async def answer(*args: Any, **kwargs: Any) -> Response[Any]:
        connection = _connection.get()
        if may_be_dry and is_dry_run(connection):
            return await method(*args, **kwargs)
        acts: Acts = connection.app.state[ACTS]
        record = await acts.begin(act, connection, masks)
        if record is None:
            return await method(*args, **kwargs)
        _record.set(record.id)
        try:
            response = await method(*args, **kwargs)
        except Exception as error:
            await acts.end(record, errors.problem_of(error).status, name=_name_of(record, connection))
            raise
        made, change = "" if record.on.id else _id_of(response), connection.scope["state"].get(_CHANGE, ({}, {}))
        await acts.end(record, response.status_code or 200, made, _name_of(record, connection), change)
        return response

    return answer


def _actor(caller: Caller, connection: Connection) -> Actor:
    peer = connection.scope.get("client")
    address = peer[0] if peer else ""
    return Actor(namespace=caller.namespace, name=caller.name, way=way_of(connection), address=address)


def _read_target(act: str, caller: Caller, connection: Connection, masks: Masks) -> ActedOn:
    """The thing that the request names: the app if the act is on the app, else the first thing beside it. A thing that
    is not made yet has no id."""
    path = {name: str(value) for name, value in connection.path_params.items()}
    given = path | {name: paging.first(connection, name) for name in masks if name not in path}
    shown = {name: masks[name](value) if name in masks else value for name, value in given.items()}
    named = {name: _canonical(name, value) for name, value in shown.items()}
    app_id, kind = named.pop(_APP, ""), kind_of(act)
    return ActedOn(
        kind=kind,
        id=app_id if kind == "app" else next(iter(named.values()), ""),
        app_id=app_id,
        namespace=_namespace(caller, connection) if kind in OF_NAMESPACES else "",
    )


def _canonical(name: str, value: str) -> str:
    """The value as the handler takes it: an id has several spellings. Other text stays as typed."""
    if not name.endswith("_id"):
        return value[:ID_CHARACTERS]
    try:
        return read_uuid(value, field=name)
    except Invalid:
        return value[:ID_CHARACTERS]


def _namespace(caller: Caller, connection: Connection) -> str:
    # A client of the bus acts in its own namespace, whatever it writes into its query.
    named = "" if shown_by(connection) else paging.first(connection, NAMESPACE)[:ID_CHARACTERS]
    return fold_namespace(named) or caller.namespace


def reason_of(connection: Connection) -> str:
    reason = header_text(connection.headers.get(REASON_HEADER, "")).strip()
    if len(reason) > REASON_CHARACTERS:
        raise Invalid(f"a reason has at most {REASON_CHARACTERS:,} characters", field=REASON_HEADER)
    return reason


def _name_of(record: AuditRecord, connection: Connection) -> str:
    state = connection.scope["state"]
    before, after = state.get(_CHANGE, ({}, {}))
    known = {**before, **after}
    return str(state.get(_NAMES, {}).get(record.on.kind) or known.get("name") or known.get("email") or "")


def _id_of(response: Response[Any]) -> str:
    """The id or key of the new thing in the answer; `""` for several."""
    try:
        made = _made.decode(response.content or b"{}")
        return made.id or made.key
    except (msgspec.DecodeError, TypeError):
        return ""
