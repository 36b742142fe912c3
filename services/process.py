"""A process that serves one service or several, and `carillon init`, which prepares the servers."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

import click
import structlog

from services import assembly
from services.connections import Capabilities
from services.embedded.processes import is_free
from services.parts import Parts
from shared.domain.documents import VERSION, Stamp, check_stamp
from shared.domain.errors import CarillonError, Conflict, Unavailable
from shared.domain.time_zones import RELEASE
from shared.runtime import health, lifecycle, logs
from shared.runtime.lifecycle import Background, Checked, Component, run
from shared.runtime.loops import pause
from shared.runtime.readings import program_version
from shared.runtime.settings import Settings
from shared.store.database import Schema

log = structlog.get_logger(__name__)


_UNKNOWN_SECONDS, _KNOWN_SECONDS = 1.0, 60.0


class SchemaWatch(Background):
    """The component that reads the database's stamp: before anything else starts, if the database answers, and now and
    then while it runs. `start` and `wait` raise `TooOld`, which ends the process."""

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


async def serve(settings: Settings, services: Sequence[str], *, name: str) -> int:
    """Run services until a signal ends them; returns the exit code. Every line of the log contains `name`."""
    logs.set_up(settings.logs, service=name)
    check_ports(settings, ("health", "api") if "api" in services else ("health",))
    capabilities, known = Capabilities(settings, service="-".join(services)), health.ProcessHealth()
    try:
        with lifecycle.pause_collection():
            components = build(capabilities, services, known)
    except CarillonError:
        await capabilities.close()
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


def build(capabilities: Capabilities, services: Sequence[str], known: health.ProcessHealth) -> list[Component]:
    """The process's components in the order of their start. Raises `Invalid` for unusable settings."""
    parts = Parts(capabilities, services)
    assembly.watch(services, parts, known)
    components: list[Component] = [
        health.server(known, capabilities.settings.health),
        *assembly.tracers(capabilities),
        assembly.connections_closer(capabilities),
        SchemaWatch(capabilities.store.schema),
        *assembly.report(parts, services, known),
    ]
    for service in services:
        components += assembly.components(service, parts)
    for component in components:
        if isinstance(component, Checked):
            known.add(component.name, component.check)
    return components


async def set_up(settings: Settings) -> int:
    """Make what is missing."""
    capabilities = Capabilities(settings, service="init")
    try:
        parts = Parts(capabilities, ["worker"])  # the queues are those of its stages
        await assembly.set_up(parts)
        await assembly.verify(parts)
    finally:
        await capabilities.close()
    click.echo("Everything is in place.")
    return 0
