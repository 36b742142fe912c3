"""Processes of the product on servers of the model."""

from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from services.wiring.process import build_service
from services.wiring.rooms import JobsRoom, Rooms
from services.wiring.servers import Servers
from shared.core.instants import EPOCH, ms
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.providers.mail import Mail
from shared.runtime.lifecycle import Component
from shared.runtime.server_settings import MailSettings, StreamSettings
from shared.runtime.settings import FeedbackSettings, SchedulerSettings, Settings, WorkerSettings
from shared.time import DatabaseTime
from tests.models.push.devices import MOST_RECORD_BYTES, PushTable, as_audience
from tests.models.push.receivers import MAIL_DOMAIN, Mailbox, Receiver
from tests.models.push.stream import ModelStream
from tests.models.push.transactions import Kafka
from tests.models.push.weather import Weather
from tests.models.simulated.database import Database
from tests.models.simulated.gates import GatedBroker, as_broker, gated
from tests.models.simulated.simulation import Process

BATCH_SIZE = 2
TRANSACTION_SECONDS = 30.0
MARGIN_SECONDS = 10.0
MOST_FAILED = 0.3
BEGINNING = datetime(2030, 1, 1, 12, tzinfo=EPOCH.tzinfo)

_REMEMBERED_MESSAGES = 6
_LOOK_SECONDS = 5.0
_OF_PUSH = {"clock", "upkeep of jobs"}
"""What of the scheduler works for jobs; the rest of it would only cost steps."""


class ModelClock:
    """The time of day, which is the loop's."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def now(self) -> datetime:
        moment = BEGINNING + timedelta(seconds=self._seconds())
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def now_ns(self) -> int:
        return ms(self.now()) * 1_000_000


class ModelServers:
    """What outlives every process."""

    def __init__(
        self, database: Database, devices: PushTable, clock: ModelClock, hear: Callable[[bytes], None]
    ) -> None:
        self.database = database
        self.devices = devices
        self.clock = clock
        self.hear = hear
        self.broker = MemoryBroker()
        self.published: deque[tuple[str, bytes]] = deque(maxlen=_REMEMBERED_MESSAGES)
        self.kafka = Kafka(timeout=TRANSACTION_SECONDS)
        self.receiver = Receiver(self.kafka)
        self.letters = Counter[str]()


def worker(process: Process, servers: ModelServers, settings: Settings) -> list[Component]:
    """All stages, behind the real consumers."""
    return build_service("worker", _rooms(process, servers, settings))


def scheduler(process: Process, servers: ModelServers, settings: Settings) -> list[Component]:
    """The clock, for work that was put off, and upkeep."""
    found = build_service("scheduler", _rooms(process, servers, settings))
    return [component for component in found if component.name in _OF_PUSH]


def feedback(process: Process, servers: ModelServers, settings: Settings) -> list[Component]:
    """The service that counts what receivers say."""
    found = build_service("feedback-answers", _rooms(process, servers, settings))
    return [component for component in found if component.name == "feedback"]


def user(process: Process, servers: ModelServers, settings: Settings) -> JobsRoom:
    """What a user can do to jobs, as the API does it."""
    return _rooms(process, servers, settings).jobs


def settings_for(weather: Weather) -> Settings:
    """Small batches, and upkeep that is as patient as the weather has it."""
    patience = weather.patience
    return Settings(
        worker=WorkerSettings(
            lanes=2,
            sends_in_flight=2,
            plans_in_flight=1,
            batch_size=BATCH_SIZE,
            page_batches=2,
            grace_seconds=0,
            max_batch_failure=MOST_FAILED,
        ),
        stream=StreamSettings(transaction_timeout_seconds=TRANSACTION_SECONDS, max_record_bytes=MOST_RECORD_BYTES),
        feedback=FeedbackSettings(flush_seconds=2 * _LOOK_SECONDS),
        mail=MailSettings(
            addressees=(f"operators@{MAIL_DOMAIN}",) if weather.mailed else (), message_id_domain=MAIL_DOMAIN
        ),
        scheduler=SchedulerSettings(
            tick_seconds=5,
            lease_seconds=30,
            upkeep_seconds=10,
            stale_seconds=patience,
            margin_seconds=MARGIN_SECONDS if patience else -TRANSACTION_SECONDS,
        ),
    )


def _rooms(process: Process, servers: ModelServers, settings: Settings) -> Rooms:
    store = servers.database.store(observe=cast(Any, partial(gated, process)))
    stream = ModelStream(
        servers.kafka,
        process,
        lanes=settings.worker.lanes,
        seconds=TRANSACTION_SECONDS / 2,
        look_seconds=_LOOK_SECONDS,
    )
    missing = cast(Any, None)
    return Rooms(
        Servers(
            settings,
            service="test",
            store=store,
            broker=as_broker(GatedBroker(process, servers.broker, servers.published, servers.hear)),
            stream=stream,
            audience=gated(process, as_audience(servers.devices), "audience"),
            blobs=missing,
            uploads=None,
            mail=gated(process, Mailbox(servers.letters), "mail") if settings.mail.addressees else Mail(),
            outgoing=missing,
            own_api=missing,
            time=DatabaseTime(store),
            clock=servers.clock,
        )
    )
