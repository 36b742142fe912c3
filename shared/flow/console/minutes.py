"""Counting minutes: add what this process has done to the minutes, every ten seconds."""

from shared.domain.console.minutes import Counts, subtract
from shared.domain.errors import Unavailable
from shared.flow.time import DatabaseTime
from shared.runtime import metrics, readings
from shared.runtime.loops import Periodic
from shared.store import Store

SECONDS = 10.0


class MinuteCounting(Periodic):
    """The component that counts. Counts that cannot be stored are added to the next ones; a process that ends stores
    its last ones."""

    def __init__(self, store: Store, time: DatabaseTime) -> None:
        super().__init__("minutes", self.store_counts, interval_seconds=SECONDS)
        self._store = store
        self._time = time
        self._stored: Counts = read_counts()

    async def store_counts(self) -> None:
        """Add the growth since the last time."""
        counts = read_counts()
        grown = subtract(counts, self._stored)
        if not grown:
            return
        try:
            await self._store.minutes.add(await self._time.now(), grown)
        except Unavailable:
            metrics.HEARTBEAT_FAILURES.inc()
            return
        self._stored = counts

    async def stop(self) -> None:
        await super().stop()
        await self.store_counts()


def read_counts() -> Counts:
    """The counts of this process since it began, in the fields of a minute."""
    return {
        "recipients": readings.count_by(metrics.RECIPIENTS, lambda labels: labels["outcome"]),
        "messages": readings.count_by(metrics.PROVIDER_CALLS, lambda labels: labels["outcome"]),
        "deliveries": readings.count_by(metrics.BUS_DELIVERIES, lambda labels: labels["outcome"]),
        "fired": readings.count_by(metrics.FIRED, lambda labels: f"{labels['callback']}/{labels['outcome']}"),
        "lateness": readings.count_buckets(metrics.LATENESS),
        "retries": readings.count(metrics.RETRIES),
        "dead_letters": readings.count(metrics.DEAD),
        "requests": readings.count(metrics.HTTP_REQUESTS),
        "server_errors": readings.count_by(metrics.HTTP_REQUESTS, _server_error).get("5xx", 0),
        "feedback": readings.count(metrics.FEEDBACK_RECORDS),
    }


def _server_error(labels: readings.Labels) -> str:
    return "5xx" if labels["status"].startswith("5") else ""
