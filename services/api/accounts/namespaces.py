"""Whose schedules and dead letters a request is about: the caller's own, or those that an admin names.

A namespace is `token:` and the id of a service's token, or `user:` and a person's e-mail address.
"""

import re
from typing import Any

from litestar import Request

from services.api.http import paging
from services.api.http.identity import caller_of
from services.api.http.routes import Parameter
from shared.domain.errors import Forbidden, Invalid

NAMESPACE = Parameter(
    name="namespace",
    description="Whose: `token:<id>` or `user:<e-mail address>`; by default the caller's own. Others' for admins only.",
    schema={"type": "string", "examples": ["token:0190b5a2-0000-7000-8000-000000000000"]},
)

_NAMESPACE = re.compile(r"(token|user):[^\s\x00-\x1f\x7f]{1,300}")


def namespace_of(request: Request[Any, Any, Any]) -> str:
    """The namespace that a request is about.

    Raises:
        Forbidden: it is another's, and the caller no admin.
        Invalid: it can be nobody's.
    """
    caller, named = caller_of(request), paging.first(request, NAMESPACE.name)
    if named in {"", caller.namespace}:
        return caller.namespace
    if not caller.is_admin:
        raise Forbidden("only admins name another namespace than their own", field=NAMESPACE.name, value=named)
    if _NAMESPACE.fullmatch(named) is None:
        rule = "a namespace is token: and a token's id, or user: and an e-mail address"
        raise Invalid(rule, field=NAMESPACE.name, value=named)
    return named


def own_namespace(request: Request[Any, Any, Any]) -> str:
    """The caller's namespace, where nobody acts for another.

    Raises:
        Forbidden: the request names another.
    """
    caller, named = caller_of(request), paging.first(request, NAMESPACE.name)
    if named not in {"", caller.namespace}:
        raise Forbidden("schedules are made in the caller's own namespace", field=NAMESPACE.name, value=named)
    return caller.namespace
