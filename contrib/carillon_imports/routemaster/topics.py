"""Importing owners of topics. A topic without an owner here counts as missing."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from carillon_imports.kinds import ImportedKind, Reasons
from carillon_imports.routemaster.clients import Clients
from carillon_imports.routemaster.source import TopicRow
from shared.domain.bus.topics import check_published_name, is_own
from shared.domain.errors import Conflict, Forbidden
from shared.flow.bus.topics import TopicFlow
from shared.store import Store


class TopicOwner(Struct, frozen=True):
    """A topic, whose name is `id`, and the namespace that may publish on it."""

    id: str
    owner: str


class TopicsKind(ImportedKind[TopicRow, TopicOwner]):
    """Imports topics. A namespace owns at most `most` of them."""

    name = "topics"

    def __init__(self, store: Store, clients: Clients, topics: TopicFlow, *, most: int) -> None:
        self._store = store
        self._clients = clients
        self._topics = topics
        self._most = most
        self._room: dict[str, int] = {}

    def label(self, row: TopicRow) -> str:
        return row.id

    def shown_id(self, row: TopicRow) -> str:
        """Its owner, because the label is its name."""
        return f"of {self._clients.name_of(row.publisher)}"

    def read(self, row: TopicRow) -> TopicOwner:
        check_published_name(row.id, field="name")
        if is_own(row.id):
            raise Conflict("Carillon alone publishes on it here")
        return TopicOwner(row.id, self._clients.namespace_of(row.publisher))

    async def here(self, ids: Sequence[str]) -> dict[str, TopicOwner]:
        found = await self._store.bus_topics.with_names(ids)
        return {name: TopicOwner(name, topic.owner) for name, topic in found.items() if topic.owner}

    async def find_refused(self, new: Sequence[TopicOwner]) -> Reasons:
        reason = f"its publisher owns {self._most:,} topics here"
        return {topic.id: reason for topic in new if await self._is_full(topic)}

    async def add(self, new: Sequence[TopicOwner]) -> Reasons:
        reasons: Reasons = {}
        for topic in new:
            try:
                await self._topics.claim(topic.id, topic.owner)
            except Forbidden as error:
                reasons[topic.id] = error.reason
        return reasons

    async def replace(self, here: TopicOwner, there: TopicOwner) -> bool:
        stands = await self._store.bus_topics.get(here.id)
        if stands is None or stands.owner != here.owner or stands.private:
            return False
        now = await self._store.now()
        return await self._store.bus_topics.replace(stands, replace(stands, owner=there.owner), now=now)

    async def _is_full(self, topic: TopicOwner) -> bool:
        """Whether the owner has its most topics, including the earlier ones of this import."""
        if topic.owner not in self._room:
            self._room[topic.owner] = self._most - await self._store.bus_topics.count_owned(topic.owner)
        self._room[topic.owner] -= 1
        return self._room[topic.owner] < 0
