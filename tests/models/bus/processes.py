"""Processes of the product on servers of the model."""

from collections import deque
from functools import partial
from random import Random
from typing import Any, cast

from services.wiring.process import build_service
from services.wiring.rooms import BusRoom, Rooms
from services.wiring.servers import Servers
from services.wiring.workers import bus_stages
from services.worker.consumer import Workers
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import KeyRing
from shared.providers.mail import Mail
from shared.runtime.bus_settings import BusSettings
from shared.runtime.lifecycle import Component
from shared.runtime.settings import SchedulerSettings, Settings
from shared.time import DatabaseTime
from tests.models.bus.event_log import PARTITIONS, EventLog, EventLogStream
from tests.models.bus.receivers import CALL_SECONDS, ModelOutgoing, ReceiverCalls
from tests.models.push.processes import ModelClock
from tests.models.simulated.database import Database
from tests.models.simulated.gates import GatedBroker, as_broker, gated
from tests.models.simulated.simulation import Process

TOPIC = "carillon.bus"
SETTINGS = Settings(
    bus=BusSettings(
        log_topic=TOPIC,
        log_partitions=PARTITIONS,
        call_seconds=CALL_SECONDS,
        calls_in_flight=3,
        slow_calls_in_flight=2,
        max_backoff_ms=20_000,
    ),
    scheduler=SchedulerSettings(tick_seconds=2, lease_seconds=10, call_lease_seconds=15),
)

_REMEMBERED_MESSAGES = 6
_OF_THE_BUS = {"fanout", "clock", "upkeep of unwoken queues", "retention of the bus"}
"""What moves events in the fan-out and the scheduler; the rest of them would only cost steps."""


class BusServers:
    """What outlives every process."""

    def __init__(self, database: Database, clock: ModelClock, receivers: ReceiverCalls, chance: Random) -> None:
        self.database = database
        self.clock = clock
        self.receivers = receivers
        self.event_log = EventLog(TOPIC, chance)
        self.broker = MemoryBroker()
        self.published: deque[tuple[str, bytes]] = deque(maxlen=_REMEMBERED_MESSAGES)


def components(process: Process, servers: BusServers) -> list[Component]:
    """The components of a process, by its name: `worker a`, `scheduler b`, `feedback-bus a`."""
    kind = process.name.partition(" ")[0]
    rooms = _rooms(process, servers)
    if kind == "worker":
        given = rooms.servers
        return [Workers(given.broker, bus_stages(rooms), name=process.name, verify=given.stream.verify)]
    found = build_service(kind, rooms)
    return [component for component in found if component.name in _OF_THE_BUS]


def bus(process: Process, servers: BusServers) -> BusRoom:
    """What the API does for users and publishers of the bus."""
    return _rooms(process, servers).bus


def _rooms(process: Process, servers: BusServers) -> Rooms:
    store = servers.database.store(observe=cast(Any, partial(gated, process)))
    missing = cast(Any, None)
    given = Servers(
        SETTINGS,
        service="test",
        store=store,
        broker=as_broker(GatedBroker(process, servers.broker, servers.published, lambda _: None)),
        stream=EventLogStream(servers.event_log, process),
        audience=missing,
        blobs=missing,
        uploads=None,
        mail=Mail(),
        outgoing=missing,
        provider_outgoing=missing,
        provider_kinds={},
        bus_outgoing=ModelOutgoing(process, servers.receivers),
        slow_bus_outgoing=ModelOutgoing(process, servers.receivers),
        key_ring=KeyRing(),
        own_api=missing,
        time=DatabaseTime(store),
        clock=servers.clock,
    )
    return Rooms(given)
