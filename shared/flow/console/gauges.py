"""Gauges of the whole deployment: open jobs, and messages in queues. Schedulers read them for `/metrics`."""

import asyncio

from shared.broker import Broker
from shared.runtime.metrics import JOBS_OPEN, QUEUE_MESSAGES
from shared.store import Store

INTERVAL_SECONDS = 15.0
"""The usual interval of Prometheus."""


class Gauges:
    """Sets these gauges."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def read_once(self) -> None:
        """Read each gauge once. A gauge that cannot be read is empty rather than old."""
        await asyncio.gather(self._show_jobs(), self._show_queues())

    async def _show_jobs(self) -> None:
        try:
            counts = await self._store.job_lists.count_open()
        finally:
            JOBS_OPEN.clear()
        for status, count in counts.items():
            JOBS_OPEN.labels(status).set(count)

    async def _show_queues(self) -> None:
        try:
            queues = await self._broker.list_queues()
        finally:
            QUEUE_MESSAGES.clear()
        for queue in queues:
            for state in ("ready", "unacked"):
                QUEUE_MESSAGES.labels(queue.name, state).set(getattr(queue, state))
