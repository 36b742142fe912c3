"""The registry at hand: who collects what, as this process knows it. A flush tells when it is out of date."""

from shared.domain.bus.folding import Collectors
from shared.runtime.metrics import BUS_UNREADABLE
from shared.store import Store
from shared.store.bus.subscriptions import UnreadableSubscriptions


class Registry:
    """Those who collect events, read from the store: all of them first, then what has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.collectors = Collectors()

    async def refresh(self) -> None:
        """Read what has changed. Raises `Unavailable`, and `UnreadableSubscriptions`, after which it is as it was."""
        try:
            reading = await self._store.bus_subscriptions.read_since(self.collectors.version)
        except UnreadableSubscriptions as error:
            BUS_UNREADABLE.set(len(error.ids))
            raise
        BUS_UNREADABLE.set(0)
        self.collectors.learn(reading.version, reading.changed, is_whole=reading.whole)
