"""Which servers the settings name, and so who is examined."""

from functools import partial
from typing import cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from services import assembly
from services.commands.doctor.bus import EventBus
from services.commands.doctor.bus_log import BusLog
from services.commands.doctor.deployment import Deployment
from services.commands.doctor.examination import Examination
from services.commands.doctor.files import S3, FilesFolder
from services.commands.doctor.kafka import Kafka, kafka_addresses
from services.commands.doctor.mail import MailServer
from services.commands.doctor.messages import MessageAccounts
from services.commands.doctor.mongodb import MongoDb
from services.commands.doctor.postgresql import PostgreSql
from services.commands.doctor.rabbitmq import RabbitManagement, RabbitMq
from services.connections import Capabilities
from services.parts import Parts
from shared.blobs.late import LateBlobs
from shared.broker.rabbitmq import RabbitBroker
from shared.runtime.settings import Settings
from shared.runtime.tls import client_context
from shared.runtime.weaknesses import find_weaknesses
from shared.stream.kafka import KafkaStream

EXAMINATIONS: tuple[type[Examination], ...] = (
    MongoDb,
    RabbitMq,
    RabbitManagement,
    Kafka,
    PostgreSql,
    S3,
    FilesFolder,
    MailServer,
    MessageAccounts,
    BusLog,
    EventBus,
    Deployment,
)
# More than the doctor's own patience: that one is told in the same words of all servers.
PATIENCE_SECONDS = 6.0


def hurry(settings: Settings) -> Settings:
    """The settings with little patience."""
    return replace(
        settings,
        broker=replace(settings.broker, publish_timeout_seconds=PATIENCE_SECONDS),
        stream=replace(settings.stream, request_timeout_seconds=PATIENCE_SECONDS),
        audience=replace(settings.audience, statement_timeout_seconds=PATIENCE_SECONDS),
        blobs=replace(settings.blobs, timeout_seconds=PATIENCE_SECONDS),
        mail=replace(settings.mail, timeout_seconds=PATIENCE_SECONDS),
    )


async def load_drivers(capabilities: Capabilities) -> None:
    """Load what is otherwise loaded with its first use: on a busy machine, that would take a server's time away."""
    if urlsplit(capabilities.settings.blobs.url).scheme == "s3":
        await cast(LateBlobs, capabilities.blobs).load()


def select_examinations(capabilities: Capabilities) -> list[Examination]:
    """The examinations, in the order in which they are shown. Raises `Invalid` for a URL that cannot be read."""
    settings = capabilities.settings
    parts = Parts(capabilities, ["worker"])  # the queues are those of its stages
    queues = [stage.task.queue for stage in parts.stages]
    find_faults = partial(assembly.find_faults, parts)
    found: list[Examination] = [MongoDb(settings.store.url, capabilities.store)]
    if urlsplit(settings.broker.url).scheme != "memory":
        inspection = cast(RabbitBroker, capabilities.broker).inspection
        management = settings.broker.management_url
        found.append(RabbitMq(settings.broker.url, inspection, queues, management_url=management))
        found.append(RabbitManagement(management, inspection))
    if urlsplit(settings.stream.url).scheme != "local":
        found.append(Kafka(settings.stream, cast(KafkaStream, capabilities.stream).inspection, settings.bus.log_topic))
    found.append(PostgreSql(settings.audience.url, capabilities.audience_inspection, capabilities.store))
    found.append(_files(capabilities))
    if capabilities.mail.delivers:
        found.append(MailServer(settings.mail.url, capabilities.mail))
    found.append(MessageAccounts(settings, capabilities.store, capabilities.key_ring))
    if urlsplit(settings.stream.url).scheme != "local":
        found.append(_bus_log(capabilities))
    found.append(EventBus(settings.bus, capabilities.store, capabilities.key_ring))
    found.append(Deployment(settings, capabilities.store, find_faults))
    trust, weaknesses = client_context(settings.tls), dict(find_weaknesses(settings))
    for examination in found:
        examination.trust, examination.weakness = trust, weaknesses.get(examination.setting, "")
    return found


def _bus_log(capabilities: Capabilities) -> Examination:
    stream = cast(KafkaStream, capabilities.stream)
    servers = ",".join(map(str, kafka_addresses(capabilities.settings.stream.url)))
    return BusLog(capabilities.settings.bus, capabilities.store, stream, stream.inspection, servers)


def _files(capabilities: Capabilities) -> Examination:
    settings = capabilities.settings.blobs
    if urlsplit(settings.url).scheme == "file":
        return FilesFolder(settings.url, capabilities.blobs)
    return S3(settings, capabilities.blobs)
