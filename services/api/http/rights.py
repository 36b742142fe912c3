"""The rights that a route asks of its callers. Each route names one of the values here, and `permit`, the guard of
every route, holds the caller against it."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import assert_never

from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from msgspec import Struct

from services.api.http import paging
from services.api.http.errors import BasicNeeded
from services.api.http.identity import Connection, caller_of, first_of
from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import Caller
from shared.core.errors import Forbidden
from shared.core.ids import read_uuid
from shared.runtime.metrics import REQUESTS_REFUSED

NAMESPACE = "namespace"
"""The query parameter that names a namespace."""

_ROLE_HELD = "role"


class Of(Enum):
    """The things that a role is held over."""

    APP = "app"
    """The app in the path."""

    NAMESPACE = "namespace"
    """The namespace that `?namespace=` names, or the caller's own."""

    EVERYTHING = "everything"
    """All apps and namespaces that there are and will be: a role over `*`."""

    DEPLOYMENT = "deployment"
    """The deployment itself: only its admins."""


class Anyone(Enum):
    EVERYBODY = "everybody"
    KNOWN = "every known caller"


class May(Struct, frozen=True):
    """Needs this role, or one that covers it."""

    role: Role
    of: Of


class OnBus(Enum):
    """Whom one of Routemaster's routes takes, who shows a token by basic auth: a client of the bus, its root (the
    deployment's `bus.root_key`, or an admin's token), or either."""

    CLIENT = "client"
    ROOT = "root"
    EITHER = "either"


Who = Anyone | May | OnBus

EVERYBODY, KNOWN = Anyone.EVERYBODY, Anyone.KNOWN
VIEW_APP, OPERATE_APP, OWN_APP = (May(role, Of.APP) for role in Role)
VIEW_NAMESPACE, OPERATE_NAMESPACE, OWN_NAMESPACE = (May(role, Of.NAMESPACE) for role in Role)
VIEW_ALL = May(Role.VIEWER, Of.EVERYTHING)
ADMIN = May(Role.ADMIN, Of.DEPLOYMENT)


_WITHOUT_ROLE = {
    Of.APP: "you need the role {} for this app",
    Of.NAMESPACE: "naming another namespace needs the role {} over it",
    Of.EVERYTHING: "this shows the whole deployment: it needs the role {} over *",
    Of.DEPLOYMENT: "only admins may do this",
}


async def permit(connection: Connection, handler: BaseRouteHandler) -> None:
    """The guard of every route. A coroutine, because Litestar runs other guards in a thread. Raises `Unauthorized`,
    `Forbidden`, and `Invalid` for the malformed id of an app."""
    who: Who = handler.opt["who"]
    if who is EVERYBODY:
        return
    caller = caller_of(connection)
    if isinstance(who, OnBus):
        _require_credential(caller, who)
    if isinstance(who, May):
        held = _find_role(caller, connection, who.of)
        _require(held, who)
        connection.scope["state"][_ROLE_HELD] = held


def sees_personal_data(connection: Connection) -> bool:
    """Whether the caller, who has a role over the request's subject, may see payloads, contexts and similar data."""
    held: Role = connection.scope["state"][_ROLE_HELD]
    return held.covers(Role.OPERATOR)


def protected_paths(handlers: Iterable[HTTPRouteHandler]) -> frozenset[str]:
    """The first parts of all paths with a route that is neither for everybody nor Routemaster's."""
    return _first_parts(handlers, lambda who: who is not EVERYBODY and not isinstance(who, OnBus))


def basic_paths(handlers: Iterable[HTTPRouteHandler]) -> frozenset[str]:
    """The first parts of all paths whose callers show a token by basic auth."""
    return _first_parts(handlers, lambda who: isinstance(who, OnBus))


def _first_parts(handlers: Iterable[HTTPRouteHandler], is_meant: Callable[[Who], bool]) -> frozenset[str]:
    return frozenset(first_of(path) for handler in handlers for path in handler.paths if is_meant(handler.opt["who"]))


def _require_credential(caller: Caller, who: OnBus) -> None:
    if who is OnBus.EITHER or caller.is_admin == (who is OnBus.ROOT):
        return
    REQUESTS_REFUSED.labels("role").inc()
    needed = "the bus's root" if who is OnBus.ROOT else "a client of the bus, not its root,"
    raise BasicNeeded(f"only {needed} may do this")


def _find_role(caller: Caller, connection: Connection, of: Of) -> Role | None:
    if caller.is_admin:
        return Role.ADMIN
    match of:
        case Of.APP:
            return caller.role_over_app(read_uuid(connection.path_params["app_id"], field="appId"))
        case Of.NAMESPACE:
            return caller.role_over_namespace(paging.first(connection, NAMESPACE) or caller.namespace)
        case Of.EVERYTHING:
            return caller.role_over_everything
        case Of.DEPLOYMENT:
            return None
        case _:
            assert_never(of)


def _require(held: Role | None, needed: May) -> None:
    if held is None or not held.covers(needed.role):
        REQUESTS_REFUSED.labels("role").inc()
    if held is None:
        raise Forbidden(
            _WITHOUT_ROLE[needed.of].format(needed.role), field=NAMESPACE if needed.of is Of.NAMESPACE else None
        )
    if not held.covers(needed.role):
        raise Forbidden(f"this needs the role {needed.role} over the {needed.of.value}: yours is {held}")
