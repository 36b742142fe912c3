"""Gauges of what belongs to no process: open jobs, and messages in queues. Schedulers read them for `/metrics`."""

from shared.broker import Broker
from shared.runtime.metrics import JOBS_OPEN, QUEUE_MESSAGES
from shared.store import Store

INTERVAL_SECONDS = 15.0
"""As often as Prometheus usually looks."""


class Gauges:
    """Reads what stands now."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def read_once(self) -> None:
        """Read each gauge once. Raises `Unavailable`: what cannot be read is not shown, rather than an old value."""
        JOBS_OPEN.clear()
        QUEUE_MESSAGES.clear()
        for status, count in (await self._store.job_lists.count_open()).items():
            JOBS_OPEN.labels(status).set(count)
        for queue in await self._broker.list_queues():
            for state in ("ready", "unacked", "dead"):
                QUEUE_MESSAGES.labels(queue.name, state).set(getattr(queue, state))
