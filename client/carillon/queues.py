"""`client.queues`: the queues of tasks, and what lies dead in them."""

from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

from carillon.addresses import path_of, query_of
from carillon.calls import M, Resource, call, listing

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


class DeadTask(Struct, frozen=True, kw_only=True):
    """A dead message: its text, as far as it is shown, and its bytes."""

    text: str
    bytes: int


class DeadTasks(Struct, frozen=True, kw_only=True):
    """How many dead messages a queue has, and the first of them."""

    queue: str
    dead: int
    messages: tuple[DeadTask, ...]


class Returned(Struct, frozen=True, kw_only=True):
    """How many messages went back into their queue, and how many are left."""

    returned: int
    left: int = 0


class _Purged(Struct, frozen=True):
    purged: int


_page = msgspec.json.Decoder(list[Queue])
_dead = msgspec.json.Decoder(DeadTasks)
_returned = msgspec.json.Decoder(Returned)
_purged = msgspec.json.Decoder(_Purged)


class Queues(Resource[M]):
    """The queues. All methods raise `CarillonError`; those about dead messages raise `NotFound` where there is no such
    queue, and `Forbidden` for who is no admin."""

    @listing
    async def list(self) -> AsyncGenerator[Queue]:
        """All queues."""
        for queue in (await self._transport.call("GET", _EVERY)).read(_page):
            yield queue

    @call
    async def peek(self, name: str, *, limit: int | None = None) -> DeadTasks:
        """The first messages that lie dead in a queue, which stay there."""
        query = query_of(limit="" if limit is None else str(limit))
        return (await self._transport.call("GET", _dead_of(name), query=query)).read(_dead)

    @call
    async def return_dead(self, name: str, *, reason: str = "") -> Returned:
        """Put the first dead messages of a queue back into it.

        After an attempt whose answer was lost, those that it dealt with are not counted.
        """
        return (await self._transport.call("POST", f"{_dead_of(name)}/return", reason=reason)).read(_returned)

    @call
    async def purge_dead(self, name: str, *, reason: str = "") -> int:
        """Throw the dead messages of a queue away: how many. It counts as `return_dead` does."""
        return (await self._transport.call("POST", f"{_dead_of(name)}/purge", reason=reason)).read(_purged).purged


def _dead_of(name: str) -> str:
    return f"{_EVERY}{path_of(name)}/dead"
