"""`client.bus_dead_letters`: events that no receiver has taken, to be delivered again or given up."""

from collections.abc import AsyncGenerator
from datetime import datetime

from msgspec import Raw, Struct

from carillon.addresses import query_of
from carillon.calls import GONE, M, Resource, call, listing
from carillon.displays import Short
from carillon.encoding import encode
from carillon.paging import PAGE_SIZE


class BusAttempt(Struct, frozen=True, kw_only=True):
    """One call of a receiver, which took so many `ms`: the `status` of its answer, or 0 and the `error`; `excerpt` is
    the beginning of the answer's body."""

    at: datetime
    ms: int
    status: int
    error: str
    excerpt: str


class BusDeadLetter(Short, frozen=True, kw_only=True):
    """Events that nobody has taken; `id` is their delivery's. `reason` is `attempts`, `age` or `backlog`: in the last
    case there is no delivery, and a retry replays the events while the log has them; where it is not known in which log
    they lie, nothing `can_be_retried`. The first three and the last three of the `made` attempts are shown. `redacted`
    says that excerpts and events are left out: the caller is a viewer.
    """

    id: str
    namespace: str
    key: str
    reason: str
    died_at: datetime
    count: int
    bytes: int
    first_at: datetime
    last_at: datetime | None = None
    made: int
    attempts: tuple[BusAttempt, ...] = ()
    can_be_retried: bool
    redacted: bool = False


class WholeBusDeadLetter(BusDeadLetter, frozen=True, kw_only=True):
    """A dead letter with its events: each the JSON that its receiver would have got."""

    events: tuple[Raw, ...] = ()


class BusRetried(Struct, frozen=True):
    """How many deliveries are open again. If there are `more`, ask again."""

    retried: int
    more: bool


class BusDeadLetters(Resource[M]):
    """The caller's own, or those of another `namespace` over which the caller has a role. All methods raise
    `CarillonError`."""

    @listing
    def list(
        self, *, key: str = "", namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[BusDeadLetter]:
        """All of them, or those of one key, the newest first; read page by page."""
        query = query_of(key=key, namespace=namespace)
        return self._list(list[BusDeadLetter], "bus", "dead-letters", query=query, limit=limit, page_size=page_size)

    @call
    async def get(self, id: str, *, namespace: str = "") -> WholeBusDeadLetter:
        """A dead letter with its events. Raises `NotFound`."""
        return await self._get(WholeBusDeadLetter, "bus", "dead-letters", id, query=query_of(namespace=namespace))

    @call
    async def retry(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Deliver one again, with the id that it had. Raises `NotFound`, `Conflict` if that cannot be."""
        query = query_of(namespace=namespace)
        await self._call("POST", "bus", "dead-letters", id, "retry", query=query, reason=reason, done_before=GONE)

    @call
    async def retry_all(self, *, key: str | None = None, namespace: str = "", reason: str = "") -> BusRetried:
        """Deliver them again, or those of one key: about 500 a call. None is delivered twice by it; but after an
        attempt whose answer was lost, those that it dealt with are not counted."""
        content = encode({} if key is None else {"key": key})
        query = query_of(namespace=namespace)
        return await self._post(BusRetried, "bus", "dead-letters", "retry", query=query, content=content, reason=reason)

    @call
    async def discard(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Give one up. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        await self._call("POST", "bus", "dead-letters", id, "discard", query=query, reason=reason, done_before=GONE)
