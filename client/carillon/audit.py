"""`client.audit`: who did what."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from carillon.addresses import query_of
from carillon.calls import M, Resource, listing
from carillon.displays import Short
from carillon.paging import PAGE_SIZE


class Actor(Struct, frozen=True, kw_only=True):
    """The caller who did it: a `user` or a `token`, how they proved who they are (`token` or `proxy`), and the address
    they came from. Or it was `system`, Carillon by itself: then `name` is the role of the process."""

    namespace: str
    name: str
    way: str
    address: str
    kind: str = ""


class ActedOn(Struct, frozen=True, kw_only=True, rename="camel"):
    """The thing that an act was about: its `name`, where one is known, and the app or the namespace that it belongs
    to."""

    kind: str
    id: str
    app_id: str
    namespace: str
    name: str = ""


class AuditRecord(Short, frozen=True, kw_only=True, rename="camel"):
    """An act, `job.stop` for instance. `outcome` is `begun`, `done`, `refused`, `failed` or `unknown`; `status` that of
    the answer, 0 until there is one; `via` the caller's program; `reason` what they gave. `request_id` is what the
    answer bore in `X-Request-Id`, `trace` the id of the request's trace. `count` is how many things an act on many was
    done to; `before` and `after` have what it changed, by field, as far as the audit keeps that."""

    id: str
    at: datetime
    act: str
    who: Actor
    on: ActedOn
    via: str
    reason: str
    outcome: str
    status: int
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    count: int = 0
    request_id: str = ""
    trace: str = ""


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
    ) -> AsyncGenerator[AuditRecord]:
        """The recorded acts, the newest first, or only this `act`, `on` the thing with this id or key, `by` this
        namespace. With `app_id`, the acts on the app and on the things that belong to it; its admin may see them."""
        path = ("apps", app_id, "audit") if app_id else ("audit",)
        query = query_of(act=act, on=on, by=by)
        return self._list(list[AuditRecord], *path, query=query, limit=limit, page_size=page_size)
