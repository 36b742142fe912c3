"""The only place that opens connections, and closes them: from settings to the capabilities that parts are built on.

The scheme of each URL picks the implementation, so that any mixture works. Everything opens lazily: a server that is
away when a process starts shows in `/readyz` and is used as soon as it is there.
"""

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from shared.audience import Audience
from shared.blobs import Blobs, Uploads
from shared.blobs.files import FolderBlobs
from shared.broker import Broker
from shared.broker.memory import MemoryBroker
from shared.broker.rabbitmq import RabbitBroker
from shared.domain.errors import Invalid, Unavailable
from shared.domain.push.topics import topic_pattern
from shared.flow.time import DatabaseTime
from shared.mail import Mail, MailSender
from shared.mail.none import NoMail
from shared.mail.sendgrid import SendGridMail
from shared.mail.smtp import SmtpMail
from shared.outgoing import Answer, Blocked, Call, Outgoing, OwnApi, Unreachable
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.metrics import measure_calls
from shared.runtime.settings import Settings
from shared.store import Store
from shared.stream import Stream
from shared.stream.kafka import KafkaStream
from shared.stream.local import LocalStream

# A caller of the API is served best by a quick 503; work in the background waits rather than be done again.
_PATIENCE_OF_A_CALLER = 5.0
_PATIENCE = 20.0
_CONFIRM_OF_A_CALLER = 1.0


class Capabilities(Struct, frozen=True):
    """The open capabilities of one process."""

    settings: Settings
    store: Store
    broker: Broker
    stream: Stream
    audience: Audience
    blobs: Blobs
    uploads: Uploads | None
    mail: Mail
    outgoing: Outgoing
    own_api: OwnApi
    time: DatabaseTime
    clock: Clock

    async def close(self) -> None:
        """Close every connection."""
        await self.outgoing.close()
        await self.mail.close()
        await self.blobs.close()
        await self.stream.close()
        await self.broker.close()
        await self.audience.close()
        await self.store.close()


async def open_all(settings: Settings, *, service: str) -> Capabilities:
    """The capabilities of a process; `service` names its connections. Raises `Invalid` for a URL that cannot be
    read."""
    name = f"carillon {service} {socket.gethostname()}/{os.getpid()}"
    audience = await Audience.open(
        settings.audience.url,
        pool_size=settings.audience.pool_size,
        statement_timeout_seconds=settings.audience.statement_timeout_seconds,
    )
    store = _store(settings, hurried=service == "api")
    broker = measure_calls(_broker(settings, name, hurried=service == "api"), "broker")
    stream = measure_calls(_stream(settings, name), "stream", opens=frozenset({"lane", "reader"}))
    blobs = _blobs(settings)
    # Behind all others, because it must be closed again where a URL cannot be read.
    own_api = OwnApi(settings.api.host, settings.api.port, public_url=settings.api.public_url)
    outgoing = await Outgoing.open(
        allowed_networks=settings.callbacks.allowed_networks,
        timeout_seconds=settings.callbacks.call_timeout_seconds,
        connections=settings.callbacks.calls_in_flight,
        own=own_api,
    )
    try:
        mail = _mail(settings, outgoing)
    except Invalid:
        await outgoing.close()
        raise
    return Capabilities(
        settings=settings,
        store=store,
        broker=broker,
        stream=stream,
        audience=measure_calls(audience, "audience"),
        blobs=measure_calls(blobs, "blobs"),
        uploads=blobs if isinstance(blobs, FolderBlobs) else None,
        mail=measure_calls(mail, "mail"),
        outgoing=measure_calls(outgoing, "outgoing"),
        own_api=own_api,
        time=DatabaseTime(store),
        clock=SystemClock(),
    )


def _store(settings: Settings, *, hurried: bool) -> Store:
    patience = _PATIENCE_OF_A_CALLER if hurried else _PATIENCE
    return Store.open(settings.store.url, timeout_seconds=patience, observe=measure_calls)


def _broker(settings: Settings, name: str, *, hurried: bool) -> Broker:
    timeout = settings.broker.publish_timeout_seconds
    match urlsplit(settings.broker.url).scheme:
        case "amqp" | "amqps":
            return RabbitBroker(
                settings.broker.url,
                management_url=settings.broker.management_url,
                connection_name=name,
                publish_timeout_seconds=min(timeout, _CONFIRM_OF_A_CALLER) if hurried else timeout,
                deliver_timeout_seconds=min(timeout, settings.scheduler.answer_seconds),
            )
        case "memory":
            return MemoryBroker()
        case scheme:
            raise Invalid(f"amqp://, amqps:// or memory://, not {scheme}://", field="broker.url")


def _stream(settings: Settings, name: str) -> Stream:
    stream, lanes = settings.stream, settings.worker.lanes
    match urlsplit(stream.url).scheme:
        case "kafka":
            return KafkaStream.open(
                stream.url,
                client_id=name.replace(" ", "-").replace("/", "-"),
                lanes=lanes,
                ledger_topic=stream.ledger_topic,
                ledger_partitions=stream.ledger_partitions,
                push_topics=topic_pattern(stream.topic_template),
                replication_factor=stream.replication_factor,
                marker_retention_days=stream.marker_retention_days,
                transaction_timeout_seconds=stream.transaction_timeout_seconds,
                request_timeout_seconds=stream.request_timeout_seconds,
                deliver_timeout_seconds=min(stream.request_timeout_seconds, settings.scheduler.answer_seconds),
                compression=stream.compression,
                max_record_bytes=stream.max_record_bytes,
            )
        case "local":
            return LocalStream.open(stream.url, lanes=lanes)
        case scheme:
            raise Invalid(f"kafka:// or local://, not {scheme}://", field="stream.url")


def _blobs(settings: Settings) -> Blobs:
    chosen = settings.blobs
    match urlsplit(chosen.url).scheme:
        case "s3":
            # Imported here because its driver is heavy, and a laptop's folder needs none of it.
            from shared.blobs.s3 import S3Blobs

            return S3Blobs.open(
                chosen.url,
                endpoint_url=chosen.endpoint_url,
                public_endpoint_url=chosen.public_endpoint_url,
                region=chosen.region,
                access_key=chosen.access_key,
                secret_key=chosen.secret_key,
                allowed_buckets=chosen.allowed_buckets,
                timeout_seconds=chosen.timeout_seconds,
            )
        case "file":
            return FolderBlobs.open(chosen.url, allowed_buckets=chosen.allowed_buckets)
        case scheme:
            raise Invalid(f"s3:// or file://, not {scheme}://", field="blobs.url")


def _mail(settings: Settings, outgoing: Outgoing) -> Mail:
    chosen = settings.mail
    sender = MailSender(chosen.sender_name, chosen.sender_address)
    match urlsplit(chosen.url).scheme:
        case "":
            return NoMail()
        case "smtp" | "smtps":
            return SmtpMail.open(chosen.url, sender=sender, timeout_seconds=chosen.timeout_seconds)
        case "sendgrid":
            post = _Post(outgoing)
            return SendGridMail.open(chosen.url, sender=sender, post=post, timeout_seconds=chosen.timeout_seconds)
        case scheme:
            raise Invalid(f"smtp://, smtps:// or sendgrid://, not {scheme}://", field="mail.url")


class _Post:
    """Lends our HTTP client to a mail service that is called by HTTP."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes, message_id: str) -> Answer:
        now = int(SystemClock().now().timestamp())
        try:
            return await self._outgoing.call(Call(url, "POST", dict(headers), body, message_id, now))
        except Unreachable as error:
            raise Unavailable(str(error)) from error
        except Blocked as error:
            raise Invalid(str(error), field="mail.url") from error
