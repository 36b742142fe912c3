"""`client.deliveries`: what was sent to receivers of the bus, and what came of it."""

from collections.abc import AsyncGenerator
from datetime import datetime

from msgspec import Raw

from carillon.addresses import query_of
from carillon.bus_dead_letters import BusAttempt
from carillon.calls import M, Resource, call, listing
from carillon.displays import Short
from carillon.instants import written
from carillon.paging import PAGE_SIZE


class BusDelivery(Short, frozen=True, kw_only=True):
    """One batch of `count` events for the subscription with this key; `id` is the `webhook-id` of its calls. Its
    `status` is `open`, `delivered`, `dead` or `discarded`. The first three and the last three of the `made` attempts
    are shown; `failures` of those made failed while others of the subscription succeeded. `redacted` says that excerpts
    and events are left out: the caller is a viewer."""

    id: str
    key: str
    sequence: int
    status: str
    count: int
    bytes: int
    first_at: datetime
    cut_at: datetime
    retry_at: datetime | None = None
    settled_at: datetime | None = None
    made: int
    failures: int
    attempts: tuple[BusAttempt, ...] = ()
    redacted: bool = False


class WholeBusDelivery(BusDelivery, frozen=True, kw_only=True):
    """A delivery, and its events where they were asked for: each the JSON that its receiver gets."""

    events: tuple[Raw, ...] = ()


class BusDeliveries(Resource[M]):
    """Deliveries of the caller's own subscriptions, or of another `namespace`'s over which the caller has a role. All
    methods raise `CarillonError`, and `ValueError` for an instant without a zone."""

    @listing
    def list(
        self,
        key: str,
        *,
        status: str = "",
        since: int | datetime | None = None,
        namespace: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[BusDelivery]:
        """Those of a subscription, the newest first, read page by page: in one status, behind the sequence `since`, or
        cut at this time or later. Raises `NotFound`."""
        start = written(since, "since") if isinstance(since, datetime) else "" if since is None else str(since)
        query = query_of(status=status, since=start, namespace=namespace)
        return self._list(
            list[BusDelivery], "bus", "subscriptions", key, "deliveries", query=query, limit=limit, page_size=page_size
        )

    @call
    async def get(self, id: str, *, events: bool = False, namespace: str = "") -> WholeBusDelivery:
        """A delivery, with its `events` if these are asked for. Raises `NotFound`, also (with `status` 410) where the
        log has its events no more."""
        query = query_of(events="true" if events else "", namespace=namespace)
        return await self._get(WholeBusDelivery, "bus", "deliveries", id, query=query)
