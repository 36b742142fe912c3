"""Tracing: what took how long, and on whose behalf, as spans of OpenTelemetry.

Off, `span` and its like give one shared context that does nothing, and OpenTelemetry is not loaded. A trace begins with
a request to the API, or with the clock. A share of these is recorded (`ratio`), and of a caller who brings a
`traceparent` what that caller records; all that follows is recorded with it, or not at all.

Context has two ways. Within a process a `ContextVar` holds the place where work stands, which asyncio hands to its
tasks. From process to process the field `trace` of jobs, occurrences and tasks carries the place where the work began:
`current_trace` is its text, `follow` opens a span under it. It stands in the store and in messages, so it outlives
tries that are repeated, messages that are delivered again and processes that are killed.
"""

import functools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from shared.domain.errors import Invalid
from shared.domain.rates import Rate
from shared.runtime.server_settings import TracingSettings
from shared.runtime.tracing.context import (
    TRACEPARENT,
    Attribute,
    Carried,
    TraceParent,
    header_of,
    read_carried,
    read_header,
)

if TYPE_CHECKING:  # loaded by whoever switches it on
    from shared.runtime.tracing.spans import RecordedSpan, Spans

Given = Attribute | Callable[[], Attribute]
"""The value of an attribute, or a function that is only called for a span that is recorded."""

P = ParamSpec("P")
T = TypeVar("T")

WISHES_A_SECOND = 50
"""How many requests of a process are recorded because their callers wish it."""

_wished_for = Rate(WISHES_A_SECOND, burst=2 * WISHES_A_SECOND, keys=1)


class Recording:
    """A span that one enters. This one is not recorded, and does nothing."""

    is_recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def set(self, **attributes: Given) -> None:
        """Tell more of it."""

    def rename(self, name: str) -> None:
        """Call it by what was not known when it began."""


class _Place:
    """The place of work in a trace: in an open span or in none, and the trace that its documents and tasks carry."""

    def __init__(self, span: "RecordedSpan | None", carried: Carried | None) -> None:
        self.span = span
        self.carried = carried
        self.is_over = False


class _Switch:
    """The spans that are switched on in this process, if any, and their settings."""

    spans: "Spans | None" = None
    settings = TracingSettings()


NULL = Recording()
_place: ContextVar[_Place | None] = ContextVar("place in a trace", default=None)


class _Open(Recording):
    """A span that is recorded, and is open while this is entered. Documents and tasks that are made meanwhile carry
    `carried`, or, if it `leads`, the span itself."""

    is_recorded = True

    def __init__(
        self,
        spans: "Spans",
        name: str,
        parent: TraceParent | None,
        attributes: Mapping[str, Given],
        *,
        links: Sequence[TraceParent] = (),
        carried: Carried | None = None,
        leads: bool = False,
        serves: bool = False,
    ) -> None:
        self._span = spans.start(name, parent, links, _values(attributes), serves=serves)
        self._place = _Place(self._span, _carry_span(self._span) if leads else carried)
        self._token: Token[_Place | None] | None = None

    def __enter__(self) -> Self:
        self._token = _place.set(self._place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _place.reset(self._token)
        self._place.is_over = True
        self._span.end(error)

    def set(self, **attributes: Given) -> None:
        self._span.set(_values(attributes))

    def rename(self, name: str) -> None:
        self._span.rename(name)


def switch_on(settings: TracingSettings, resource: Mapping[str, str]) -> Callable[[], Awaitable[None]] | None:
    """Record from now on, if the settings say so; what ends it, and sends what is still here. Raises `Invalid` where
    OpenTelemetry is not installed."""
    if not settings.endpoint:
        return None
    try:
        from shared.runtime.tracing.spans import Spans
    except ModuleNotFoundError as error:
        raise Invalid(f"needs the extra: pip install 'carillon[otel]' ({error})", field="tracing.endpoint") from None
    spans = Spans(settings.collector, resource)
    _Switch.spans, _Switch.settings = spans, settings

    async def switch_off() -> None:
        _Switch.spans = None
        await spans.close()

    return switch_off


def span(name: str, /, **attributes: Given) -> Recording:
    """A span under the one that is open here; where none is, nothing is recorded."""
    spans = _Switch.spans
    if spans is None or (place := _find_place()) is None or place.span is None:
        return NULL
    return _Open(spans, name, place.span.address, attributes, carried=place.carried)


def root(name: str, traces: Iterable[str] = (), /, **attributes: Given) -> Recording:
    """A span that begins a trace, with links to these ones. It is recorded if one of them is, or by chance. Work that
    follows from it carries it only if chance chose it: it may be the work of others."""
    spans = _Switch.spans
    if spans is None:
        return NULL
    traced = [read_carried(trace) for trace in dict.fromkeys(traces) if trace]
    links = [known.parent for known in traced if known is not None]
    is_chosen = _is_chosen()
    if not links and not is_chosen:
        return NULL
    return _Open(spans, name, None, attributes, links=links, leads=is_chosen)


def serve(name: str, traceparent: Callable[[], str]) -> Recording:
    """A span of a request, under the caller's span if the header names one. It is recorded if that is, or by chance.
    The header is only asked for where anything may be recorded."""
    spans = _Switch.spans
    if spans is None:
        return NULL
    header = traceparent()
    caller = read_header(header) if header else None
    # The caller is not known yet: strangers must not crowd out what others want to see.
    if caller is not None and caller.is_recorded and _wished_for.wait("", time.monotonic()) > 0:
        caller = None
    is_recorded = _is_chosen() if caller is None else caller.is_recorded
    return _Open(spans, name, caller, {}, leads=True, serves=True) if is_recorded else NULL


def follow(name: str, trace: str, /, **attributes: Given) -> Recording:
    """A span of work that carries this trace: under it while it is young, later a root with a link to it. Work that
    follows carries the same trace. Without a trace nothing is recorded."""
    spans = _Switch.spans
    if spans is None or not trace or (known := read_carried(trace)) is None:
        return NULL
    if known.is_young(time.time()):
        return _Open(spans, name, known.parent, attributes, carried=known)
    return _Open(spans, name, None, attributes, links=[known.parent], carried=known)


@contextmanager
def carry(trace: str) -> Iterator[None]:
    """Have documents and tasks that are made within this carry this trace, or none."""
    if _Switch.spans is None:
        yield
        return
    outer = _find_place()
    place = _Place(None if outer is None else outer.span, read_carried(trace))
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)
        place.is_over = True


def current_trace() -> str:
    """The trace that documents and tasks made here carry; "" where there is none."""
    place = _find_place() if _Switch.spans is not None else None
    return "" if place is None or place.carried is None else str(place.carried)


def current_span() -> str:
    """The span that is open here, as text; "" where none is."""
    place = _find_place() if _Switch.spans is not None else None
    return "" if place is None or place.span is None else str(_carry_span(place.span))


def name_trace(traceparent: str) -> str:
    """The id of the trace that a request stands in: that of the span that is open here, else the one that the caller's
    header names; "" for none."""
    place = _find_place() if _Switch.spans is not None else None
    known = read_header(traceparent) if place is None or place.span is None else place.span.address
    return "" if known is None else f"{known.trace_id:032x}"


def resume(trace: str) -> str:
    """The trace for the work of an occurrence that itself carries this trace, while the span of its group is open: the
    same while it is young, later that span."""
    if _Switch.spans is None or not trace or (known := read_carried(trace)) is None:
        return current_trace()
    return trace if known.is_young(time.time()) else current_span() or trace


def with_header(given: dict[str, str], trace: str) -> dict[str, str]:
    """These headers of a message, and `traceparent` with the span that the text names. A caller's own stays."""
    if not trace or any(name.lower() == TRACEPARENT for name in given):
        return given
    return given | {TRACEPARENT: header_of(trace)}


def record_headers() -> dict[str, str]:
    """The headers of records that are sent here."""
    return with_header({}, current_span()) if _Switch.settings.records == "on" else {}


def trace_calls(name: str) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Each call of the coroutine is a span."""

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with span(name):
                return await function(*args, **kwargs)

        return call

    return decorate


def _is_chosen() -> bool:
    return random.random() < _Switch.settings.ratio


def _find_place() -> _Place | None:
    """The place of this work. A task that outlives the span in which it began stands nowhere."""
    place = _place.get()
    return None if place is None or place.is_over else place


def _carry_span(span: "RecordedSpan") -> Carried:
    return Carried(span.address, int(time.time()))


def _values(attributes: Mapping[str, Given]) -> dict[str, Attribute]:
    return {name: given() if callable(given) else given for name, given in attributes.items()}
