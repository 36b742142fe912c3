"""Whose schedules, dead letters and subscriptions a request is about: the caller's own, or another's over which the
caller has a role.

A namespace is `token:` and the id of a service's token, or `user:` and a person's e-mail address.
"""

from typing import Any

from litestar import Request

from services.api.http import paging, rights
from services.api.http.identity import caller_of
from services.api.http.rights import Of
from services.api.http.routes import Parameter
from shared.domain.accounts.roles import EVERYWHERE, fold_namespace, read_namespace
from shared.domain.errors import Forbidden

NAMESPACE = Parameter(
    name=rights.NAMESPACE,
    description="Whose: `token:<id>` or `user:<e-mail address>`; by default the caller's own. Another's needs a role.",
    schema={"type": "string", "examples": ["token:0190b5a2-0000-7000-8000-000000000000"]},
)

NAMESPACES = Parameter(
    name=rights.NAMESPACE,
    description=f"{NAMESPACE.description} `*` stands for all, and needs a role everywhere.",
    schema=NAMESPACE.schema,
)

CALLERS_NAMESPACE = Parameter(
    name=rights.NAMESPACE,
    description="The caller's namespace, in which things are made. Another one is refused.",
    schema=NAMESPACE.schema,
)


def namespaces_of(request: Request[Any, Any, Any]) -> str:
    """The namespace that a request looks at, `""` for all. Raises `Invalid` as `namespace_of`."""
    return "" if paging.first(request, NAMESPACE.name) == EVERYWHERE else namespace_of(request)


def namespace_of(request: Request[Any, Any, Any]) -> str:
    """The namespace that a request is about. The route's guard has seen that the caller has a role over it."""
    assert request.route_handler.opt["who"].of is Of.NAMESPACE
    named = paging.first(request, NAMESPACE.name)
    if not named:
        return caller_of(request).namespace
    return read_namespace(named, field=NAMESPACE.name)


def own_namespace(request: Request[Any, Any, Any]) -> str:
    """The caller's namespace. Raises `Forbidden` if the request names another."""
    caller, named = caller_of(request), paging.first(request, NAMESPACE.name)
    if fold_namespace(named) not in {"", caller.namespace}:
        raise Forbidden("things are made in the caller's own namespace alone", field=NAMESPACE.name, value=named)
    return caller.namespace
