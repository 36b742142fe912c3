"""`/namespaces`: which namespaces there are, for whoever has a role over them."""

import asyncio
from bisect import bisect_right
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import UNSET, Struct, UnsetType

from services.api.http import paging, wire
from services.api.http.identity import caller_of
from services.api.http.rights import KNOWN
from services.api.http.routes import Parameter, Resource, Route
from shared.domain.accounts.callers import Caller
from shared.store import Store
from shared.store.documents import Page

MOST_ON_A_PAGE = 50
COUNTED = 1_000
"""The count at which counting ends: one more stands for any number."""
_COUNTS = Parameter(
    name="counts", schema={"type": "boolean"},
    description="`false`: without how many tokens and schedules each has, which are counted for each name.",
)  # fmt: skip


class NamespaceView(Struct, frozen=True):
    """A namespace: how many tokens share it, and how many schedules it has, finished ones too. 1,001 stands for more
    than 1,000. With `?counts=false` there are no numbers."""

    namespace: str
    tokens: int | UnsetType = UNSET
    schedules: int | UnsetType = UNSET


class NamespacesResource(Resource):
    """The route that lists namespaces."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET", "/namespaces",
        summary=f"List the namespaces over which the caller has a role, by name, at most {MOST_ON_A_PAGE} a page.",
        who=KNOWN, answers={HTTPStatus.OK: list[NamespaceView]}, paged=True, parameters=(_COUNTS,),
    )  # fmt: skip
    async def list_namespaces(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked, caller = paging.read_page(request, str), caller_of(request)
        counts = paging.read_flag(request, _COUNTS.name, default=True)
        limit, after = min(asked.limit, MOST_ON_A_PAGE), asked.after or ""
        if caller.role_over_everything is None:
            names = _page_of(caller, after, limit)
        else:
            names = await self._store.namespaces.page(after=after, limit=limit)
        headers = paging.links(request, asked, names, str)
        views = await asyncio.gather(*map(self._count, names)) if counts else map(NamespaceView, names)
        return wire.answer([*views], headers=headers)

    async def _count(self, namespace: str) -> NamespaceView:
        return NamespaceView(
            namespace=namespace,
            tokens=await self._store.namespaces.count_tokens(namespace, most=COUNTED + 1),
            schedules=await self._store.schedules.count(namespace, most=COUNTED + 1),
        )


def _page_of(caller: Caller, after: str, limit: int) -> Page[str]:
    names = sorted({caller.namespace} | caller.namespaces_with_role)
    behind = names[bisect_right(names, after) :]
    page = Page(behind[:limit])
    page.more = len(behind) > limit
    return page
