"""Acts: what a route does, written down before it is done and when it has ended (`shared.domain.console.audit`)."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

import msgspec
import structlog
from litestar import Response
from msgspec import Struct

from services.api.http import errors, paging
from services.api.http.identity import Connection, caller_of
from services.api.http.ids import fresh_id
from shared.domain.accounts.callers import Caller
from shared.domain.console.audit import (
    REASON_CHARACTERS,
    ActedOn,
    Actor,
    AuditRecord,
    is_written,
    kind_of,
    outcome_of,
)
from shared.domain.errors import Invalid, Unavailable
from shared.domain.instants import ns
from shared.flow.time import DatabaseTime
from shared.runtime.settings import AuditSettings
from shared.store import Store

ACTS = "acts"
"""The key in the application's state for the one who writes them down."""

REASON_HEADER = "x-carillon-reason"
AGENT_CHARACTERS = 200
NOTHING = ""
"""The act of a route that changes nothing though it is no GET."""

_APP = "app_id"
_connection: ContextVar[Connection] = ContextVar("connection")

Answering = Callable[..., Awaitable[Response[Any]]]
log = structlog.get_logger(__name__)


class _Made(Struct):
    id: str = ""


_made = msgspec.json.Decoder(_Made)


class Acts:
    """Writes acts down."""

    def __init__(self, store: Store, time: DatabaseTime, settings: AuditSettings) -> None:
        self._store = store
        self._time = time
        self._of_services = settings.services == "written"

    async def begin(self, act: str, connection: Connection) -> AuditRecord | None:
        """Write down that an act begins; `None` for one that is not written down. Raises `Unavailable`: then it must
        not be done."""
        caller = caller_of(connection)
        if not is_written(act, by_service=caller.is_service, of_services=self._of_services):
            return None
        now = await self._time.now()
        record = AuditRecord(
            id=fresh_id(ns(now)),
            at=now,
            act=act,
            who=_actor(caller, connection),
            on=_on(act, caller, connection),
            via=connection.headers.get("user-agent", "")[:AGENT_CHARACTERS],
            reason=_reason(connection),
        )
        await self._store.audit.begin(record)
        return record

    async def end(self, record: AuditRecord, status: int, made: str = "") -> None:
        """Write down how it ended. Where that cannot be, its end stays unknown."""
        outcome = outcome_of(status)
        log.info("act", act=record.act, on=made or record.on.id, who=record.who.namespace, outcome=outcome.value)
        try:
            await self._store.audit.end(record.id, outcome=outcome, status=status, made=made)
        except Unavailable as error:
            log.warning("the end of an act is not written down", record=record.id, reason=str(error))


def enter(connection: Connection) -> None:
    """Remember which request this task answers."""
    _connection.set(connection)


def written_down(act: str, answering: Answering) -> Answering:
    """The same method of a route, whose act is written down around it."""

    @wraps(answering)
    async def answer(*args: Any, **kwargs: Any) -> Response[Any]:
        connection = _connection.get()
        acts: Acts = connection.app.state[ACTS]
        record = await acts.begin(act, connection)
        if record is None:
            return await answering(*args, **kwargs)
        try:
            response = await answering(*args, **kwargs)
        except Exception as error:
            await acts.end(record, errors.problem_of(error).status)
            raise
        await acts.end(record, response.status_code or 200, "" if record.on.id else _id_of(response))
        return response

    return answer


def _actor(caller: Caller, connection: Connection) -> Actor:
    peer = connection.scope.get("client")
    way = "token" if caller.is_service else "proxy"
    return Actor(namespace=caller.namespace, name=caller.name, way=way, address=peer[0] if peer else "")


def _on(act: str, caller: Caller, connection: Connection) -> ActedOn:
    """What the path names last, or what is not made yet."""
    named = {name: str(value) for name, value in connection.path_params.items()}
    app_id = named.pop(_APP, "")
    kind = kind_of(act)
    return ActedOn(
        kind=kind,
        id=app_id if kind == "app" else next(iter(named.values()), ""),
        app_id=app_id,
        namespace="" if app_id else paging.first(connection, "namespace") or caller.namespace,
    )


def _reason(connection: Connection) -> str:
    reason = connection.headers.get(REASON_HEADER, "")
    if len(reason) > REASON_CHARACTERS:
        raise Invalid(f"a reason has at most {REASON_CHARACTERS:,} characters", field=REASON_HEADER)
    return reason


def _id_of(response: Response[Any]) -> str:
    """The id of what was made, as the answer tells it."""
    try:
        return _made.decode(response.content or b"{}").id
    except (msgspec.DecodeError, TypeError):
        return ""
