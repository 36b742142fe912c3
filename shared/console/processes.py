"""The report of a process about itself: a heartbeat every five seconds (its identity, its work and its health), and its
counts of each minute every ten seconds.
"""

import hashlib
import os
import secrets
import socket
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec.structs import replace

from shared.console.rules.processes import THINGS_SHOWN, Counts, RunningProcess, ThingInHand, subtract
from shared.core.errors import Unavailable
from shared.runtime import metrics, readings
from shared.runtime.health import ProcessHealth
from shared.runtime.loops import Periodic
from shared.runtime.metrics import HEARTBEAT_FAILURES, LOOP_LAG
from shared.runtime.settings import Settings
from shared.store import Store
from shared.time import DatabaseTime

HEARTBEAT_SECONDS = 5.0
_DIGEST_CHARACTERS = 12


class Heartbeat(Periodic):
    """The component that writes heartbeats, and removes the process at a clean end. A failed beat is counted and
    repeated five seconds later."""

    def __init__(
        self, store: Store, time: DatabaseTime, health: ProcessHealth, settings: Settings, roles: tuple[str, ...]
    ) -> None:
        super().__init__("heartbeat", self.beat, interval_seconds=HEARTBEAT_SECONDS)
        self._store = store
        self._time = time
        self._health = health
        self._roles = roles
        self._host = socket.gethostname()
        self._id = f"{self._host}/{os.getpid()}/{secrets.token_hex(4)}"
        self._version = readings.program_version()
        self._digest = digest_settings(settings)
        self._lags: dict[str, int] = {}
        self._started_at: datetime | None = None

    async def beat(self) -> None:
        try:
            await self._store.processes.tell(await self._look())
        except Unavailable:
            HEARTBEAT_FAILURES.inc()

    async def stop(self) -> None:
        await super().stop()
        with suppress(Unavailable):
            await self._store.processes.forget(self._id)

    async def _look(self) -> RunningProcess:
        now = await self._time.now()
        self._started_at = self._started_at or now
        return RunningProcess(
            id=self._id,
            roles=self._roles,
            host=self._host,
            version=self._version,
            started_at=self._started_at,
            seen_at=now,
            phase=self._health.phase,
            settings_digest=self._digest,
            failing=tuple(sorted(await self._health.find_failing())),
            in_hand=tuple(
                ThingInHand(held.what, held.id, now - timedelta(seconds=held.seconds))
                for held in readings.oldest(THINGS_SHOWN)
            ),
            in_hand_count=readings.held_count(),
            lanes={state: int(count) for state, count in readings.read_by_label("carillon_lanes", "state").items()},
            loop_lag_seconds=self._worst_lag(),
            memory_bytes=readings.read_memory_bytes(),
            clock_skew_seconds=round(readings.read_gauge("carillon_clock_skew_seconds"), 3),
            feedback_lag_records=int(readings.read_gauge("carillon_feedback_lag_records")),
            oldest_visible_seconds=round(readings.read_gauge("carillon_oldest_visible_seconds"), 3),
            oldest_batch_seconds=round(readings.read_gauge("carillon_batch_oldest_queued_seconds"), 3),
            occurrences_pending=int(readings.read_gauge("carillon_occurrences_pending")),
        )

    def _worst_lag(self) -> float:
        """The upper bound, in seconds, of the highest bucket of lags that has grown since the last look."""
        lags, before = readings.count_buckets(LOOP_LAG), self._lags
        self._lags = lags
        grown = [bound for bound, seen in lags.items() if seen > before.get(bound, 0)]
        return float(grown[-1]) / 1_000_000 if grown else 0.0


def digest_settings(settings: Settings) -> str:
    """A digest that is equal for processes with equal settings, except listening addresses and logs. Secrets are masked
    first, so that the digest does not help to guess them."""
    own = Settings()
    api = replace(settings.api, host=own.api.host, port=own.api.port)
    alike = replace(settings, api=api, health=own.health, logs=own.logs, embedded=own.embedded)
    text = "\n".join(repr(section) for section in alike.sections().values())
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


MINUTES_SECONDS = 10.0


class MinuteCounting(Periodic):
    """The component that counts. Counts that cannot be stored are added to the next ones; a process that ends stores
    its last ones."""

    def __init__(self, store: Store, time: DatabaseTime) -> None:
        super().__init__("minutes", self.store_counts, interval_seconds=MINUTES_SECONDS)
        self._store = store
        self._time = time
        self._stored: Counts = read_counts()

    async def store_counts(self) -> None:
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
        "server_errors": readings.count_by(metrics.HTTP_REQUESTS, lambda labels: labels["status"][0]).get("5", 0),
        "feedback": readings.count(metrics.FEEDBACK_RECORDS),
    }
