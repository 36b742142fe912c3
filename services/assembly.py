"""The assembly of each process from the components of its parts (`services.parts`)."""

import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog

from services.connections import Capabilities
from services.parts import Parts, find_processes
from shared.domain.documents import check_stamp
from shared.domain.errors import Denied, Invalid
from shared.flow.console.processes import Heartbeat, MinuteCounting
from shared.runtime.health import ProcessHealth
from shared.runtime.http_protocol import Limits
from shared.runtime.lifecycle import Closing, Component, LoopWatch
from shared.runtime.metrics import BUILD_INFO
from shared.runtime.readings import program_version
from shared.runtime.serving import HttpServer, affordable_connections
from shared.runtime.tls import server_context
from shared.runtime.tracing import switch_on

if TYPE_CHECKING:  # the API and the worker are imported by the process that is one
    from services.api.app import Application

log = structlog.get_logger(__name__)


def components(process: str, parts: Parts) -> list[Component]:
    """The components of one process, in the order in which they start. `parts` must be those of this process."""
    BUILD_INFO.labels(program_version(), process).set(1)
    own = [component for part in parts for component in part.components(process)]
    match process:
        case "api":
            return [_ApiServer(build_api(parts), parts.capabilities), *own]
        case "worker":
            from services.worker.service import Workers

            name, broker = f"{socket.gethostname()}/{os.getpid()}", parts.capabilities.broker
            return [Workers(broker, parts.stages, name=name, verify=partial(verify, parts)), *own]
        case _ if process in (known := find_processes()):
            return own
        case _:
            raise Invalid(f"one of {', '.join(known)}", field="service")


async def set_up(parts: Parts) -> None:
    """Make indexes, queues, policies, topics, and the bucket of a private S3 server. Safe to repeat.

    Raises:
        TooOld: a later release has locked this one out of the database.
    """
    capabilities, queues = parts.capabilities, _queues(parts)
    if (stamp := await capabilities.store.schema.read()) is not None:
        check_stamp(stamp)
    await capabilities.store.setup()
    await capabilities.broker.setup(queues)
    await capabilities.stream.setup(parts.stream_topics)
    if capabilities.settings.blobs.endpoint_url:  # at AWS the owner makes the bucket and chooses its readers
        try:
            await capabilities.blobs.make_bucket()
        except Denied as error:
            # A user without the right to list buckets can still use this one.
            log.warning("cannot tell whether the bucket exists", bucket=capabilities.blobs.bucket, reason=str(error))


async def verify(parts: Parts) -> None:
    """Raise `Unavailable` unless `set_up` has been done, on servers with the required guarantees."""
    await parts.capabilities.broker.verify(_queues(parts))
    await parts.capabilities.stream.verify(parts.stream_topics)


def connections_closer(capabilities: Capabilities) -> Component:
    """The component that closes connections after all others have stopped."""
    return Closing("connections", capabilities.close)


def tracers(capabilities: Capabilities) -> list[Component]:
    """Switch tracing on if the settings say so; the component sends the last spans at the end. Raises `Invalid` if the
    extra is not installed."""
    resource = {
        "service.namespace": "carillon",
        "service.name": f"carillon-{capabilities.service}",
        "service.version": program_version(),
        "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
    }
    switch_off = switch_on(capabilities.settings.tracing, resource)
    return [] if switch_off is None else [Closing("tracing", switch_off)]


def report(parts: Parts, processes: Sequence[str], health: ProcessHealth) -> list[Component]:
    """The components that tell of this process, whatever it serves: they stop when what it serves has stopped."""
    given = parts.capabilities
    return [
        LoopWatch(),
        Heartbeat(given.store, given.time, health, given.settings, tuple(processes)),
        MinuteCounting(given.store, given.time),
    ]


def watch(processes: Sequence[str], parts: Parts, health: ProcessHealth) -> None:
    """Add the servers of these processes to `/readyz`: those on which readiness depends, and the others."""
    for process in processes:
        for part in parts:
            for name, check in part.checks(process).items():
                health.add(name, check)
            for name, check in part.side_checks(process).items():
                health.add(name, check, needed=False)


def _queues(parts: Parts) -> tuple[str, ...]:
    return tuple(stage.task.queue for stage in parts.stages)


def build_api(parts: Parts) -> "Application":
    """The API as an ASGI application. Raises `Invalid` for unusable settings."""
    from services.api.app import create
    from services.api.http.acts import Acts
    from services.api.http.health import HealthResource
    from services.api.http.identity import Directory
    from services.api.http.pages.sessions import Visitors

    given, settings = parts.capabilities, parts.capabilities.settings.api
    resources = [resource for part in parts for resource in part.resources()]
    resources.append(HealthResource(given.store, given.audience))
    acts = Acts(given.store, given.time, parts.capabilities.settings.audit)
    root_key = parts.capabilities.settings.bus.root_key
    directory = Directory(given.store, given.clock, settings, root_key=root_key)
    pages = [page for part in parts for page in part.pages()]
    return create(resources, pages, directory, Visitors(given.store, directory, given.clock), acts, settings)


class _ApiServer(HttpServer):
    """The API, which tells this process its port, so that callbacks do not call it."""

    def __init__(self, application: "Application", capabilities: Capabilities) -> None:
        settings = capabilities.settings.api
        limits = Limits(connections=affordable_connections(settings.max_connections))
        super().__init__(
            "api",
            application,
            host=settings.host,
            port=settings.port,
            limits=limits,
            certificate=server_context(settings.certificate_file, settings.key_file, section="api"),
            proxy_headers=False,
        )
        self._own_api = capabilities.own_api

    async def start(self) -> None:
        await super().start()
        self._own_api.port = self.port
