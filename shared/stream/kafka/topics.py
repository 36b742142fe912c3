"""Find out whether a topic takes records before a producer sends any, because a producer that asks for a topic creates
it.

A broker creates topics on demand unless told otherwise, and the driver's producer always asks for that.
"""

import asyncio
import time
from collections.abc import Iterable

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import LeaderNotAvailableError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from shared.domain.clock.deliveries import Undeliverable
from shared.domain.errors import Unavailable
from shared.stream.kafka.cluster import close, connect
from shared.stream.kafka.servers import KafkaServers

_KNOWN_SECONDS = 30.0
_KNOWN = 1_000


class Topics:
    """The known topics, for 30 seconds; a missing topic is asked for each time."""

    def __init__(self, servers: KafkaServers, *, client_id: str) -> None:
        self._servers = servers
        self._client_id = f"{client_id}-topics"
        self._known: dict[str, float] = {}
        self._client: AIOKafkaClient | None = None
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def find_refused(self, names: Iterable[str]) -> dict[str, Undeliverable]:
        """The topics that are missing or closed to Carillon, and why. The caller sets the deadline; raises the driver's
        errors."""
        now = time.monotonic()
        asked = [name for name in names if self._known.get(name, 0.0) < now]
        if not asked:
            return {}
        async with self._lock:
            try:
                return await self._ask(asked)
            except BaseException:
                self._abandon()
                raise

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._known.pop(name, None)

    async def close(self) -> None:
        self._abandon()
        await asyncio.gather(*self._closing)

    def _abandon(self) -> None:
        """Close the connection without waiting: the caller may have no time left."""
        client, self._client = self._client, None
        if client is not None:
            task = asyncio.create_task(close(client))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _ask(self, names: list[str]) -> dict[str, Undeliverable]:
        if self._client is None:
            self._client = await connect(self._servers, client_id=self._client_id)
        node = self._client.get_random_node()
        if node is None:
            raise Unavailable("Kafka: no broker is known")
        reply = await self._client.send(node, MetadataRequest(names, allow_auto_topic_creation=False))
        verdicts = {topic[1]: _verdict(topic[1], topic[0]) for topic in reply.topics}
        self._remember(name for name in names if verdicts.get(name) is None)
        return {name: verdict for name, verdict in verdicts.items() if verdict is not None}

    def _remember(self, names: Iterable[str]) -> None:
        if len(self._known) > _KNOWN:
            self._known.clear()
        self._known |= dict.fromkeys(names, time.monotonic() + _KNOWN_SECONDS)


def _verdict(name: str, code: int) -> Undeliverable | None:
    error = for_code(code)
    if error in (NoError, LeaderNotAvailableError):
        return None
    if error is UnknownTopicOrPartitionError:
        return Undeliverable(f"there is no topic {name}")
    if error.retriable:
        raise error(name)
    return Undeliverable(f"topic {name}: {error.__name__}")
