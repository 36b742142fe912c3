"""The only place that opens connections: from settings to the capabilities that a service is given, and to its
components.

The scheme of each URL picks the implementation, so that any mixture works. Everything opens lazily: a server that is
away when a process starts shows in `/readyz` and is used as soon as it is there.
"""

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from msgspec import Struct

from services.api import app as api_app
from services.feedback.listener import Listener
from services.scheduler.clock import Clock as TickingClock
from services.scheduler.clock import answer_seconds, lookahead
from services.scheduler.deliver import Deliveries
from services.scheduler.fire import Fire
from services.scheduler.retention import Retention, retention
from services.scheduler.sweep import Sweep, sweeping
from services.scheduler.upkeep import upkeep
from services.worker.call import Caller
from services.worker.consumer import Consumer
from services.worker.finish import Finisher
from services.worker.plan import Planner
from services.worker.send import Sender
from services.worker.service import Workers
from shared.audience import Audience
from shared.broker import Broker
from shared.broker.memory import MemoryBroker
from shared.broker.rabbitmq import RabbitBroker
from shared.domain.callbacks import Targets
from shared.domain.errors import Invalid
from shared.domain.tasks import BATCH_QUEUE, CALL_QUEUE, FINISH_QUEUE, QUEUES, SPLIT_QUEUE
from shared.flow import DatabaseTime, Feed, Finish, JobFlow, Lost, ScheduleFlow, Settlement
from shared.flow.lost import Patience
from shared.outgoing import Outgoing
from shared.outgoing.signing import check_secret
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.health import Health
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.metrics import observed
from shared.runtime.serving import HttpServer
from shared.runtime.settings import Settings
from shared.store import COLLECTIONS, Store
from shared.stream import Stream
from shared.stream.kafka import KafkaStream
from shared.stream.local import LocalStream

# Whoever calls the API would rather hear 503 soon; work in the background would rather not be done again.
_PATIENCE_OF_A_CALLER = 5.0
_PATIENCE = 20.0
_CONFIRM_OF_A_CALLER = 1.0

# Work whose queue is busy counts as lost after so many times the usual patience.
_AT_LATEST = 10

SERVICES = ("api", "scheduler", "worker", "feedback")


class Capabilities(Struct, frozen=True):
    """What services are made of."""

    settings: Settings
    store: Store
    broker: Broker
    stream: Stream
    audience: Audience
    outgoing: Outgoing
    time: DatabaseTime
    clock: Clock

    @property
    def feed(self) -> Feed:
        return Feed(self.store, self.broker)

    @property
    def jobs(self) -> JobFlow:
        return JobFlow(self.store, self.feed, self.clock)

    @property
    def schedules(self) -> ScheduleFlow:
        return ScheduleFlow(self.store, self.time)

    @property
    def settlement(self) -> Settlement:
        return Settlement(self.store, tick=timedelta(seconds=self.settings.scheduler.tick_seconds))

    @property
    def targets(self) -> Targets:
        """What callbacks may reach."""
        chosen = self.settings.callbacks
        return Targets(
            queues=self.broker.delivers,
            streams=self.stream.delivers,
            exchanges=frozenset(chosen.exchanges),
            topics=frozenset(chosen.topics),
            networks=chosen.allowed_networks,
        )

    async def setup(self) -> None:
        """Make indexes, queues, policies and topics, idempotently. Raises `Unavailable`."""
        await self.store.setup()
        await self.broker.setup(QUEUES)
        await self.stream.setup({})

    async def verify(self) -> None:
        """Raise `Unavailable` unless `setup` has been done, on servers whose promises we know."""
        await self.broker.verify(QUEUES)
        await self.stream.verify()

    async def close(self) -> None:
        """Close every connection."""
        await self.outgoing.close()
        await self.stream.close()
        await self.broker.close()
        await self.audience.close()
        await self.store.close()


async def opened(settings: Settings, *, service: str) -> Capabilities:
    """The capabilities of a process; `service` names its connections. Raises `Invalid` for a URL that no part can
    read."""
    name = f"carillon {service} {socket.gethostname()}/{os.getpid()}"
    audience = await Audience.open(
        settings.audience.url,
        pool_size=settings.audience.pool_size,
        statement_timeout_seconds=settings.audience.statement_timeout_seconds,
    )
    store = _store(settings, hurried=service == "api")
    broker = observed(_broker(settings, name, hurried=service == "api"), "broker")
    stream = observed(_stream(settings, name), "stream", opens=frozenset({"lane", "reader"}))
    # The last, because it must be closed again where another URL cannot be read.
    outgoing = await Outgoing.open(
        allowed_networks=settings.callbacks.allowed_networks,
        timeout_seconds=settings.callbacks.call_timeout_seconds,
        connections=settings.callbacks.calls_in_flight,
    )
    return Capabilities(
        settings=settings,
        store=store,
        broker=broker,
        stream=stream,
        audience=observed(audience, "audience"),
        outgoing=observed(outgoing, "outgoing"),
        time=DatabaseTime(store),
        clock=SystemClock(),
    )


def components(service: str, with_: Capabilities) -> list[Component]:
    """The components of one service, in the order in which they start."""
    match service:
        case "api":
            return [_api(with_)]
        case "scheduler":
            return [_clock(with_), _upkeep(with_), _sweep(with_), _retention(with_)]
        case "worker":
            return [_workers(with_)]
        case "feedback":
            return [Listener(with_.stream, with_.store, with_.settings.feedback)]
        case _:
            raise Invalid(f"one of {', '.join(SERVICES)}", field="service")


async def take_up(with_: Capabilities) -> None:
    """Queue all unfinished work again at once. Only for the start of a store's only process, whose broker begins empty:
    nobody is at work, so no patience is needed. Raises `Unavailable`."""
    none = timedelta(0)
    await Lost(with_.store, with_.broker, with_.feed, with_.jobs, Patience(none, none, none)).find()


def closing(with_: Capabilities) -> Component:
    """The component that closes the connections when all others have stopped."""
    return Closing("connections", with_.close)


def watch(services: Sequence[str], with_: Capabilities, health: Health) -> None:
    """Make readiness depend on the servers that these services use."""
    health.add("mongodb", with_.store.ping)
    if set(services) & {"api", "scheduler", "worker"}:
        health.add("broker", with_.broker.ping)
    if set(services) & {"worker", "feedback"}:
        health.add("stream", with_.stream.ping)
    if set(services) & {"api", "worker"}:
        health.add("push database", with_.audience.ping)


def _api(with_: Capabilities) -> HttpServer:
    settings = with_.settings.api
    application = api_app.create(
        store=with_.store,
        audience=with_.audience,
        flow=with_.jobs,
        schedules=with_.schedules,
        targets=with_.targets,
        clock=with_.clock,
        settings=settings,
    )
    return HttpServer("api", application, host=settings.host, port=settings.port, proxy_headers=False)


def _upkeep(with_: Capabilities) -> Component:
    scheduler, stream = with_.settings.scheduler, with_.settings.stream
    stale = timedelta(seconds=scheduler.stale_seconds)
    patience = Patience(
        owned=timedelta(seconds=stream.transaction_timeout_seconds + scheduler.margin_seconds),
        queued=stale,
        at_latest=_AT_LATEST * stale,
    )
    lost = Lost(with_.store, with_.broker, with_.feed, with_.jobs, patience)
    return upkeep(lost, interval_seconds=scheduler.upkeep_seconds)


def _clock(with_: Capabilities) -> Component:
    settings = with_.settings.scheduler
    deliveries = Deliveries(
        with_.store,
        with_.broker,
        with_.stream,
        with_.settlement,
        call_lease=timedelta(seconds=settings.call_lease_seconds) + lookahead(settings),
        waiting_calls=settings.waiting_calls,
    )
    fire = Fire(
        with_.store,
        with_.time,
        deliveries,
        with_.settlement,
        with_.feed,
        with_.jobs,
        tick=timedelta(seconds=settings.tick_seconds),
        misfire_after=timedelta(seconds=settings.misfire_after_seconds),
        stages_seconds=answer_seconds(settings),
    )
    return TickingClock(with_.store, with_.time, fire, settings)


def _sweep(with_: Capabilities) -> Component:
    sweep = Sweep(with_.store, with_.time)
    return sweeping(sweep, interval_seconds=with_.settings.scheduler.sweep_seconds)


def _retention(with_: Capabilities) -> Component:
    settings = with_.settings.scheduler
    return retention(Retention(with_.store, with_.time, settings), interval_seconds=settings.retention_seconds)


def _workers(with_: Capabilities) -> Workers:
    worker, calls = with_.settings.worker, with_.settings.callbacks.calls_in_flight
    planner = Planner(
        with_.store,
        with_.audience,
        with_.stream,
        with_.feed,
        with_.jobs,
        worker=worker,
        topics=with_.settings.stream,
    )
    sender = Sender(
        with_.store,
        with_.audience,
        with_.stream,
        with_.feed,
        with_.clock,
        worker=worker,
        records=with_.settings.stream,
    )
    finisher = Finisher(Finish(with_.store, with_.clock), with_.feed)
    name = f"{socket.gethostname()}/{os.getpid()}"
    consumers = [
        Consumer(with_.broker, BATCH_QUEUE, sender, name=name, in_flight=worker.sends_in_flight),
        Consumer(with_.broker, SPLIT_QUEUE, planner, name=name, in_flight=worker.plans_in_flight),
        Consumer(with_.broker, FINISH_QUEUE, finisher, name=name, in_flight=worker.plans_in_flight),
        Consumer(with_.broker, CALL_QUEUE, _caller(with_), name=name, in_flight=calls),
    ]
    return Workers(consumers, planner, verify=with_.verify)


def _caller(with_: Capabilities) -> Caller:
    chosen = with_.settings.callbacks
    if chosen.signing_secret:
        check_secret(chosen.signing_secret, "callbacks.signing_secret")
    return Caller(
        with_.store,
        with_.time,
        with_.outgoing,
        with_.settlement,
        call_timeout=timedelta(seconds=chosen.call_timeout_seconds) + lookahead(with_.settings.scheduler),
        signing_secret=chosen.signing_secret,
    )


def _store(settings: Settings, *, hurried: bool) -> Store:
    store = Store.open(settings.store.url, timeout_seconds=_PATIENCE_OF_A_CALLER if hurried else _PATIENCE)
    for name in COLLECTIONS:
        setattr(store, name, observed(getattr(store, name), f"store.{name}"))
    return store


def _broker(settings: Settings, name: str, *, hurried: bool) -> Broker:
    timeout = settings.broker.publish_timeout_seconds
    match urlsplit(settings.broker.url).scheme:
        case "amqp" | "amqps":
            return RabbitBroker(
                settings.broker.url,
                management_url=settings.broker.management_url,
                connection_name=name,
                publish_timeout_seconds=min(timeout, _CONFIRM_OF_A_CALLER) if hurried else timeout,
                deliver_timeout_seconds=min(timeout, answer_seconds(settings.scheduler)),
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
                replication_factor=stream.replication_factor,
                transaction_timeout_seconds=stream.transaction_timeout_seconds,
                request_timeout_seconds=stream.request_timeout_seconds,
                deliver_timeout_seconds=min(stream.request_timeout_seconds, answer_seconds(settings.scheduler)),
                compression=stream.compression,
                max_record_bytes=stream.max_record_bytes,
            )
        case "local":
            return LocalStream.open(stream.url, lanes=lanes)
        case scheme:
            raise Invalid(f"kafka:// or local://, not {scheme}://", field="stream.url")
