"""A process that serves one service or several, and `carillon init`, which prepares the servers."""

import asyncio
import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress

import click
import structlog

from services.embedded.processes import is_free
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.console.processes import Heartbeat, MinuteCounting
from shared.console.rules.signs import ROLES
from shared.core.documents import VERSION, Stamp, check_stamp
from shared.core.errors import CarillonError, Conflict, Denied, Invalid, Unavailable
from shared.core.time_zones import RELEASE
from shared.drivers.mongo.database import Schema
from shared.runtime import health, lifecycle, logs
from shared.runtime.health import ProcessHealth
from shared.runtime.lifecycle import Background, Checked, Closing, Component, LoopWatch, run
from shared.runtime.loops import pause
from shared.runtime.metrics import BUILD_INFO
from shared.runtime.readings import program_version
from shared.runtime.settings import Settings
from shared.runtime.tracing import switch_on

log = structlog.get_logger(__name__)

_NEEDED = {"worker": ("broker",), "feedback-answers": ("stream",), "feedback-bus": ("stream",)}
"""By service, the servers without which it is not ready. Every service also needs MongoDB."""
_USED = {
    "api": ("broker", "audience"),
    "scheduler": ("broker",),
    "worker": ("audience", "stream"),
    "feedback-bus": ("broker",),
}
"""The servers that some of its work needs: while one is away the service is ready, and `/readyz` names it."""
_SHOWN = {"audience": "push database"}
_UNKNOWN_SECONDS, _KNOWN_SECONDS = 1.0, 60.0


async def serve(settings: Settings, services: Sequence[str], *, name: str) -> int:
    """Run services until a signal ends them; returns the exit code. Every line of the log contains `name`."""
    logs.set_up(settings.logs, service=name)
    check_ports(settings, ("health", "api") if "api" in services else ("health",))
    servers, known = Servers(settings, service="-".join(services)), ProcessHealth()
    try:
        with lifecycle.pause_collection():
            components = build(Rooms(servers), services, known)
            add_checks(components, known)
    except CarillonError:
        await servers.close()
        raise
    log.info("starting", version=program_version(), time_zones=RELEASE)
    lifecycle.settle_in()
    return await run(components, health=known, shutdown=settings.shutdown)


def check_ports(settings: Settings, names: Collection[str]) -> None:
    """Raise `Conflict` unless the ports of these sections (`api`, `health`) are free."""
    for name in names:
        section = getattr(settings, name)
        if not is_free(section.host, section.port):
            raise Conflict(f"{name}.port: {section.host}:{section.port} is taken; 0 takes a free one")


def build(rooms: Rooms, services: Sequence[str], known: ProcessHealth) -> list[Component]:
    """The process's components in the order of their start. Raises `Invalid` for unusable settings."""
    servers = rooms.servers
    for service in services:
        known.add("mongodb", servers.store.ping)
        for server in _NEEDED.get(service, ()):
            known.add(_SHOWN.get(server, server), getattr(servers, server).ping)
        for server in _USED.get(service, ()):
            known.add(_SHOWN.get(server, server), getattr(servers, server).ping, needed=False)
    return [
        health.server(known, servers.settings.health),
        *_tracers(servers),
        Closing("connections", servers.close),  # after all others have stopped
        SchemaWatch(servers.store.schema),
        LoopWatch(),
        Heartbeat(servers.store, servers.time, known, servers.settings, tuple(services)),
        MinuteCounting(servers.store, servers.time),
        *(component for service in services for component in build_service(service, rooms)),
    ]


def add_checks(components: Sequence[Component], known: ProcessHealth) -> None:
    """Let `/readyz` wait until each component works. `carillon up` has verified its servers before it starts them."""
    for component in components:
        if isinstance(component, Checked):
            known.add(component.name, component.check)


def build_service(service: str, rooms: Rooms) -> list[Component]:
    BUILD_INFO.labels(program_version(), service).set(1)
    match service:  # each imports what it runs
        case "api":
            from services.wiring.api import api_components

            return api_components(rooms)
        case "scheduler":
            from services.wiring.schedulers import scheduler_components

            return scheduler_components(rooms)
        case "worker":
            from services.wiring.workers import worker_components

            return worker_components(rooms)
        case "feedback-answers":
            from services.wiring.feedback import answers_components

            return answers_components(rooms)
        case "feedback-bus":
            from services.wiring.feedback import bus_components

            return bus_components(rooms)
        case _:
            raise Invalid(f"one of {', '.join(ROLES)}", field="service")


def _tracers(servers: Servers) -> list[Component]:
    """Switch tracing on if the settings say so; the component sends the last spans at the end. Raises `Invalid` if the
    extra is not installed."""
    resource = {
        "service.namespace": "carillon",
        "service.name": f"carillon-{servers.service}",
        "service.version": program_version(),
        "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
    }
    switch_off = switch_on(servers.settings.tracing, resource)
    return [] if switch_off is None else [Closing("tracing", switch_off)]


async def init(settings: Settings) -> int:
    """Make what is missing."""
    servers = Servers(settings, service="init")
    try:
        await set_up(Rooms(servers))
    finally:
        await servers.close()
    click.echo("Everything is in place.")
    return 0


async def set_up(rooms: Rooms) -> None:
    """Make indexes, queues, policies, topics, and the bucket of a private S3 server; verify them. Safe to repeat.

    Raises:
        TooOld: a later release has locked this one out of the database.
    """
    from services.wiring.workers import build_stages, queues_of

    servers = rooms.servers
    queues, topics = queues_of(build_stages(rooms)), rooms.bus.stream_topics
    if (stamp := await servers.store.schema.read()) is not None:
        check_stamp(stamp)
    await servers.store.setup()
    await servers.broker.setup(queues)
    await servers.stream.setup(topics)
    if servers.settings.blobs.endpoint_url:  # at AWS the owner makes the bucket and chooses its readers
        try:
            await servers.blobs.make_bucket()
        except Denied as error:
            # A user without the right to list buckets can still use this one.
            log.warning("cannot tell whether the bucket exists", bucket=servers.blobs.bucket, reason=str(error))
    await servers.verify(queues, topics)


class SchemaWatch(Background):
    """The component that keeps a process from a database that was not set up, or that a later release has shut it out
    of. It reads the database's stamp before anything else starts, if the database answers, and now and then while it
    runs. `start` and `wait` raise `TooOld`, which ends the process."""

    def __init__(self, schema: Schema) -> None:
        super().__init__("schema", self._watch)
        self._schema = schema
        self._stamp: Stamp | None = None

    async def start(self) -> None:
        with suppress(Unavailable):
            await self._look()
        await super().start()

    async def check(self) -> None:
        """Raise `Unavailable` where the `init` of this release has not been run, for `/readyz`."""
        if not self._is_set_up():
            await self._look()
        if not self._is_set_up():
            raise Unavailable("carillon init of this release has not been run on this database")

    def _is_set_up(self) -> bool:
        return self._stamp is not None and self._stamp.version >= VERSION

    async def _watch(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await pause(stopping, _KNOWN_SECONDS if self._is_set_up() else _UNKNOWN_SECONDS)
            with suppress(Unavailable):
                await self._look()

    async def _look(self) -> None:
        self._stamp = await self._schema.read()
        if self._stamp is not None:
            check_stamp(self._stamp)
