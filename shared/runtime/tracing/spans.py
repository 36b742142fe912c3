"""Spans by OpenTelemetry, sent to a collector: the only place that imports it, once an endpoint is set.

Recorded spans wait in a queue of `QUEUE` for a thread that sends them. A span that finds no room is dropped and
counted, so nobody ever waits for the collector. Spans that the collector does not take are counted too, and logged once
until it takes some again.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from shared.runtime.metrics import SPANS
from shared.runtime.tracing.context import Attribute, TraceParent

QUEUE = 2_048
_SENT_AT_ONCE = 512
_SEND_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
# A component that begins to stop when the grace period is over has a second (`lifecycle.CLOSING_SECONDS`).
_FLUSH_SECONDS = 0.8
_CHARACTERS = 1_000
_LINKS = 128

log = structlog.get_logger(__name__)


class RecordedSpan:
    """An open span of ours."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.address = TraceParent(context.trace_id, context.span_id)

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        """Tell more of it."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Give it another name."""
        self._span.update_name(name)

    def end(self, error: BaseException | None) -> None:
        """End it. A span of an error bears the type alone: the text may be personal."""
        if error is not None:
            self._span.set_attribute("error", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class Spans:
    """Makes spans, all of them recorded, and sends them to `endpoint`."""

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        self._exporter = _LoggedExporter(endpoint)
        self._processor = _BoundedProcessor(self._exporter)
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(dict(resource)),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=_LINKS, max_span_attribute_length=_CHARACTERS),
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("carillon")

    def start(
        self,
        name: str,
        parent: TraceParent | None,
        links: Sequence[TraceParent],
        attributes: Mapping[str, Attribute],
        *,
        serves: bool,
    ) -> RecordedSpan:
        """Begin a span, below this parent or as a root. One that `serves` is the answer to a request."""
        span = self._tracer.start_span(
            name,
            context=Context() if parent is None else set_span_in_context(NonRecordingSpan(_remote(parent)), Context()),
            kind=SpanKind.SERVER if serves else SpanKind.INTERNAL,
            links=[Link(_remote(link)) for link in links],
            attributes=attributes,
        )
        return RecordedSpan(span)

    async def close(self) -> None:
        """Send what waits, for less than a second: a collector that is away holds nobody up."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def flush() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=flush, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await ended.wait()
        except TimeoutError:
            log.warning("the last spans are lost", endpoint=self._exporter.endpoint)


def _remote(parent: TraceParent) -> SpanContext:
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class _BoundedProcessor(BatchSpanProcessor):
    """OpenTelemetry's queue, which takes no more than it has room for. It would drop the oldest, uncounted."""

    def __init__(self, exporter: "_LoggedExporter") -> None:
        super().__init__(
            exporter,
            max_queue_size=QUEUE,
            max_export_batch_size=_SENT_AT_ONCE,
            schedule_delay_millis=_SEND_SECONDS * 1_000,
        )
        self._counted = exporter
        self._taken = 0

    def on_end(self, span: ReadableSpan) -> None:
        if self._taken - self._counted.ended >= QUEUE:
            SPANS.labels("dropped").inc()
            return
        self._taken += 1
        super().on_end(span)


class _LoggedExporter(SpanExporter):
    """OpenTelemetry's exporter, with an account of what became of the spans. `ended` counts those that it has dealt
    with."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.ended = 0
        self._inner = OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_SECONDS)
        self._reason = _LastWords()
        self._away_since: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            self.ended += len(spans)
            self._note(result, len(spans))
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def _note(self, result: SpanExportResult, count: int) -> None:
        if result is SpanExportResult.FAILURE:
            SPANS.labels("lost").inc(count)
            if self._away_since is None:
                self._away_since = time.monotonic()
                log.warning("spans cannot be sent", endpoint=self.endpoint, reason=self._reason.text)
            return
        SPANS.labels("sent").inc(count)
        if self._away_since is not None:
            log.info("spans are sent again", seconds=round(time.monotonic() - self._away_since, 1))
            self._away_since = None


class _LastWords(logging.Handler):
    """Keeps the last line of OpenTelemetry's own log, in place of a line a second."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
