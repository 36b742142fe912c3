"""The servers of a process, from settings to open connections: no other module opens or closes one.

The scheme of each URL picks the implementation, so any mixture works. Only picked implementations are imported, because
each brings a driver. Everything opens lazily: a server that is away at the start shows in `/readyz` and is used as soon
as it is there.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shared.core.errors import Invalid
from shared.drivers.blobs import Blobs, LateBlobs, Uploads
from shared.drivers.blobs.paths import check_settings
from shared.drivers.http import LateOutgoing, Outgoing
from shared.drivers.http.checks import CheckUrl, check_url
from shared.drivers.http.guard import OwnApi
from shared.drivers.kafka import Stream, TopicSpec
from shared.drivers.rabbitmq import Broker
from shared.push.rules.records import topic_pattern
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.measured import measure_calls
from shared.runtime.server_settings import BlobSettings, TlsSettings
from shared.runtime.settings import Settings
from shared.store import Store
from shared.time import DatabaseTime

if TYPE_CHECKING:  # imported on first use
    from shared.drivers.blobs.files import FolderBlobs
    from shared.drivers.postgres import Audience
    from shared.drivers.secrets import KeyRing
    from shared.providers import ProviderKind
    from shared.providers.mail import Mail

# A caller of the API needs a quick 503; background work waits rather than be done again. The doctor reports a server's
# answer, not a wait in vain.
_PATIENCE_OF = {"api": 5.0, "doctor": 4.0}
_PATIENCE = 20.0
_CONFIRM_OF_A_CALLER = 1.0
_API = "api"
_CLOSED = (
    "store",
    "audience",
    "broker",
    "stream",
    "blobs",
    "mail",
    "outgoing",
    "provider_outgoing",
    "bus_outgoing",
    "slow_bus_outgoing",
)


class Servers:
    """The servers of one process, each opened and imported on first use.

    `service` names the connections. A server that is `given` is used instead of opening one. Raises `Invalid` on use if
    a URL cannot be read.
    """

    def __init__(self, settings: Settings, *, service: str, **given: Any) -> None:
        self.settings = settings
        self.service = service
        vars(self).update(given)

    @cached_property
    def store(self) -> Store:
        patience = _PATIENCE_OF.get(self.service, _PATIENCE)
        return Store.open(
            self.settings.store.url, timeout_seconds=patience, observe=measure_calls, tls=self.settings.tls
        )

    @cached_property
    def broker(self) -> Broker:
        return measure_calls(_broker(self.settings, self._name, hurried=self.service == _API), "broker")

    @cached_property
    def stream(self) -> Stream:
        return measure_calls(_stream(self.settings, self._name), "stream", opens=frozenset({"lane", "reader"}))

    @cached_property
    def audience(self) -> "Audience":
        from shared.drivers.postgres import Audience

        chosen = self.settings.audience
        audience = Audience.open(
            chosen.url,
            pool_size=chosen.pool_size,
            statement_timeout_seconds=chosen.statement_timeout_seconds,
            tls=self.settings.tls,
        )
        return measure_calls(audience, "audience")

    @cached_property
    def blobs(self) -> Blobs:
        return measure_calls(self._folder or _s3(self.settings.blobs, self.settings.tls), "blobs")

    @cached_property
    def uploads(self) -> Uploads | None:
        """The folder for uploads; `None` if the blob server takes them itself."""
        return self._folder

    @cached_property
    def mail(self) -> "Mail":
        from shared.providers.mail import Mail

        return measure_calls(Mail.open(self.settings.mail, self.settings.tls, self.outgoing), "mail")

    @cached_property
    def outgoing(self) -> Outgoing:
        chosen = self.settings.callbacks
        networks, seconds = chosen.allowed_networks, chosen.call_timeout_seconds
        return self._late_outgoing("outgoing", networks, seconds, connections=chosen.calls_in_flight)

    @cached_property
    def provider_outgoing(self) -> Outgoing:
        """Calls of providers, with connections of their own, so that no callback waits for a provider."""
        chosen = self.settings.providers
        return self._late_outgoing("providers", chosen.allowed_networks, chosen.call_seconds)

    @cached_property
    def bus_outgoing(self) -> Outgoing:
        """Calls of receivers of the bus, with connections of their own, so that no callback waits for a receiver."""
        networks, seconds = self.settings.callbacks.allowed_networks, self.settings.bus.call_seconds
        return self._late_outgoing("receivers", networks, seconds)

    @cached_property
    def slow_bus_outgoing(self) -> Outgoing:
        """The same for slow or failing receivers, with lookups of their own, because their names may be slow too."""
        networks, seconds = self.settings.callbacks.allowed_networks, self.settings.bus.call_seconds
        return self._late_outgoing("receivers", networks, seconds)

    @cached_property
    def provider_kinds(self) -> "Mapping[str, ProviderKind]":
        from shared.providers import ProviderRules
        from shared.providers.kinds import kinds_of

        chosen = self.settings.providers
        rules = ProviderRules(
            call_seconds=chosen.call_seconds,
            allowed_networks=chosen.allowed_networks,
            public_url=self.settings.api.public_url,
            sandbox_file=chosen.sandbox_file,
        )
        return kinds_of(rules)

    @cached_property
    def key_ring(self) -> "KeyRing":
        """The keys that seal the secrets of credentials."""
        from shared.drivers.secrets import KeyRing, read_keys

        return KeyRing(read_keys(self.settings.providers.secret_keys))

    @cached_property
    def own_api(self) -> OwnApi:
        """The address of this deployment's API, which outgoing calls must not reach."""
        chosen = self.settings.api
        return OwnApi(chosen.host, chosen.port, public_url=chosen.public_url)

    @property
    def check_callback_url(self) -> CheckUrl:
        """The check of a callback's URL before it is stored."""
        return partial(check_url, allowed_networks=self.settings.callbacks.allowed_networks, own=self.own_api)

    @cached_property
    def time(self) -> DatabaseTime:
        return DatabaseTime(self.store)

    @cached_property
    def clock(self) -> Clock:
        return SystemClock()

    async def verify(self, queues: tuple[str, ...], topics: Mapping[str, TopicSpec]) -> None:
        """Raise `Unavailable` unless `carillon init` has made these, on servers with the required guarantees."""
        await self.broker.verify(queues)
        await self.stream.verify(topics)

    async def close(self) -> None:
        """Close all open connections, the store last, even if one of them fails to close."""
        async with AsyncExitStack() as closing:
            for name in _CLOSED:
                if name in vars(self):
                    closing.push_async_callback(getattr(self, name).close)

    def _late_outgoing(self, name: str, networks: tuple[str, ...], seconds: float, *, connections: int = 0) -> Outgoing:
        """Without `connections`, the callers bound their number."""

        def load() -> Callable[[], Outgoing]:
            from shared.drivers.http.client import HttpOutgoing

            return partial(
                HttpOutgoing.open,
                allowed_networks=networks,
                timeout_seconds=seconds,
                connections=connections,
                own=self.own_api,
            )

        return measure_calls(LateOutgoing(load), name)

    @property
    def _name(self) -> str:
        return f"carillon {self.service} {socket.gethostname()}/{os.getpid()}"

    @cached_property
    def _folder(self) -> "FolderBlobs | None":
        """The folder of the blobs, if their URL names one."""
        if _scheme(self.settings.blobs.url, field="blobs.url") != "file":
            return None
        from shared.drivers.blobs.files import FolderBlobs

        return FolderBlobs.open(self.settings.blobs.url, allowed_buckets=self.settings.blobs.allowed_buckets)


def _scheme(url: str, *, field: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError as error:
        raise Invalid(f"not a URL: {error}", field=field) from None


def _broker(settings: Settings, name: str, *, hurried: bool) -> Broker:
    timeout = settings.broker.publish_timeout_seconds
    match _scheme(settings.broker.url, field="broker.url"):
        case "amqp" | "amqps":
            from shared.drivers.rabbitmq.broker import RabbitBroker

            return RabbitBroker(
                settings.broker.url,
                management_url=settings.broker.management_url,
                connection_name=name,
                publish_timeout_seconds=min(timeout, _CONFIRM_OF_A_CALLER) if hurried else timeout,
                deliver_timeout_seconds=min(timeout, settings.scheduler.answer_seconds),
                tls=settings.tls,
            )
        case "memory":
            from shared.drivers.rabbitmq.memory import MemoryBroker

            return MemoryBroker()
        case scheme:
            raise Invalid(f"amqp://, amqps:// or memory://, not {scheme}://", field="broker.url")


def _stream(settings: Settings, name: str) -> Stream:
    stream, lanes = settings.stream, settings.worker.lanes
    match _scheme(stream.url, field="stream.url"):
        case "kafka" | "kafka+ssl":
            from shared.drivers.kafka.servers import KafkaServers
            from shared.drivers.kafka.stream import KafkaStream

            return KafkaStream(
                KafkaServers.read(stream.url, settings.tls),
                stream,
                client_id=name.replace(" ", "-").replace("/", "-"),
                lanes=lanes,
                push_topics=topic_pattern(stream.topic_template),
                deliver_timeout_seconds=min(stream.request_timeout_seconds, settings.scheduler.answer_seconds),
            )
        case "local":
            from shared.drivers.kafka.local import LocalStream

            return LocalStream.open(stream.url, lanes=lanes)
        case scheme:
            raise Invalid(f"kafka://, kafka+ssl:// or local://, not {scheme}://", field="stream.url")


def _s3(chosen: BlobSettings, tls: TlsSettings) -> Blobs:
    scheme = _scheme(chosen.url, field="blobs.url")
    if scheme != "s3":
        raise Invalid(f"s3:// or file://, not {scheme}://", field="blobs.url")
    checked: dict[str, Any] = {
        "endpoint_url": chosen.endpoint_url,
        "public_endpoint_url": chosen.public_endpoint_url,
        "access_key": chosen.access_key,
        "secret_key": chosen.secret_key,
        "allowed_buckets": chosen.allowed_buckets,
    }
    bucket, _ = check_settings(chosen.url, **checked)

    def load() -> Callable[[], Blobs]:
        from shared.drivers.blobs.s3 import S3Blobs

        return partial(
            S3Blobs, chosen.url, region=chosen.region, timeout_seconds=chosen.timeout_seconds, tls=tls, **checked
        )

    return LateBlobs(bucket, load)
