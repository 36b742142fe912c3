"""`client.queues`: the queues of tasks, and what lies dead in them."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from msgspec import Struct

from carillon.addresses import path_of
from carillon.calls import M, Resource, call, listing
from carillon.paging import PAGE_SIZE, items

_EVERY = "/queues"


class Queue(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue: messages that are `ready`, in workers' hands (`unacked`) and `dead`; messages a second."""

    name: str
    ready: int
    unacked: int
    consumers: int
    dead: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


_page = msgspec.json.Decoder(list[Queue])
_dead = msgspec.json.Decoder(list[dict[str, Any]])
_result = msgspec.json.Decoder(dict[str, Any])


class Queues(Resource[M]):
    """The queues. All methods raise `CarillonError`; those about dead messages raise `Forbidden` for who is no admin,
    and answer as the API does: what stands in a message depends on its queue."""

    @listing
    def list(self) -> AsyncGenerator[Queue]:
        """All queues."""
        return items(self._transport, _EVERY, {}, _page)

    @listing
    def peek(
        self, name: str, *, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[dict[str, Any]]:
        """The messages that lie dead in a queue, which stay there."""
        return items(self._transport, _dead_of(name), {}, _dead, limit=limit, page_size=page_size)

    @call
    async def return_dead(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Put the dead messages of a queue back into it.

        After an attempt whose answer was lost, those that it dealt with are not counted.
        """
        return (await self._transport.call("POST", f"{_dead_of(name)}/return", reason=reason)).read(_result)

    @call
    async def purge_dead(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Throw the dead messages of a queue away. It counts as `return_dead` does."""
        return (await self._transport.call("POST", f"{_dead_of(name)}/purge", reason=reason)).read(_result)


def _dead_of(name: str) -> str:
    return f"{_EVERY}{path_of(name)}/dead"
