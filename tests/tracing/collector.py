"""A collector of OpenTelemetry's: it takes OTLP over HTTP on loopback, and keeps the spans of every process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.waiting import until

NO_PARENT = ""


class Seen(msgspec.Struct, frozen=True):
    """One span, as it came."""

    service: str
    name: str
    trace_id: str
    id: str
    parent: str
    kind: int
    begin: int
    end: int
    facts: dict[str, Any]
    links: tuple[str, ...]

    @property
    def header(self) -> str:
        """How a message names it."""
        return f"00-{self.trace_id}-{self.id}-01"


class Collector:
    """What came, while it answers with `status`, as soon as it may."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.url = ""
        self.status = 200
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.requests = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert (request.path, request.content_type) == ("/v1/traces", "application/x-protobuf")
        self.requests += 1
        body = await request.read()
        await self.may_answer.wait()
        if self.status == 200:
            self.spans += _read(ExportTraceServiceRequest.FromString(body))
        return web.Response(status=self.status)

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    async def first(self, name: str, where: Callable[[Seen], bool] = lambda _: True) -> Seen:
        """Wait for a span of this name that is like this; the first one."""
        await until(lambda: any(where(span) for span in self.named(name)), f"a span {name}, of {self.names()}")
        return next(span for span in self.named(name) if where(span))

    def names(self) -> list[str]:
        return sorted({f"{span.service}: {span.name}" for span in self.spans})

    def below(self, parent: Seen) -> list[str]:
        """The names of a span's children."""
        return sorted(span.name for span in self.spans if (span.trace_id, span.parent) == (parent.trace_id, parent.id))

    def orphans(self, trace_id: str) -> set[str]:
        """The parents that spans of a trace name, and that are not there."""
        spans = {span.id: span for span in self.spans if span.trace_id == trace_id}
        return {span.parent for span in spans.values()} - spans.keys()


@asynccontextmanager
async def collect() -> AsyncIterator[Collector]:
    """A collector on loopback."""
    collector = Collector()
    runner = web.ServerRunner(web.Server(collector.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


def _read(request: ExportTraceServiceRequest) -> list[Seen]:
    return [
        Seen(
            service=next(_value(fact.value) for fact in of.resource.attributes if fact.key == "service.name"),
            name=span.name,
            trace_id=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            kind=span.kind,
            begin=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            facts={fact.key: _value(fact.value) for fact in span.attributes},
            links=tuple(f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" for link in span.links),
        )
        for of in request.resource_spans
        for scope in of.scope_spans
        for span in scope.spans
    ]


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
