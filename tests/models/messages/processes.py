"""Processes of the product on servers of the model."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, cast

from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.worker.messages.pace import Speed
from shared.core.instants import EPOCH, ms
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import KeyRing
from shared.messages.rules import pacing
from shared.providers.mail import Mail
from shared.runtime.lifecycle import Component
from shared.runtime.server_settings import ProviderSettings
from shared.runtime.settings import SchedulerSettings, Settings, WorkerSettings
from shared.time import DatabaseTime
from tests.models.messages.people import People
from tests.models.messages.provider import CALL_SECONDS, KIND, ModelKind, ModelProvider
from tests.models.simulated.database import Database
from tests.models.simulated.fixed import replaced
from tests.models.simulated.gates import GatedBroker, as_broker, gated
from tests.models.simulated.simulation import Process

BEGINNING = datetime(2030, 1, 1, 12, tzinfo=EPOCH.tzinfo)

_REMEMBERED_MESSAGES = 6
_OF_MESSAGES = {"clock", "upkeep of jobs"}
"""What of the scheduler works for jobs; the rest of it would only cost steps."""
_STEPS = (-30.0, -3.0, -0.7, 0.2, 1.5, 20.0)


class DatabaseClock:
    """The time that the database tells: the loop's, and so much more. Every process reckons by it."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.names = 1
        self._seconds = seconds
        self._ahead = 0.0

    def now(self) -> datetime:
        moment = BEGINNING + timedelta(seconds=self._seconds() + self._ahead)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def now_ns(self) -> int:
        return ms(self.now()) * 1_000_000

    @property
    def name(self) -> str:
        """Which of the database's hosts tells the time."""
        return f"host {self.names}"

    def give_way(self, chance: Random) -> None:
        """Another host tells the time from now on, by a clock of its own."""
        self.names += 1
        self._ahead = chance.choice(_STEPS)


class ModelServers:
    """What outlives every process."""

    def __init__(
        self,
        database: Database,
        people: People,
        provider: ModelProvider,
        clock: DatabaseClock,
        hear: Callable[[bytes], None],
    ) -> None:
        self.database = database
        self.people = people
        self.provider = provider
        self.clock = clock
        self.hear = hear
        self.broker = MemoryBroker()
        self.published: deque[tuple[str, bytes]] = deque(maxlen=_REMEMBERED_MESSAGES)


class _NoStream:
    """Messages do not go to Kafka."""

    async def verify(self, topics: object) -> None:
        """It is as it should be."""


def worker(process: Process, servers: ModelServers, settings: Settings) -> list[Component]:
    """All stages, behind the real consumers."""
    return build_service("worker", rooms_of(process, servers, settings))


def scheduler(process: Process, servers: ModelServers, settings: Settings) -> list[Component]:
    """The clock, for what waits for an instant, and upkeep."""
    found = build_service("scheduler", rooms_of(process, servers, settings))
    return [component for component in found if component.name in _OF_MESSAGES]


def settings_for(patience: float) -> Settings:
    """Few batches at once, and upkeep that is as patient as that."""
    return Settings(
        worker=WorkerSettings(
            lanes=1, sends_in_flight=1, plans_in_flight=1, page_batches=2, grace_seconds=0, max_batch_failure=1.0
        ),
        providers=ProviderSettings(call_seconds=CALL_SECONDS, batches_in_flight=3),
        scheduler=SchedulerSettings(tick_seconds=5, lease_seconds=30, upkeep_seconds=10, stale_seconds=patience),
    )


def rooms_of(process: Process, servers: ModelServers, settings: Settings) -> Rooms:
    """The parts of the product in one process."""
    store = servers.database.store(observe=cast(Any, partial(gated, process)))
    missing = cast(Any, None)
    kinds: Mapping[str, ModelKind] = {KIND: ModelKind(process, servers.provider)}
    return Rooms(
        Servers(
            settings,
            service="test",
            store=store,
            broker=as_broker(GatedBroker(process, servers.broker, servers.published, servers.hear)),
            stream=cast(Any, _NoStream()),
            audience=gated(process, cast(Any, servers.people), "audience"),
            blobs=missing,
            uploads=None,
            mail=Mail(),
            outgoing=missing,
            provider_outgoing=missing,
            provider_kinds=kinds,
            key_ring=KeyRing(),
            own_api=missing,
            time=DatabaseTime(store),
            clock=servers.clock,
        )
    )


@contextmanager
def shared_blocks(chance: Random) -> Iterator[None]:
    """Of accounts that are not quick, too, a worker takes as many columns as chance will have it."""

    def count(self: Speed, *_: Any) -> None:
        self.most = chance.uniform(0, 5)

    with replaced(pacing, "_LONGEST_ROW_US", 1_000_000), replaced(Speed, "count", count):
        yield


@contextmanager
def tables_of_the_model() -> Iterator[None]:
    """The tables of recipients are those of the audience that a process is given."""
    with replaced(RecipientTables, "beside", staticmethod(lambda audience: audience)):
        yield
