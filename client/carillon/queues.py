"""`client.queues`: the queues of tasks."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from carillon.calls import M, Resource, listing


class Queue(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue: messages that are `ready` and in workers' hands (`unacked`); messages a second."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


class Queues(Resource[M]):
    """The queues. All methods raise `CarillonError`."""

    @listing
    async def list(self) -> AsyncGenerator[Queue]:
        """All queues."""
        for queue in await self._get(list[Queue], "queues"):
            yield queue
