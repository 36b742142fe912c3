"""Traces by OpenTelemetry: how long work took, and for which request.

    serve (a request) ── span ── span      within a process: the context of OpenTelemetry
       └─ a job, an occurrence, a task     between processes: their field `trace`
            └─ follow ── span              the work of that request, in any process

The field outlives retries, redelivery and killed processes. Only recorded work has it. It holds `traceparent` and the
second at which that span began: for ten minutes the span is the parent of work that follows, afterwards a link.

Without `tracing.endpoint` the SDK is not loaded, and every function here returns at once. The SDK's thread sends spans;
no work waits for it.
"""

import asyncio
import functools
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ParamSpec, Self, TypeVar

import structlog
from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value
from opentelemetry.trace import (
    INVALID_SPAN,
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.core.errors import Invalid
from shared.runtime.server_settings import TracingSettings

TRACEPARENT = "traceparent"
YOUNG_SECONDS = 600

Attribute = str | int | float | bool
Given = Attribute | Callable[[], Attribute]
"""The value of an attribute, or a function that is called only for a recorded span."""

P = ParamSpec("P")
T = TypeVar("T")

_CARRIED = re.compile(r"(00-[0-9a-f]{32}-[0-9a-f]{16}-01)@([0-9]{1,12})", re.ASCII)
_CHARACTERS = 1_000
# The time of a component that begins to stop after the grace period (`lifecycle.CLOSING_SECONDS`) is a second.
_FLUSH_SECONDS = 0.8
_LINKS = 128
_SEND_MILLISECONDS = 1_000
_TIMEOUT_SECONDS = 5.0
_TRACE = create_key("the trace of documents and tasks made here")

log = structlog.get_logger(__name__)


class Recording:
    """A span as a context manager. This one is not recorded."""

    is_recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def set(self, **attributes: Given) -> None: ...

    def rename(self, name: str) -> None: ...


NULL = Recording()


class _Switch:
    """The tracer of this process while tracing is on, and its settings."""

    tracer: Tracer | None = None
    settings = TracingSettings()


class _Open(Recording):
    """A recorded span. Documents and tasks made within it carry `trace`, or the span itself if `trace` is `None`."""

    is_recorded = True

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        parent: SpanContext | None,
        attributes: Mapping[str, Given],
        *,
        links: Sequence[SpanContext] = (),
        trace: str | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self._span = tracer.start_span(
            name,
            context=Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context()),
            kind=kind,
            links=[Link(link) for link in links],
            attributes=_values(attributes),
        )
        self._trace = _name(self._span.get_span_context()) if trace is None else trace

    def __enter__(self) -> Self:
        self._token = attach(set_value(_TRACE, self._trace, set_span_in_context(self._span)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        detach(self._token)
        if kind is not None:  # only the type: the text of an error may be personal
            self._span.set_attribute("error", kind.__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def set(self, **attributes: Given) -> None:
        self._span.set_attributes(_values(attributes))

    def rename(self, name: str) -> None:
        self._span.update_name(name)


def switch_on(settings: TracingSettings, resource: Mapping[str, str]) -> Callable[[], Awaitable[None]] | None:
    """Record from now on, if there is an endpoint. Returns the coroutine that ends it and sends the last spans."""
    if not settings.endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ModuleNotFoundError as error:
        raise Invalid(f"needs the extra: pip install 'carillon[otel]' ({error})", field="tracing.endpoint") from None
    provider = TracerProvider(
        sampler=ALWAYS_ON,  # the functions below choose
        resource=Resource.create(dict(resource)),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=_LINKS, max_span_attribute_length=_CHARACTERS),
    )
    exporter = OTLPSpanExporter(endpoint=settings.collector, timeout=_TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_MILLISECONDS))
    _Switch.tracer, _Switch.settings = provider.get_tracer("carillon"), settings

    async def switch_off() -> None:
        _Switch.tracer = None
        if not await _finish(provider.shutdown):
            log.warning("the last spans are lost", endpoint=settings.collector)

    return switch_off


def span(name: str, /, **attributes: Given) -> Recording:
    """A span below the open one. Without an open one it is not recorded."""
    tracer = _Switch.tracer
    if tracer is None or not (parent := get_current_span()).is_recording():
        return NULL
    return _Open(tracer, name, parent.get_span_context(), attributes, trace=current_trace())


def root(name: str, traces: Iterable[str] = (), /, **attributes: Given) -> Recording:
    """A span that begins a trace and links to `traces`. It is recorded by chance, or if one of these is recorded.

    Work that follows carries it only if chance chose it: the work may be that of other requests.
    """
    tracer = _Switch.tracer
    if tracer is None:
        return NULL
    links = [known[0] for trace in dict.fromkeys(traces) if (known := _read(trace)) is not None]
    is_chosen = _is_chosen()
    if not links and not is_chosen:
        return NULL
    return _Open(tracer, name, None, attributes, links=links, trace=None if is_chosen else "")


def serve(name: str, traceparent: Callable[[], str]) -> Recording:
    """A span of a request. The caller's header decides whether it is recorded; without a header, chance does."""
    tracer = _Switch.tracer
    if tracer is None:
        return NULL
    caller = _read_header(traceparent())
    is_recorded = _is_chosen() if caller is None else caller.trace_flags.sampled
    return _Open(tracer, name, caller, {}, kind=SpanKind.SERVER) if is_recorded else NULL


def follow(name: str, trace: str, /, **attributes: Given) -> Recording:
    """A span of work that carries `trace`. Work that follows carries the same trace."""
    tracer = _Switch.tracer
    if tracer is None or (known := _read(trace)) is None:
        return NULL
    parent, is_young = known
    if is_young:
        return _Open(tracer, name, parent, attributes, trace=trace)
    return _Open(tracer, name, None, attributes, links=[parent], trace=trace)


@contextmanager
def carry(trace: str) -> Iterator[None]:
    """Have documents and tasks that are made within this carry `trace`; "" for none."""
    if _Switch.tracer is None:
        yield
        return
    token = attach(set_value(_TRACE, trace if _read(trace) else ""))
    try:
        yield
    finally:
        detach(token)


def current_trace() -> str:
    """The trace that documents and tasks made here carry; "" for none."""
    if _Switch.tracer is None:
        return ""
    open_span = get_current_span()  # a task may outlive the span in which it began
    return str(get_value(_TRACE) or "") if open_span is INVALID_SPAN or open_span.is_recording() else ""


def current_span() -> str:
    """The open span as the trace of what follows; "" for none."""
    open_span = get_current_span()
    return _name(open_span.get_span_context()) if _Switch.tracer is not None and open_span.is_recording() else ""


def name_trace(traceparent: str) -> str:
    """The id of a request's trace: that of the open span, else the one that the caller's header names; "" for none."""
    open_span = get_current_span()
    known = open_span.get_span_context() if open_span.is_recording() else _read_header(traceparent)
    return "" if known is None else f"{known.trace_id:032x}"


def resume(trace: str) -> str:
    """The trace for the work of an occurrence, within the span of its group: its own while it is young, else that
    span."""
    if _Switch.tracer is None or (known := _read(trace)) is None:
        return current_trace()
    return trace if known[1] else current_span() or trace


def with_header(given: dict[str, str], trace: str) -> dict[str, str]:
    """The headers of a message, with `traceparent` of this trace. A caller's own `traceparent` stays."""
    if not trace or any(name.lower() == TRACEPARENT for name in given):
        return given
    return given | {TRACEPARENT: trace.partition("@")[0]}


def record_headers() -> dict[str, str]:
    return with_header({}, current_span()) if _Switch.settings.records == "on" else {}


def trace_calls(name: str) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with span(name):
                return await function(*args, **kwargs)

        return call

    return decorate


def _is_chosen() -> bool:
    return random.random() < _Switch.settings.ratio


def _name(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01@{int(time.time())}"


def _read(trace: str) -> tuple[SpanContext, bool] | None:
    """The span of a carried trace, and whether it is still the parent of what follows; `None` for another text."""
    found = _CARRIED.fullmatch(trace)
    span = None if found is None else _read_header(found[1])
    return None if found is None or span is None else (span, time.time() - int(found[2]) <= YOUNG_SECONDS)


def _read_header(text: str) -> SpanContext | None:
    """The span in a header by W3C's Trace Context; `None` for a text that is not such a header."""
    context = TraceContextTextMapPropagator().extract({TRACEPARENT: text}, Context())
    known = get_current_span(context).get_span_context()
    return None if known is INVALID_SPAN_CONTEXT else known


def _values(attributes: Mapping[str, Given]) -> dict[str, Attribute]:
    return {name: given() if callable(given) else given for name, given in attributes.items()}


async def _finish(shutdown: Callable[[], None]) -> bool:
    """Whether the last spans went within `_FLUSH_SECONDS`. The thread is a daemon: a lost collector delays no exit."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def flush() -> None:
        shutdown()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=flush, name="last spans", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_SECONDS):
            await ended.wait()
    return ended.is_set()
